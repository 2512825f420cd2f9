"""Generates the tables of `docs/compatibility.md`: every endpoint and command of Determined 0.38.1, and whether it
works.

`python -m tests.support.compatibility` writes them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from tests.contract.test_every_command import ELSEWHERE, REFUSED
from tests.support.pages import ROOT
from tests.support.reference import reference
from tests.support.reference.commands import Command, published
from trainmaster import plugins
from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.master import MasterConfig
from trainmaster.config.shapes import Section
from trainmaster.config.task import TaskConfig
from trainmaster.master.http import not_served

PAGE = ROOT / "docs" / "compatibility.md"
ENDPOINTS = ROOT / "tests" / "data" / "determined-0.38.1" / "endpoints.csv"
FILES: dict[str, type[Section]] = {
    "experiment": ExperimentConfig,
    "task": TaskConfig,
    "`master.yaml`": MasterConfig,
    "`master.yaml`, `resource_manager` of type `agent`": plugins.load(plugins.DISPATCHERS, "docker").Options,
}
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


def keys_without_effect() -> Iterator[str]:
    """The lines of the table of keys that are read, for Determined's files have them, and change nothing."""
    yield "| file | key |\n|---|---|"
    for file, model in FILES.items():
        for key in sorted(set(_ignored(model, ""))):
            yield f"| {file} | `{key}` |"


def _ignored(model: type[Section], path: str) -> Iterator[str]:
    """The paths of the ignored keys of a model and of the models of its fields; a list's items are `[]`."""
    yield from (path + key for key in model.ignored if not key.startswith("_"))
    for name, field in model.model_fields.items():
        for inner, items in _sections(field.annotation):
            yield from _ignored(inner, f"{path}{field.alias or name}{items}.")


def _sections(annotation: Any, items: str = "") -> Iterator[tuple[type[Section], str]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, items
    many = "[]" if get_origin(annotation) in (list, Sequence) else ""
    for argument in get_args(annotation):
        yield from _sections(argument, items + many)


def tables(environment: Path) -> str:
    """All that stands below the mark."""
    parts = ["", "## Every endpoint", "", *endpoints(), "", "## Every command", "", *commands(published(environment))]
    parts += ["", "## Keys without effect", "", "They are read, and change nothing.", "", *keys_without_effect()]
    return "\n".join(parts) + "\n"


def _told(sentence: str | None) -> str:
    return "works" if sentence is None else f"501: {sentence}"


def _without_names(key: str) -> str:
    return re.sub(r"{[^}]*}", "{}", key)


if __name__ == "__main__":
    head, mark, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(head + MARK + tables(reference.environment()))
    print(PAGE)
