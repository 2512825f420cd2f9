"""Outputs of real Slurm commands, kept under tests/data."""

from pathlib import Path

MARK = "\x1f0123456789abcdef\x1f"
RELEASES = ("22.05", "24.11", "26.05")
_FOLDER = Path(__file__).parents[2] / "data"


def recorded(name: str, release: str = "22.05") -> str:
    return (_FOLDER / f"slurm-{release}" / name).read_text()
