"""Applies overrides of the command line such as `searcher.max_trials=4`; values are YAML, and `a,b` is a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .messages import Complaint, ConfigError, Path, in_words
from .source import Document, read_value


def override(document: Document, overrides: Sequence[str]) -> None:
    """Set each key in the document and record its origin. Raises ConfigError with all errors."""
    complaints = []
    for text in overrides:
        origin = f"--config {text}"
        try:
            path, value = _parsed(text, origin)
            _set(document, path, value, origin)
        except ConfigError as error:
            complaints += error.complaints
    if complaints:
        raise ConfigError(complaints, document.source)


def _parsed(text: str, origin: str) -> tuple[tuple[str, ...], Any]:
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        message = "an override is KEY=VALUE, the key's parts joined by dots, as in searcher.max_trials=4"
        raise ConfigError([Complaint((), message, source=origin)], origin)
    value = value.strip()
    if "," in value and value[0] not in "[{\"'":
        return path, [read_value(part.strip(), origin) for part in value.split(",")]
    return path, read_value(value, origin)


def _set(document: Document, path: tuple[str, ...], value: Any, origin: str) -> None:
    here: Any = document.data
    walked: Path = ()
    for part in path[:-1]:
        walked, here = _enter(here, walked, part, origin)
    last = _place(here, walked, path[-1], origin)
    here[last] = value
    full = (*walked, last)
    document.marks = {p: mark for p, mark in document.marks.items() if p[: len(full)] != full}
    document.origins[full] = origin


def _enter(here: Any, walked: Path, part: str, origin: str) -> tuple[Path, Any]:
    place = _place(here, walked, part, origin)
    if isinstance(here, dict) and here.get(place) is None:
        here[place] = {}
    return (*walked, place), here[place]


def _place(here: Any, walked: Path, part: str, origin: str) -> str | int:
    if isinstance(here, dict):
        return part
    if isinstance(here, list) and part.isdecimal() and int(part) < len(here):
        return int(part)
    raise ConfigError([Complaint(walked, f"holds {in_words(here)}, which has no key {part!r}", source=origin)], origin)
