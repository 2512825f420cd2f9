"""Counts of a log's lines by ranges of ids: they lead from a line's position to its id and back, and make the histogram
beside a log.

Ids of a task's lines ascend but have gaps. Lines never change, and those of one task become visible in the order of
their ids; so a count stays valid, and an outline that was read once is only continued with what has come since.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from sqlalchemy import ARRAY, BigInteger, ColumnElement, cast, func, literal, select
from sqlalchemy.orm import Session

from trainmaster.master.db.compacted import log_blocks as blocks
from trainmaster.master.db.tables import task_logs
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.logs.log_store import LEVELS, LogFilter, conditions

WARNING, ERROR = LEVELS.index("WARNING"), LEVELS.index("ERROR")
FINE = 1000  # parts into which a log is counted at least, where it has so many lines
MOST_PARTS = 4 * FINE
MOST_KEPT = 64  # outlines: 160 KB each at most


class Part(NamedTuple):
    """Lines that fit a filter, between two ids that both belong to them."""

    first: int
    last: int
    lines: int
    warnings: int
    errors: int


@dataclass
class Outline:
    """The parts of a log, in order. `began`: the task's first line when it was read; `newest`: the id up to which
    the task's lines are counted."""

    began: int = 0
    newest: int = 0
    firsts: array[int] = field(default_factory=lambda: array("q"))
    lasts: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("q"))
    warnings: array[int] = field(default_factory=lambda: array("q"))
    errors: array[int] = field(default_factory=lambda: array("q"))
    ends: Sequence[int] = ()  # the position behind each part

    @property
    def total(self) -> int:
        return self.ends[-1] if self.ends else 0

    def parts(self) -> Iterator[Part]:
        return map(Part, self.firsts, self.lasts, self.lines, self.warnings, self.errors)

    def part_of(self, position: int) -> tuple[Part, int]:
        """Return the part that holds the line at a position, and how many of its lines come before it."""
        at = bisect_right(self.ends, position)
        return self._part(at), position - (self.ends[at] - self.lines[at])

    def before(self, line_id: int) -> tuple[int, Part | None]:
        """How many lines lie in parts that end before an id, and the part that has lines on both sides of it."""
        at = bisect_left(self.lasts, line_id)
        count = self.ends[at - 1] if at else 0
        if at == len(self.lasts) or self.firsts[at] >= line_id:
            return count, None
        return count, self._part(at)

    def roughly(self, line_id: int) -> int:
        """Return the position of an id, as if the ids of a part had no gaps."""
        count, part = self.before(line_id)
        if part is None:
            return count
        return count + part.lines * (line_id - part.first) // (part.last - part.first + 1)

    def continued(self, newest: int, more: Sequence[Part]) -> Outline:
        """With what has come since. Parts that have become small beside the whole are joined."""
        parts = [*self.parts(), *more]
        small = max(1, sum(part.lines for part in parts) // FINE)
        joined = _joined(parts, small)
        while len(joined) > MOST_PARTS:
            small *= 2
            joined = _joined(joined, small)
        columns = zip(*joined, strict=True) if joined else [()] * len(Part._fields)
        firsts, lasts, lines, warnings, errors = (array("q", values) for values in columns)
        return Outline(self.began, newest, firsts, lasts, lines, warnings, errors, list(accumulate(lines)))

    def _part(self, at: int) -> Part:
        return Part(self.firsts[at], self.lasts[at], self.lines[at], self.warnings[at], self.errors[at])


def _joined(parts: Sequence[Part], small: int) -> list[Part]:
    parts_joined: list[Part] = []
    for part in parts:
        if parts_joined and parts_joined[-1].lines + part.lines <= small:
            last = parts_joined.pop()
            part = Part(
                last.first,
                part.last,
                last.lines + part.lines,
                last.warnings + part.warnings,
                last.errors + part.errors,
            )
        parts_joined.append(part)
    return parts_joined


class Outlines:
    """The outlines that were asked for lately, for a process's threads."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Outline] = OrderedDict()

    def read(self, session: Session, task_id: str, where: LogFilter) -> Outline:
        """Return the outline of a task's lines that fit `where`, up to the newest line that the session sees."""
        t = task_logs.c
        ends = select(func.min(t.id), func.max(t.id)).where(t.task_id == task_id)
        began, newest = session.execute(ends).one()
        key = (task_id, _key(where))
        with self._lock:
            known = self._kept.get(key)
        # The log may have been removed, and begun again.
        if began is None or known is None or known.began != began:
            known = Outline(began or 0)
        if began is not None and newest > known.newest:
            known = known.continued(newest, _counted(session, task_id, where, known.newest, newest))
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.began != known.began or kept.newest <= known.newest:
                self._kept[key] = known
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return known


def _key(where: LogFilter) -> Hashable:
    return tuple(value if isinstance(value, Hashable) else tuple(value) for value in vars(where).values())


class _Range(NamedTuple):
    """Ids above `after`, up to `last`, to be counted in `pieces` alike in ids. `plain`: without warnings or errors."""

    after: int
    last: int
    pieces: int
    plain: bool


def _counted(session: Session, task_id: str, where: LogFilter, after: int, newest: int) -> list[Part]:
    """Blocks show which ranges have lines at all that fit; and without a filter, where only an index needs reading."""
    of_lines, of_blocks = conditions(where)
    ranges = _ranges(session, task_id, of_blocks, max(after, where.after_id), newest)
    counted = []
    for plain in (False, True):
        some = [one for one in ranges if (one.plain and not of_lines) == plain]
        if some:
            counted += _parts(session, task_id, of_lines, some, plain)
    return sorted(counted)


def _ranges(
    session: Session, task_id: str, of_blocks: Sequence[ColumnElement[bool]], after: int, newest: int
) -> list[_Range]:
    b = blocks.c
    upto = min(log_blocks.upto(session, task_id), newest)
    rows = []
    if upto > after:
        query = select(b.first_id, b.last_id, b.levels).where(b.task_id == task_id, b.last_id > after)
        rows = list(session.execute(query.where(b.first_id <= upto, *of_blocks).order_by(b.last_id)))
    pieces = max(1, min(64, FINE // max(1, len(rows))))
    ranges = []
    for row in rows:
        first, last = max(row.first_id - 1, after), min(row.last_id, newest)
        ranges.append(_Range(first, last, min(pieces, last - first), row.levels < 1 << WARNING))
    behind = max(after, upto)
    if newest > behind:
        ranges.append(_Range(behind, newest, min(FINE, newest - behind), plain=False))
    return ranges


def _parts(
    session: Session, task_id: str, of_lines: Sequence[ColumnElement[bool]], ranges: Sequence[_Range], plain: bool
) -> list[Part]:
    t = task_logs.c
    columns = [[getattr(one, name) for one in ranges] for name in ("after", "last", "pieces")]
    asked = func.unnest(*(cast(literal(column, ARRAY(BigInteger)), ARRAY(BigInteger)) for column in columns))
    asked_for = asked.table_valued("after", "last", "pieces").render_derived("asked")
    a = asked_for.c
    none = literal(0, BigInteger)
    counts = select(
        func.min(t.id).label("first"),
        func.max(t.id).label("last"),
        func.count().label("lines"),
        (none if plain else func.count().filter(t.level == WARNING)).label("warnings"),
        (none if plain else func.count().filter(t.level >= ERROR)).label("errors"),
    ).where(t.task_id == task_id, t.id > a.after, t.id <= a.last, *of_lines)
    if any(one.pieces > 1 for one in ranges):
        counts = counts.group_by((t.id - a.after - 1) * a.pieces // (a.last - a.after))
    part = counts.lateral("part")
    query = select(part).select_from(asked_for.join(part, literal(True))).where(part.c.lines > 0)
    return [Part(*row) for row in session.execute(query)]
