"""Compiles users' regular expressions, which the master runs over every log line.

It uses RE2, as Determined does: RE2's time is linear in the length of the line for every pattern, whereas a pattern of
ten characters can keep Python's own module busy for hours.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # on standard error, by the library itself
_OPTIONS.never_capture = True


class BadPattern(ValueError):
    """A pattern that cannot be compiled; the message says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """Compile a pattern; its `search(text)` returns whether a line matches. Raises BadPattern."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        why = error.args[0] if error.args else "it cannot be read"
        raise BadPattern(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
