"""Reads the one line of text that filters a list of experiments: `state:running val_loss<0.3 user:me "two words"`.

A line is a list of terms; all of them must hold. A term is a word, which is looked for in names and labels, or
`KEY:VALUE`, `KEY<NUMBER` and the like. Values with commas are alternatives; a minus before a term turns it round; what
has spaces or signs stands in quotation marks. `app/lib/filter.js` of the web page splits the same line into its terms.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.config.limits import Limits
from trainmaster.master.services.errors import Invalid

LONGEST = 4000  # characters
SIGNS = (":", "<", "<=", ">", ">=", "=", "!=")
_TERM = re.compile(r'(-?)(?:("[^"]+"|[^\s"<>=:!]+)(<=|>=|!=|[:<>=]))?((?:"[^"]*"|[^\s"])*)')
_VALUE = re.compile(r'"[^"]*"|[^,"]+')
_SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {"k": 1e3, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zA-Z%]*)")


@dataclass(frozen=True)
class Term:
    """One condition. `key` is empty for a mere word, `sign` one of SIGNS; any of `values` will do."""

    key: str
    sign: str
    values: Sequence[str]
    negated: bool = False


def terms(limits: Limits, line: str) -> list[Term]:
    """Return the terms of a line. Raises Invalid with a sentence about the line."""
    if len(line) > LONGEST:
        raise Invalid(f"filter: it has {len(line)} characters, more than the {LONGEST} that are allowed.")
    if line.count('"') % 2:
        raise Invalid("filter: a quotation mark is not closed.")
    parsed = []
    at = 0
    while (at := _past_spaces(line, at)) < len(line):
        match = _TERM.match(line, at)
        assert match
        minus, key, sign, rest = match.groups()
        if match.end() == at or (not rest and not sign):
            raise Invalid(f"filter: {line[at : at + 20]!r} is no term.")
        values = [one.strip('"') for one in _VALUE.findall(rest)]
        if not values:
            raise Invalid(f"filter: {match.group()!r} needs a value after its {sign}.")
        parsed.append(
            Term((key or "").strip('"'), sign or ":", values if sign else [rest.replace('"', "")], bool(minus))
        )
        at = match.end()
    if excess := limits.over("conditions", sum(len(one.values) for one in parsed), "filter: it has {} values"):
        raise Invalid(excess)
    return parsed


def _past_spaces(line: str, at: int) -> int:
    while at < len(line) and line[at].isspace():
        at += 1
    return at


def number(key: str, text: str) -> float:
    """Return a number, as 0.3, 50%, 2h in seconds or 3GB in bytes. Raises Invalid."""
    match = _NUMBER.fullmatch(text)
    if match is not None:
        value, unit = float(match[1]), match[2]
        if not unit:
            return value
        if unit == "%":
            return value / 100
        if (factor := _SECONDS.get(unit) or _BYTES.get(unit.lower())) is not None:
            return value * factor
    raise Invalid(f"filter: {key} is compared with a number, not with {text!r}.")


def is_number(text: str) -> bool:
    match = _NUMBER.fullmatch(text)
    return match is not None and not match[2]


def moment(key: str, text: str, now: dt.datetime) -> tuple[dt.datetime, bool]:
    """Return a date, or an age as 7d; True for an age, whose comparison goes the other way round. Raises Invalid."""
    match = _NUMBER.fullmatch(text)
    try:
        if match is not None and match[2] in _SECONDS:
            return now - dt.timedelta(seconds=float(match[1]) * _SECONDS[match[2]]), True
        time = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise Invalid(f"filter: {key} is compared with a date as 2026-01-31 or an age as 7d, not {text!r}.") from None
    return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)), False
