"""The regular expressions in the page's own modules, as they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import trainmaster.webui

APP = Path(trainmaster.webui.__path__[0]) / "app"
_BEFORE = frozenset("(,=:[!&|?{};+-*%<>~^")  # after these a slash begins an expression, else it divides
_WORDS = ("return", "typeof", "case", "of", "in")


def of_page() -> dict[str, list[str]]:
    """By module, relative to `app`; each as `/source/flags`."""
    found = {str(path.relative_to(APP)): list(expressions(path.read_text())) for path in sorted(APP.rglob("*.js"))}
    return {name: entries for name, entries in found.items() if entries}


def expressions(source: str) -> Iterator[str]:
    """The literals of one module."""
    yield from _code(source, 0, "")[1]


def _code(source: str, at: int, end: str) -> tuple[int, list[str]]:
    """Reads from a place up to the bracket that ends it; returns where it ended, and what it found."""
    found: list[str] = []
    before = ""  # the last characters of code that are no blanks
    while at < len(source):
        here = source[at]
        if end and here == end:
            return at + 1, found
        if source.startswith("//", at):
            at = _find(source, "\n", at)
        elif source.startswith("/*", at):
            at = _find(source, "*/", at) + 2
        elif here in "\"'":
            at, before = _string(source, at), '"'
        elif here == "`":
            at, inner = _template(source, at + 1)
            found += inner
            before = '"'
        elif here == "{":
            at, inner = _code(source, at + 1, "}")
            found += inner
            before = "}"
        elif here == "/" and _begins(before):
            stop = _literal(source, at)
            found.append(source[at:stop])
            at, before = stop, "/"
        else:
            if not here.isspace():
                before = (before + here)[-10:]
            elif before[-1:].isalnum():
                before += " "
            at += 1
    return at, found


def _begins(before: str) -> bool:
    bare = before.rstrip()
    if not bare or bare[-1] in _BEFORE:
        return True
    return any(bare.endswith(word) and not (bare[: -len(word)][-1:].isalnum()) for word in _WORDS)


def _find(source: str, word: str, at: int) -> int:
    found = source.find(word, at)
    return len(source) if found < 0 else found


def _string(source: str, at: int) -> int:
    quote, at = source[at], at + 1
    while source[at] != quote:
        at += 2 if source[at] == "\\" else 1
    return at + 1


def _template(source: str, at: int) -> tuple[int, list[str]]:
    found: list[str] = []
    while source[at] != "`":
        if source.startswith("${", at):
            at, inner = _code(source, at + 2, "}")
            found += inner
        else:
            at += 2 if source[at] == "\\" else 1
    return at + 1, found


def _literal(source: str, at: int) -> int:
    at += 1
    in_class = False
    while source[at] != "/" or in_class:
        if source[at] == "\\":
            at += 1
        elif source[at] == "[":
            in_class = True
        elif source[at] == "]":
            in_class = False
        at += 1
    at += 1
    while at < len(source) and source[at].isalpha():
        at += 1
    return at
