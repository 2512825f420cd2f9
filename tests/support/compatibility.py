"""Generates the tables in `docs/compatibility/`: every endpoint and command of Determined 0.38.1, and whether it works.

`scripts/generate` writes them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from tests.process.contract.test_every_command import ELSEWHERE, REFUSED
from tests.support.pages import ROOT
from tests.support.reference import reference
from tests.support.reference.commands import Command, published
from trainmaster import plugins
from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.master import MasterConfig
from trainmaster.config.shapes import Section
from trainmaster.config.task import TaskConfig
from trainmaster.master.http import not_served

FOLDER = ROOT / "docs" / "compatibility"
ENDPOINTS = ROOT / "tests" / "data" / "determined-0.38.1" / "endpoints.csv"
FILES: dict[str, type[Section]] = {
    "experiment": ExperimentConfig,
    "task": TaskConfig,
    "`master.yaml`": MasterConfig,
    "`master.yaml`, `resource_manager` of type `agent`": plugins.load(plugins.DISPATCHERS, "docker").Options,
}
MARK = "<!-- made by `scripts/generate` -->"
# Paths that trainings are about, by the words that follow `/api/v1`.
OF_TRAININGS = re.compile(
    r"/api/v1/(allocations|checkpoints?|experiments?|jobs?|metrics|models?|preview|runs|trials?)\b"
)


def endpoints() -> tuple[list[str], list[str]]:
    """Return the rows of trainings' endpoints and of all others; what is refused in whole trees of paths comes last."""
    sentences = {_without_names(key): sentence for key, sentence in not_served.REFUSED.items()}
    trainings, others = list[Any](), list[Any]()
    with ENDPOINTS.open() as file:
        for row in sorted(csv.DictReader(file), key=lambda row: (row["path"], row["method"])):
            sentence = sentences.pop(_without_names(f"{row['method']} {row['path']}"), None)
            rows = trainings if OF_TRAININGS.match(row["path"]) else others
            rows.append(f"| {row['method']} | `{row['path']}` | {_told(sentence)} |")
    for key, sentence in not_served.REFUSED.items():
        if _without_names(key) in sentences:
            method, path = key.split(" ")
            others.append(f"| {method} | `{path}` | {_told(sentence)} |")
    return trainings, others


def commands(found: Sequence[Command]) -> Iterator[str]:
    """Yield the rows of the table of commands."""
    refused = {line.removeprefix("!"): sentence for line, sentence in REFUSED.items()}
    for command in sorted(found, key=str):
        said = [sentence for line, sentence in refused.items() if command.is_begun_by(line.split())]
        if str(command) in ELSEWHERE:
            yield f"| `det {command}` | not here: {ELSEWHERE[str(command)]} |"
        elif said:
            yield f"| `det {command}` | answers: ... {said[0]} ... |"
        else:
            yield f"| `det {command}` | works |"


def keys_without_effect() -> Iterator[str]:
    """Yield the rows of the table of keys that are read, for Determined's files have them, and change nothing."""
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


def pages(environment: Path) -> Mapping[Path, str]:
    """Return every page and its text."""
    trainings, others = endpoints()
    endpoint = "| method | path | |\n|---|---|---|"
    return {
        FOLDER / "trainings.md": _page("Endpoints of trainings", endpoint, trainings),
        FOLDER / "others.md": _page("All other endpoints", endpoint, others),
        FOLDER / "commands.md": _page("Commands", "| command | |\n|---|---|", commands(published(environment))),
        FOLDER / "keys.md": _page("Keys without effect", "| file | key |\n|---|---|", keys_without_effect()),
    }


def _page(title: str, head: str, rows: Iterable[str]) -> str:
    return "\n".join([f"# {title}", "", MARK, "", head, *rows]) + "\n"


def _told(sentence: str | None) -> str:
    return "works" if sentence is None else f"501: {sentence}"


def _without_names(key: str) -> str:
    return re.sub(r"{[^}]*}", "{}", key)


if __name__ == "__main__":
    for page, text in pages(reference.environment()).items():
        page.write_text(text)
        print(page)
