"""Renders the `*.j2` files of this folder. Every value passes through one quoting filter, `sh`.

Values are data: any value arrives in the script as literal words. A test walks the syntax tree of every template and
fails for an output without the filter. Control characters are refused, because a line end inside a word could add a
directive for the scheduler (`#SBATCH` inside a string has effect).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Undefined

FOLDER = Path(__file__).parent


class ControlCharacter(ValueError):
    """A value for a script contains a control character such as a line end."""


def shell_words(value: object) -> str:
    """Quote one value as one shell word, or a list or tuple of values as that many words.

    Raises ControlCharacter, and TypeError for anything but str, int, Path and sequences of them.
    """
    if isinstance(value, list | tuple):
        return " ".join(shell_words(item) for item in value)
    if isinstance(value, Undefined):
        str(value)  # raises jinja2.UndefinedError, which names the value
    if isinstance(value, bool) or not isinstance(value, str | int | Path):
        raise TypeError(f"a script value must be text, a whole number or a list of them, not {value!r}")
    text = str(value)
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ControlCharacter(f"a script value may not hold control characters: {text!r}")
    return shlex.quote(text)


def render(template: str, **values: object) -> str:
    """Return the text of a script. Raises ControlCharacter, and jinja2.UndefinedError for a missing value."""
    return environment().get_template(template).render(values)


def template_names() -> Iterable[str]:
    """Names of all templates of this folder."""
    return sorted(path.name for path in FOLDER.glob("*.j2"))


@cache
def environment() -> Environment:
    """Return the Jinja environment; tests walk its templates with it."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - the output is shell, and `sh` quotes every value
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["sh"] = shell_words
    return made
