"""Outputs of real Slurm commands, kept under tests/data."""

from pathlib import Path

MARK = "\x1f0123456789abcdef\x1f"
_FOLDER = Path(__file__).parents[2] / "data" / "slurm-22.05"


def recorded(name: str) -> str:
    return (_FOLDER / name).read_text()
