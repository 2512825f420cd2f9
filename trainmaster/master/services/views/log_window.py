"""A few lines of a long log: around a line, a time or a share of it, with their position among all that fit a filter,
and the matches of a search."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import task_logs
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.logs.log_store import LogFilter, LogStore, StoredLine, conditions
from trainmaster.master.services.views.log_outline import Outline, Outlines, Part

TRACEBACK = "Traceback (most recent call last)"  # Python prints it without a level
_FIRST_TIME = dt.timedelta(microseconds=1)


class Find(enum.Enum):
    """What is looked for: a match of the search after or before a line, or the log's first error."""

    NEXT = "next"
    PREVIOUS = "previous"
    ERROR = "error"


@dataclass(frozen=True)
class LogPlace:
    """Where a window lies: the first of these that is set, else at the log's end. `find` begins at `line_id`, or at
    the log's beginning or end; where it finds nothing more it continues from the other end."""

    find: Find | None = None
    line_id: int | None = None
    at: dt.datetime | None = None
    position: int | None = None
    share: float | None = None


@dataclass(frozen=True)
class Bins:
    """Counts of lines by position: each bin holds about as many lines as every other one."""

    lines: Sequence[int]
    warnings: Sequence[int]
    errors: Sequence[int]
    matches: Sequence[int] | None


@dataclass(frozen=True)
class LogExcerpt:
    """`position`: of the first line, counted from 0. `focus`: the line that was asked for; None at the end, or where
    nothing was found. `match`: the number of this match, from 1. `newest`: the last line that was counted."""

    lines: Sequence[StoredLine]
    position: int
    total: int
    newest: int
    began: dt.datetime | None
    focus: int | None
    match: int | None
    matches: int | None
    matched: Sequence[int]
    bins: Bins | None


class LogWindows(BoundService):
    """Windows of long logs, and searches in them."""

    def __init__(self, master: MasterContext, outlines: Outlines | None = None) -> None:
        super().__init__(master)
        self._outlines = outlines or Outlines()
        self._log_store = LogStore(master)

    def read(
        self,
        task_id: str,
        where: LogFilter,
        place: LogPlace,
        *,
        before: int,
        after: int,
        bins: int,
        only_matches: bool = False,
    ) -> LogExcerpt:
        """Return the lines around a place among those that fit `where`. Its search text marks lines; with
        `only_matches` it selects them. Matches are counted where `bins` are wanted: counting reads more than
        finding."""
        shown = where if only_matches else replace(where, search_text="")
        searching = bool(where.search_text)
        with self._store.transaction() as session:
            outline = self._outlines.read(session, task_id, shown)
            matches = self._outlines.read(session, task_id, where) if searching and bins else None
            began = session.scalar(select(task_logs.c.at).where(task_logs.c.id == outline.began))
        focus = self._focus(task_id, shown, where, place, outline)
        last = outline.newest
        above: list[StoredLine] = []
        below: list[StoredLine] = []
        if before:
            upto = last if focus is None else focus - 1
            above = self._log_store.read(task_id, shown, upto_id=upto, limit=before, newest_first=True)[::-1]
        if after and focus is not None:
            below = self._log_store.read(task_id, shown, after_id=focus - 1, upto_id=last, limit=after)
        lines = above + below
        with self._store.transaction() as session:
            reached = outline.total if focus is None else _position(session, task_id, shown, outline, focus)
            matched = _matched(session, task_id, where, lines) if searching else []
            match = None
            if matches is not None and focus is not None and (focus in matched or (place.find and not after)):
                match = _position(session, task_id, where, matches, focus) + 1
        return LogExcerpt(
            lines=lines,
            position=reached - len(above),
            total=outline.total,
            newest=last,
            began=began,
            focus=focus,
            match=match,
            matches=None if matches is None else matches.total,
            matched=matched,
            bins=_bins(outline, matches, bins) if bins else None,
        )

    # -- the place ----------------------------------------------------------------------------------------------------
    def _focus(self, task_id: str, shown: LogFilter, where: LogFilter, place: LogPlace, outline: Outline) -> int | None:
        """Return the id of the line that a window is around; None: it lies at the end."""
        if place.find is Find.ERROR:
            return self._first_error(task_id, shown, outline.newest)
        if place.find is not None:
            return self._match(task_id, where, place.find, place.line_id, outline.newest)
        if place.line_id is not None:
            return self._first(task_id, shown, place.line_id - 1, outline.newest)
        if place.at is not None:
            since = place.at - _FIRST_TIME
            if shown.after is not None:
                since = max(since, shown.after)
            return self._first(task_id, replace(shown, after=since), 0, outline.newest)
        position = place.position
        if place.share is not None and position is None:
            position = round(place.share * (outline.total - 1))
        if position is None or outline.total == 0:
            return None
        with self._store.transaction() as session:
            return _id_at(session, task_id, shown, outline, max(0, min(position, outline.total - 1)))

    def _first(self, task_id: str, where: LogFilter, after: int, upto: int) -> int | None:
        page = self._log_store.read(task_id, where, after_id=after, upto_id=upto, limit=1)
        return page[0].id if page else None

    def _last(self, task_id: str, where: LogFilter, upto: int) -> int | None:
        page = self._log_store.read(task_id, where, upto_id=upto, limit=1, newest_first=True)
        return page[0].id if page else None

    def _match(self, task_id: str, where: LogFilter, way: Find, line_id: int | None, newest: int) -> int | None:
        if way is Find.NEXT:
            match = None if line_id is None else self._first(task_id, where, line_id, newest)
            return self._first(task_id, where, 0, newest) if match is None else match
        match = None if line_id is None else self._last(task_id, where, line_id - 1)
        return self._last(task_id, where, newest) if match is None else match

    def _first_error(self, task_id: str, shown: LogFilter, newest: int) -> int | None:
        """Return the first line of level ERROR or above, or the first traceback if it comes earlier."""
        levels = [level for level in ("ERROR", "CRITICAL") if not shown.levels or level in shown.levels]
        error = self._first(task_id, replace(shown, levels=levels), 0, newest) if levels else None
        traceback = None
        if not shown.search_text:
            printed = replace(shown, search_text=TRACEBACK, regex=False)
            traceback = self._first(task_id, printed, 0, newest if error is None else error)
        return min((one for one in (error, traceback) if one is not None), default=None)


