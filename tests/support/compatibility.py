"""The tables of `docs/compatibility.md`: every endpoint and every command of Determined 0.38.1, and what becomes of it.

By hand: `python -m tests.support.compatibility` writes them anew.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.contract.test_every_command import ELSEWHERE, REFUSED
from tests.support.pages import ROOT
from tests.support.reference import reference
from tests.support.reference.commands import Command, published
from trainmaster.master.api import not_served

PAGE = ROOT / "docs" / "compatibility.md"
ENDPOINTS = ROOT / "tests" / "data" / "determined-0.38.1" / "endpoints.csv"
MARK = "<!-- made by `python -m tests.support.compatibility` from here on -->\n"


def endpoints() -> Iterator[str]:
    """The lines of the table of endpoints; what is refused in whole trees of paths comes last."""
    sentences = {_without_names(key): sentence for key, sentence in not_served.REFUSED.items()}
    yield "| method | path | |\n|---|---|---|"
    with ENDPOINTS.open() as file:
        for row in sorted(csv.DictReader(file), key=lambda row: (row["path"], row["method"])):
            sentence = sentences.pop(_without_names(f"{row['method']} {row['path']}"), None)
            yield f"| {row['method']} | `{row['path']}` | {_told(sentence)} |"
    for key, sentence in not_served.REFUSED.items():
        if _without_names(key) in sentences:
            method, path = key.split(" ")
            yield f"| {method} | `{path}` | {_told(sentence)} |"


def commands(found: Sequence[Command]) -> Iterator[str]:
    """The lines of the table of commands."""
    refused = {line.removeprefix("!"): sentence for line, sentence in REFUSED.items()}
    yield "| command | |\n|---|---|"
    for command in sorted(found, key=str):
        said = [sentence for line, sentence in refused.items() if command.is_begun_by(line.split())]
        if str(command) in ELSEWHERE:
            yield f"| `det {command}` | not here: {ELSEWHERE[str(command)]} |"
        elif said:
            yield f"| `det {command}` | answers: ... {said[0]} ... |"
        else:
            yield f"| `det {command}` | works |"


def tables(environment: Path) -> str:
    """All that stands below the mark."""
    parts = ["", "## Every endpoint", "", *endpoints(), "", "## Every command", "", *commands(published(environment))]
    return "\n".join(parts) + "\n"


def _told(sentence: str | None) -> str:
    return "works" if sentence is None else f"501: {sentence}"


def _without_names(key: str) -> str:
    return re.sub(r"{[^}]*}", "{}", key)


if __name__ == "__main__":
    head, mark, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(head + MARK + tables(reference.environment()))
    print(PAGE)
