"""JSON (RFC 8259) by the part of `json` that is written in C.

`json` itself reads `re`, and with it `enum`: that costs every job 4 ms of CPU before it has begun.
"""

from __future__ import annotations

from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Optional

_BLANK = " \t\r\n"


def dumps(value: Any, *, allow_nan: bool = True) -> str:
    """`value` as ASCII text without blanks. Raises TypeError, and ValueError for NaN and infinities that are not
    allowed."""
    return "".join(_encoder(allow_nan)(value, 0))


def loads(text: str) -> Any:
    """The value that `text` holds. Raises ValueError."""
    text = text.strip(_BLANK)
    try:
        value, end = _scan(text, 0)
    except StopIteration as stop:
        raise ValueError("this is not JSON from character %s on" % stop.value) from None
    if end != len(text):
        raise ValueError("this is not JSON from character %d on" % end)
    return value


class _Reading:
    """What the scanner asks for."""

    strict = True
    object_hook: Optional[Any] = None
    object_pairs_hook: Optional[Any] = None
    array_hook: Optional[Any] = None
    parse_float = float
    parse_int = int
    parse_constant = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}.__getitem__


def _refuse(value: object) -> NoReturn:
    raise TypeError("a %s cannot be written as JSON" % type(value).__name__)


_scan = make_scanner(_Reading)  # type: ignore[arg-type]  # it only asks for these names


def _encoder(allow_nan: bool) -> Any:
    # Containers under way (for circles), for other types, of text, indent, separators, sort_keys, skipkeys.
    return make_encoder({}, _refuse, encode_basestring_ascii, None, ":", ",", False, False, allow_nan)
