"""Deadlines as people write them: `Fri 12:00`, `18:30`, `36h`, `2026-12-01 12:00`."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from trainmaster.config.messages import in_words
from trainmaster.config.shapes import wrong

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_SPAN = re.compile(r"(\d{1,5})\s*([mhd])", re.ASCII)
_WEEKDAY = re.compile(r"(?:([a-z]{3})[a-z]*\s+)?(\d{1,2}):(\d{2})", re.ASCII)


def read_deadline(text: str, now: dt.datetime) -> dt.datetime:
    """Return the moment that a text means.

    Args:
        text: a span from now (`90m`, `36h`, `3d`), a time of day (`18:30`: the next one), a weekday and a time
            (`Fri 12:00`: the next one), or a date and time as in ISO 8601, without a zone in that of `now`.
        now: with its zone.

    Raises:
        ValueError: it is none of these.
    """
    word = text.strip().lower()
    if span := _SPAN.fullmatch(word):
        return now + dt.timedelta(**{_UNITS[span[2]]: int(span[1])})
    if named := _WEEKDAY.fullmatch(word):
        day, hour, minute = named[1], int(named[2]), int(named[3])
        moment = now.replace(hour=hour, minute=minute, second=0, microsecond=0)  # ValueError: no such time
        period = 1 if day is None else 7
        if day is not None:
            moment += dt.timedelta(days=(_DAYS.index(day) - now.weekday()) % 7)  # ValueError: no such day
        return _of_the_clock(moment if moment > now else moment + dt.timedelta(days=period), now)
    moment = dt.datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else _of_the_clock(moment.replace(tzinfo=now.tzinfo), now)


def _of_the_clock(moment: dt.datetime, now: dt.datetime) -> dt.datetime:
    """Return the moment at which the clocks here show this time, where `now` is of here: between the two they may
    be put forward or back."""
    here = now.replace(tzinfo=None).astimezone().utcoffset() == now.utcoffset()
    return moment.replace(tzinfo=None).astimezone() if here else moment


def _deadline(value: Any) -> Any:
    now = dt.datetime.now().astimezone()
    if isinstance(value, dt.datetime):
        moment = value.astimezone()  # without a zone it is of here
    else:
        try:
            moment = read_deadline(value if isinstance(value, str) else "", now)
        except (ValueError, OverflowError):
            raise wrong(
                "a time is wanted, in quotes: a span from now ('36h'), a time of day ('18:30'), a weekday and a time "
                f"('Fri 12:00'), or a date and a time ('2026-12-01 12:00'), not {in_words(value)}"
            ) from None
    return moment.isoformat(timespec="seconds")


Deadline = Annotated[str, BeforeValidator(_deadline)]
"""As people write it; read once, when the experiment is created, it is a moment in ISO 8601 with its zone."""


def seconds_of(moment: str) -> float:
    """Return a moment in ISO 8601 as seconds since 1970."""
    return dt.datetime.fromisoformat(moment).timestamp()
