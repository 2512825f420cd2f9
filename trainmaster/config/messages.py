"""Errors of configuration files: each names the file, line and key, what is wrong, and the probable correction.

ConfigError    all errors of one file, as a list of `Complaint`
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Complaint:
    """One error in a configuration. Lines and columns count from 1; None for a key that is not in the file."""

    path: Path
    message: str
    line: int | None = None
    column: int | None = None
    suggestion: str | None = None
    source: str = ""

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line is not None else self.source
        where = [part for part in (place, key_path(self.path)) if part]
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return ": ".join([*where, self.message + hint])


class ConfigError(ValueError):
    """A configuration that cannot be used. `complaints` is never empty, and in the order of the file."""

    def __init__(self, complaints: Sequence[Complaint], source: str) -> None:
        self.complaints = list(complaints)
        self.source = source
        super().__init__("\n".join(map(str, complaints)))


def key_path(path: Path) -> str:
    """`("bind_mounts", 0, "host_path")` as `bind_mounts[0].host_path`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """Return the valid word of which `word` is a misspelling; None if it is of none."""
    folded = {candidate.lower(): candidate for candidate in valid}
    close = difflib.get_close_matches(word.lower(), folded, 5)
    return next((folded[one] for one in close if _is_misspelt(word.lower(), one)), None)


def _is_misspelt(word: str, valid: str) -> bool:
    """Whether each part of a word is similar to that of the valid one: default_cpu_pool and default_aux_pool are alike
    as a whole, and are two things."""
    ours, theirs = word.split("_"), valid.split("_")
    if len(ours) != len(theirs):
        return difflib.SequenceMatcher(None, "".join(ours), "".join(theirs)).ratio() > 0.8
    return all(difflib.SequenceMatcher(None, *pair).ratio() > 0.65 for pair in zip(ours, theirs, strict=True))


def in_words(value: Any) -> str:
    """Describe a value for an error message: its kind, and short values themselves."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {value!r:.80}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
    return f"a {type(value).__name__}"
