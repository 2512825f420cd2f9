"""Regular expressions that users write and the master runs over every log line.

RE2, which Determined uses too: its time grows with the line only, whatever the pattern; Python's own module can be kept
busy for hours by a pattern of ten characters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # on standard error, by the library itself
_OPTIONS.never_capture = True


class BadPattern(ValueError):
    """What is wrong with a pattern."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """Its `search(text)` says whether a line matches. Raises BadPattern."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        why = error.args[0] if error.args else "it cannot be read"
        raise BadPattern(why.decode(errors="replace") if isinstance(why, bytes) else str(why)) from None
