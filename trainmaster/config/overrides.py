"""Applies overrides of the command line such as `searcher.max_trials=4`; values are YAML, and `a,b` is a list.

Dots separate the keys of nested sections. A key may have dots itself, as the hyperparameter `model.lr`: an override
means the key that exists. Quotation marks keep the dots of a key: `hyperparameters."model.lr"=0.1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from trainmaster.config.messages import Complaint, ConfigError, Path, in_words
from trainmaster.config.searcher import model_of
from trainmaster.config.source import Document, read_value

_KEY = re.compile(r"""\s*("[^"]+"|'[^']+'|[^."'=]+?)\s*([.=])""")


def override(document: Document, overrides: Sequence[str]) -> list[str]:
    """Set each key in the document and record its origin. Returns sentences on keys of the file that were left out
    because the overrides name another searcher. Raises ConfigError with all errors."""
    complaints = []
    before = _searcher_of(document)
    for text in overrides:
        origin = f"--config {text}"
        try:
            path, value = _parsed(text, origin)
            _set(document, path, value, origin)
        except ConfigError as error:
            complaints += error.complaints
    if complaints:
        raise ConfigError(complaints, document.source)
    return _without_keys_of(document, before.get("name"))


def _searcher_of(document: Document) -> dict[str, Any]:
    searcher = document.data.get("searcher")
    return dict(searcher) if isinstance(searcher, dict) else {}


def _without_keys_of(document: Document, former: Any) -> list[str]:
    """Drop the keys of the searcher `former` that another one, which an override names, does not have."""
    section = _searcher_of(document)
    name = section.get("name")
    if former is None or name == former or ("searcher", "name") not in document.origins:
        return []
    try:
        model = model_of({"name": name})
    except PydanticCustomError:
        return []  # its own complaint says so
    known = {*model.model_fields, *model.ignored}
    odd = [key for key in section if key not in known and ("searcher", key) not in document.origins]
    for key in odd:
        del document.data["searcher"][key]
    kept = ", ".join(f"searcher.{key}" for key in odd)
    return [f"{kept}: left out, because searcher.name is {name} and not {former}."] if odd else []


def _parsed(text: str, origin: str) -> tuple[tuple[str, ...], Any]:
    path, value = _split(text, origin)
    if "," in value and value[0] not in "[{\"'":
        return path, [read_value(part.strip(), origin) for part in value.split(",")]
    return path, read_value(value, origin)


def _split(text: str, origin: str) -> tuple[tuple[str, ...], str]:
    parts: list[str] = []
    at = 0
    while match := _KEY.match(text, at):
        quoted = match[1][0] in "\"'"
        parts.append(match[1][1:-1] if quoted else match[1].strip())
        at = match.end()
        if match[2] == "=":
            return tuple(parts), text[at:].strip()
    message = "an override is KEY=VALUE, the key's parts joined by dots, as in searcher.max_trials=4"
    raise ConfigError([Complaint((), message, source=origin)], origin)


def _existing(here: Any, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield each way to read the first of `parts` as keys that exist: the keys, and how many parts they take."""
    yield (), 0
    if not isinstance(here, dict):
        return
    for taken in range(1, len(parts) + 1):
        key = ".".join(parts[:taken])
        if key in here:
            for keys, more in _existing(here[key], parts[taken:]):
                yield (key, *keys), taken + more


def _meant(data: Any, path: tuple[str, ...], origin: str) -> tuple[str, ...]:
    """Join those parts of a path that are one key in `data`. Raises ConfigError where several keys fit."""
    ways = list(_existing(data, path))
    longest = max(taken for _, taken in ways)
    fitting = [keys for keys, taken in ways if taken == longest]
    if len(fitting) > 1:
        spelt = " or ".join(".".join(f'"{key}"' if "." in key else key for key in keys) for keys in fitting)
        message = f"{'.'.join(path)} fits several keys; write {spelt}"
        raise ConfigError([Complaint((), message, source=origin)], origin)
    return (*fitting[0], *path[longest:])


def _set(document: Document, path: tuple[str, ...], value: Any, origin: str) -> None:
    here: Any = document.data
    walked: Path = ()
    path = _meant(here, path, origin)
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
