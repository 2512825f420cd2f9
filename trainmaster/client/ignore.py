"""Patterns of `.detignore`: which files are not sent, in the syntax of gitignore(5)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALWAYS = ("__pycache__/", "*.py[co]", "*$py.class", ".git/", ".vscode/", ".idea/", ".mypy_cache/", ".DS_Store")


@dataclass(frozen=True)
class IgnoreRule:
    """One line. `parts` is the pattern split at its slashes, None for `**`."""

    parts: tuple[re.Pattern[str] | None, ...]
    negated: bool
    folders_only: bool
    anchored: bool

    def matches(self, path: Sequence[str], is_folder: bool) -> bool:
        """Whether the pattern matches a path, given by its parts."""
        if self.folders_only and not is_folder:
            return False
        return _match(path if self.anchored else path[-1:], self.parts)


def parse(lines: Iterable[str]) -> list[IgnoreRule]:
    """Return the rules of a file, in its order."""
    rules = []
    for raw in lines:
        line = _without_trailing_spaces(raw.rstrip("\r\n"))
        if line.startswith("#"):
            continue
        negated = line.startswith("!")
        line = line[1:] if negated else line
        folders_only = line.endswith("/")
        line = line[:-1] if folders_only else line
        if line:
            parts = [part for part in line.split("/") if part]
            compiled = tuple(None if part == "**" else re.compile(_expression(part)) for part in parts)
            rules.append(IgnoreRule(compiled, negated, folders_only, "/" in line))
    return rules


def ignored(path: str, is_folder: bool, rules: Sequence[IgnoreRule]) -> bool:
    """Whether the last matching rule excludes a path. `path` is relative, with slashes; callers check its folders
    first."""
    parts = path.split("/")
    is_ignored = False
    for rule in rules:
        if rule.matches(parts, is_folder):
            is_ignored = not rule.negated
    return is_ignored


def _match(path: Sequence[str], pattern: Sequence[re.Pattern[str] | None]) -> bool:
    if not pattern:
        return not path
    first, rest = pattern[0], pattern[1:]
    if first is not None:
        return bool(path) and first.fullmatch(path[0]) is not None and _match(path[1:], rest)
    if not rest:
        return bool(path)  # `a/**` is everything in a, and not a itself
    return any(_match(path[i:], rest) for i in range(len(path) + 1))


def _expression(part: str) -> str:
    """Return the glob of one part as a regular expression."""
    expression, i = "", 0
    while i < len(part):
        char = part[i]
        i += 1
        if char == "*":
            expression += ".*"
        elif char == "?":
            expression += "."
        elif char == "\\" and i < len(part):
            expression += re.escape(part[i])
            i += 1
        elif char == "[" and (end := _end_of_set(part, i)) is not None:
            inside = part[i:end]
            negated = inside[0] in "!^"
            inside = inside[1:] if negated else inside
            escaped = re.sub(r"([\[\]&~|^])", r"\\\1", re.sub(r"\\(?![\\\]\-^!])", r"\\\\", inside))
            expression += f"[{'^' if negated else ''}{escaped}]"
            i = end + 1
        else:
            expression += re.escape(char)
    return f"(?s:{expression})"


def _end_of_set(part: str, start: int) -> int | None:
    """Return the index of the `]` of a set that begins at `start`; None if there is none, so that `[` is an ordinary
    character."""
    i = start + 1 if part[start : start + 1] in ("!", "^") else start
    end = part.find("]", i + 1)
    return end if end != -1 else None


def _without_trailing_spaces(line: str) -> str:
    bare = line.rstrip(" ")
    return bare + " " if bare.endswith("\\") and bare != line else bare
