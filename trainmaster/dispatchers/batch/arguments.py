"""Parses the arguments for the submit command that a user gives in an experiment."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


class BadOption(ValueError):
    """An argument that is not allowed, or has a wrong value. The message is for the user."""


@dataclass(frozen=True)
class ArgumentKind:
    """Values that an option takes: `pattern` must match in full; `words` describes them to the user."""

    pattern: str
    words: str
    optional: bool = False  # may be given without a value


_ADDRESS = r"[A-Za-z0-9_%+][A-Za-z0-9_.%+=/@!#~-]{0,253}"
# The first character keeps an address from being an option of the site's mail program.
MAIL_ADDRESSES = ArgumentKind(rf"{_ADDRESS}(, ?{_ADDRESS}){{0,31}}", "mail addresses separated by commas")


def split(argument: str, scheduler: str) -> list[str]:
    """Split one entry of the list as a shell would; messages name the `scheduler`. Raises BadOption."""
    if any(ord(character) < 32 or ord(character) == 127 for character in argument):
        raise BadOption(f"{scheduler} option {argument!r} holds a control character; write each option on one line")
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise BadOption(f"{scheduler} option {argument!r} has unbalanced quotes: {error}") from None
