"""Parts of requests to a batch scheduler: the user's arguments, chunks of job ids, an even spread over nodes. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
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


CHUNK = 100  # job ids per command; a line of 100 ids is far below any limit


def chunks(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the ids in chunks, one for each command."""
    return (job_ids[at : at + CHUNK] for at in range(0, len(job_ids), CHUNK))


def even_share(slots: int, node_size: int) -> int:
    """Return the slots per node that spread `slots` evenly over as few nodes as possible: the largest divisor that a
    node of `node_size` slots can hold."""
    return next(each for each in range(min(slots, node_size), 0, -1) if slots % each == 0)
