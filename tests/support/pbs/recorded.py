"""Recorded output of a real OpenPBS, from tests/data."""

from pathlib import Path

from trainmaster.dispatchers.cluster.command_runner import CommandResult

MARK = "@@"
_FOLDER = Path(__file__).parents[2] / "data" / "openpbs-23.06.06"


def recorded(name: str) -> str:
    return (_FOLDER / name).read_text()


def outcome(name: str, program: str = "") -> CommandResult:
    """The whole answer of a recorded command."""
    statuses = dict(line.split() for line in recorded("statuses.txt").splitlines())
    out, err = ((_FOLDER / f"{name}{ending}") for ending in (".out", ".err"))
    return CommandResult(
        argv=(program or name.partition("-")[0],),
        returncode=int(statuses[name]),
        stdout=out.read_text() if out.exists() else "",
        stderr=err.read_text() if err.exists() else "",
        seconds=0.1,
    )
