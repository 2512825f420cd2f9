"""Runs many commands of the published `det` in one process, as its start alone takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.process.contract.conftest import Reference

_RUN = """
import contextlib, io, traceback
from determined.cli import cli
from determined.common import api
done = []
for arguments in json.loads(sys.argv[1]):
    # With a buffer beneath it, as some commands write there.
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    err, status = io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(arguments)
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
    done.append([status, out.buffer.getvalue().decode(), err.getvalue()])
answer(done)
"""


@dataclass(frozen=True)
class Said:
    """What one command said."""

    arguments: list[str]
    status: int
    out: str
    err: str

    def rows(self) -> list[dict[str, str]]:
        """The rows of the first table it printed, by column."""
        lines = [line for line in self.out.splitlines() if "|" in line or "-+-" in line]
        headers, _, *rows = ([cell.strip() for cell in line.split("|")] for line in lines)
        return [dict(zip(headers, row, strict=True)) for row in rows]


def batch(client: Reference, *commands: str | list[str]) -> Iterator[Said]:
    """Run the commands in order; each must succeed unless its text begins with `!`."""
    import json

    argvs = [command.removeprefix("!").split() if isinstance(command, str) else command for command in commands]
    found: list[Any] = client.run(_RUN, json.dumps(argvs))
    for command, arguments, (status, out, err) in zip(commands, argvs, found, strict=True):
        said = Said(arguments, status, out, err)
        refused = isinstance(command, str) and command.startswith("!")
        assert (status != 0) is refused, said
        assert refused or "Traceback" not in err, said
        yield said
