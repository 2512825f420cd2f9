"""Generates the table of `docs/frameworks.md`: the frameworks that the tests trained with, their versions and clusters.

By hand: `scripts/generate` writes it anew from what the tests recorded
(tests/support/frameworks.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.frameworks import RECORD
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "frameworks.md"
BEGIN = "<!-- made by `scripts/generate` from here on -->\n"
END = "<!-- to here -->\n"
HEAD = "| framework | version | cluster | container | nodes x workers | launcher | trained |\n" + 7 * "|---" + "|"


def recorded() -> list[dict[str, Any]]:
    """What the tests trained, a training each."""
    rows: list[dict[str, Any]] = json.loads(RECORD.read_text())
    return sorted(rows, key=lambda row: (row["framework"].lower(), row["scheduler"] != "Slurm", row["what"]))


def table() -> str:
    """All that stands between the marks."""
    return "\n".join([HEAD, *_lines()]) + "\n"


def _lines() -> Iterator[str]:
    for row in recorded():
        cluster = {"Slurm": "Slurm", "Docker": "Docker hosts", "PBS": "PBS"}[row["scheduler"]]
        workers = f"{row['nodes']} x {row['workers'] // row['nodes']}"
        launcher = f"`{row['launcher']}`" if row["launcher"] else "none"
        what = "a sum over all ranks" if row["what"] == "sum" else f"[{row['what']}](../{row['what']})"
        cells = (row["framework"], row["version"], cluster, row["container"], workers, launcher, what)
        yield f"| {' | '.join(cells)} |"


def parts() -> tuple[str, str, str]:
    """The page: what stands before the table, the table, what stands after it."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    middle, _, tail = rest.partition(END)
    return head, middle, tail


if __name__ == "__main__":
    head, _, tail = parts()
    PAGE.write_text(head + BEGIN + table() + END + tail)
    print(PAGE)