# -- positions ----------------------------------------------------------------------------------------------------


def _id_at(session: Session, task_id: str, where: LogFilter, outline: Outline, position: int) -> int | None:
    part, skipped = outline.part_of(position)
    t = task_logs.c
    query = select(t.id).where(*_within(task_id, where, part)).order_by(t.id).offset(skipped).limit(1)
    return session.scalar(query)


def _position(session: Session, task_id: str, where: LogFilter, outline: Outline, line_id: int) -> int:
    count, part = outline.before(line_id)
    if part is None:
        return count
    query = select(func.count()).where(*_within(task_id, where, part), task_logs.c.id < line_id)
    return count + (session.scalar(query) or 0)


def _within(task_id: str, where: LogFilter, part: Part) -> list[ColumnElement[bool]]:
    t = task_logs.c
    return [t.task_id == task_id, t.id >= part.first, t.id <= part.last, *conditions(where)[0]]


def _matched(session: Session, task_id: str, where: LogFilter, lines: Sequence[StoredLine]) -> list[int]:
    """Those of the lines that the search finds."""
    if not lines:
        return []
    t = task_logs.c
    of_lines, _ = conditions(where)
    within = (t.task_id == task_id, t.id >= lines[0].id, t.id <= lines[-1].id)
    return list(session.scalars(select(t.id).where(*within, *of_lines).order_by(t.id)))


def _bins(outline: Outline, matches: Outline | None, size: int) -> Bins:
    """`size` counts of each kind, by position."""
    counts = [[0] * size for _ in range(4)]
    total = max(1, outline.total)
    start = 0
    for part in outline.parts():
        at = min(size - 1, (start + (part.lines - 1) // 2) * size // total)
        for kind, value in zip(counts, (part.lines, part.warnings, part.errors), strict=False):
            kind[at] += value
        start += part.lines
    for part in matches.parts() if matches else ():
        middle = part.first + (part.last - part.first) // 2
        at = min(size - 1, outline.roughly(middle) * size // total)
        counts[3][at] += part.lines
    return Bins(counts[0], counts[1], counts[2], counts[3] if matches else None)
