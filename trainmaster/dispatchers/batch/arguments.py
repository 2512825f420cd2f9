"""The user's further words for the submit command: how they are taken apart, and what may be wrong with them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


class BadOption(ValueError):
    """An argument that may not be given, or has a wrong value. The message is for the user."""


@dataclass(frozen=True)
class ArgumentKind:
    """What values an option takes: `pattern` must match in full; `words` says it to the user."""

    pattern: str
    words: str
    optional: bool = False  # may stand without a value


def split(argument: str, scheduler: str) -> list[str]:
    """One entry of the list as a shell would split it; `scheduler` is whose option it is. Raises BadOption."""
    if any(ord(character) < 32 or ord(character) == 127 for character in argument):
        raise BadOption(f"{scheduler} option {argument!r} holds a control character; write each option on one line")
    try:
        return shlex.split(argument)
    except ValueError as error:
        raise BadOption(f"{scheduler} option {argument!r} is not well quoted: {error}") from None
