"""What the tests of doors have trained: a record, and the table of `docs/user/training-code.md` made from it.

A training that ran is compared with the record. Where something has changed: put `[]` into the file, run the tests of
doors with TRAINMASTER_RECORD=1 in the environment, and then `scripts/generate`.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from typing import Any

from tests.support.pages import ROOT
from tests.support.runtime.trials import Trial

RECORD = ROOT / "tests" / "data" / "doors.json"
PAGE = ROOT / "docs" / "user" / "training-code.md"
BEGIN = "<!-- made by `scripts/generate` from here on -->\n"
END = "<!-- to here -->\n"
HEAD = "| door | trained with | nodes x workers | interrupted by |\n" + 4 * "|---" + "|"
_VERSION = "import importlib.metadata as m, sys; print(*(m.version(name).partition('+')[0] for name in sys.argv[1:]))"
_WAYS = {"ask": "a request to leave", "kill": "SIGKILL"}


def table() -> str:
    """All that stands between the marks of the page."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in json.loads(RECORD.read_text()):
        grouped.setdefault((row["door"], row["with"]), []).append(row)
    lines = [HEAD]
    for (door, frameworks), rows in sorted(grouped.items()):
        sizes = sorted({(row["nodes"], row["ranks"]) for row in rows})
        ways = sorted({way for row in rows for way in row["ways"]})
        cells = (
            f"`{door}`",
            frameworks,
            ", ".join(f"{nodes} x {ranks}" for nodes, ranks in sizes),
            ", ".join(_WAYS[way] for way in ways),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    """The page: what stands before the table, the table, what stands after it."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    middle, _, tail = rest.partition(END)
    return head, middle, tail


def trained(trial: Trial, door: str, *packages: str) -> None:
    """Compare a trial that ended as one left alone would have with the record.

    Args:
        trial: It, with the jobs that it took.
        door: The module of ours.
        packages: The frameworks, by the names that the registry has for them.
    """
    environment = {**os.environ, **trial.environment}
    command = [trial.python, "-c", _VERSION, *packages]
    versions = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    row = {
        "door": door,
        "with": ", ".join(f"{name} {version}" for name, version in zip(packages, versions, strict=True)),
        "nodes": trial.nodes,
        "ranks": trial.ranks,
        "ways": sorted({attempt.how for attempt in trial.attempts if attempt.how}),
    }
    with RECORD.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        rows = json.load(file)
        if os.environ.get("TRAINMASTER_RECORD") and row not in rows:
            rows = sorted([*rows, row], key=json.dumps)
            file.seek(0)
            json.dump(rows, file, indent=1)
            file.write("\n")
    assert row in rows, f"{row} is not in {RECORD}: run with TRAINMASTER_RECORD=1, then `scripts/generate`"


if __name__ == "__main__":
    before, _, after = parts()
    PAGE.write_text(before + BEGIN + table() + END + after)
    print(PAGE)
