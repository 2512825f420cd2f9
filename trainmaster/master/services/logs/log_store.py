"""Stores task logs in batches, reads them forwards or backwards, and follows them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, RowMapping, Text, bindparam, func, insert, literal, select
from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from trainmaster.config.limits import Limits
from trainmaster.config.patterns import BadPattern, compiled
from trainmaster.master.db.compacted import log_blocks as blocks
from trainmaster.master.db.tables import task_logs
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.logs.log_blocks import Span
from trainmaster.master.services.store import wake

LEVELS = ("UNSPECIFIED", "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
NO_RANK = -1  # among the ranks of a filter: lines without a rank
LOCK_CLASS = 7302
_LAST_ID = 2**63 - 1
LONGEST_WORD = 1000  # characters
MAX_LINE = 64 * 1024  # characters; a longer line is cut, with a note

_NUL = "\ufdd0"  # stands for NUL (Unicode 23.7, noncharacters: never interchanged)
_LAST = 1000  # other lines that may lie between a batch and its repetition


@dataclass(frozen=True)
class NewLogLine:
    """A log line on its way in."""

    log: str
    level: str = "INFO"
    at: dt.datetime | None = None
    rank: int | None = None
    agent_id: str | None = None
    container_id: str | None = None
    stdtype: str | None = None
    source: str = "task"


@dataclass(frozen=True)
class StoredLine:
    id: int
    task_id: str
    allocation_id: str | None
    at: dt.datetime
    level: str
    rank_id: int | None
    agent_id: str | None
    container_id: str | None
    stdtype: str | None
    source: str
    log: str


@dataclass(frozen=True)
class LogFilter:
    """A filter of a task's lines. Empty sequences do not restrict; `after_id`: only lines with a higher id."""

    allocation_ids: Sequence[str] = ()
    agent_ids: Sequence[str] = ()
    container_ids: Sequence[str] = ()
    rank_ids: Sequence[int] = ()
    levels: Sequence[str] = ()
    stdtypes: Sequence[str] = ()
    sources: Sequence[str] = ()
    before: dt.datetime | None = None
    after: dt.datetime | None = None
    search_text: str = ""
    regex: bool = False
    after_id: int = 0


def append(session: Session, task_id: str, allocation_id: str | None, lines: Iterable[NewLogLine]) -> None:
    """Add lines in the order given; followers of the task are woken at commit.

    Call it last in a transaction. Appends to one task wait for each other until commit: ids must become visible in
    order, or a follower by id would miss the lines of the slower of two writers.
    """
    arrived = now()
    _store(session, [_row(task_id, allocation_id, line, arrived) for line in lines])


def came_before(session: Session, task_id: str, lines: Sequence[NewLogLine]) -> bool:
    """Whether the task's last lines hold all of these already: Determined's clients send a batch again when its answer
    is lost. Only lines with a time to the microsecond can be recognized."""
    if not lines or any(line.at is None or line.at.microsecond % 1000 == 0 for line in lines):
        return False
    query = select(task_logs.c.at, task_logs.c.rank_id, task_logs.c.stdtype, task_logs.c.log)
    query = query.where(task_logs.c.task_id == task_id).order_by(task_logs.c.id.desc()).limit(len(lines) + _LAST)
    known = set(session.execute(query))
    return all((line.at, line.rank, line.stdtype, _clean(line.log)) in known for line in lines)


def _row(task_id: str, allocation_id: str | None, line: NewLogLine, arrived: dt.datetime) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "allocation_id": allocation_id,
        "at": line.at or arrived,
        "level": LEVELS.index(line.level) if line.level in LEVELS else LEVELS.index("INFO"),
        "rank_id": line.rank,
        "agent_id": _word(line.agent_id),
        "container_id": _word(line.container_id),
        "stdtype": _word(line.stdtype),
        "source": _word(line.source),
        "log": _clean(line.log),
    }


def _word(text: str | None) -> str | None:
    """Return what is said of a line, cut where it is longer than a name."""
    return None if text is None else _clean(str(text)[:LONGEST_WORD])


def _store(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Three statements, however many rows and tasks. Locks are taken in the order of their keys, by everybody."""
    if not rows:
        return
    session.flush()
    tasks = sorted({row["task_id"] for row in rows})
    session.execute(_LOCKS, {"tasks": tasks})
    session.execute(insert(task_logs), rows)
    wake(session, *(f"task:{task_id}" for task_id in tasks))


_keys = select(func.hashtext(func.unnest(bindparam("tasks", type_=ARRAY(Text)))).label("key")).distinct().subquery()
_ordered = select(_keys.c.key).order_by(_keys.c.key).subquery()
_LOCKS = select(func.pg_advisory_xact_lock(LOCK_CLASS, _ordered.c.key))


def say(session: Session, task_id: str, text: str, level: str = "INFO", allocation_id: str | None = None) -> None:
    """Write a line of the master's own to a task's log."""
    append(session, task_id, allocation_id, [NewLogLine(text, level, source="master")])


class Notes:
    """Lines of the master's own, held back until the end of a transaction: writing to a task's log takes a lock that
    must be the last one, and always in the same order."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, str | None, NewLogLine]] = []

    def say(self, task_id: str, text: str, level: str = "INFO", allocation_id: str | None = None) -> None:
        self.add(task_id, allocation_id, [NewLogLine(text, level, source="master")])

    def add(self, task_id: str, allocation_id: str | None, lines: Iterable[NewLogLine]) -> None:
        """Add other lines, to be written with them."""
        self._lines += ((task_id, allocation_id, line) for line in lines)

    def write(self, session: Session) -> None:
        arrived = now()
        _store(session, [_row(task_id, allocation_id, line, arrived) for task_id, allocation_id, line in self._lines])
        self._lines.clear()


def stored(text: str) -> str:
    """Encode a text for the database, whose texts hold no NUL: a code point that Unicode reserves for programs'
    own use replaces it. `shown` is the inverse."""
    return text.replace(_NUL, "\ufffd").replace("\0", _NUL)


def shown(text: str) -> str:
    """Return the original of a text from `stored`."""
    return text.replace(_NUL, "\0")


class LogStore(BoundService):
    """Task logs: lines by filter, and the values to filter by."""

    def check(self, limits: Limits, where: LogFilter) -> None:
        """Raise Invalid for a regular expression that is too long, that the database does not understand, or whose
        search may take for ever: with back-references PostgreSQL tries all combinations."""
        if excess := limits.over("pattern", len(where.search_text), "The text that is searched for has {} characters"):
            raise Invalid(excess)
        for name, wanted in (
            ("allocation", where.allocation_ids),
            ("agent", where.agent_ids),
            ("rank", where.rank_ids),
        ):
            if excess := limits.over("conditions", len(wanted), f"The filter names {{}} {name}s"):
                raise Invalid(excess)
        if where.regex and where.search_text:
            _check_pattern(where.search_text)
            with self._store.transaction() as session:
                try:
                    session.execute(select(literal("").regexp_match(where.search_text)))
                except DataError as error:
                    why = str(error.orig).partition("\n")[0].rpartition(": ")[2]
                    raise Invalid(f"{where.search_text!r} is not a regular expression: {why}.") from None

    def read(
        self,
        task_id: str,
        where: LogFilter,
        *,
        after_id: int = 0,
        upto_id: int = _LAST_ID,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[StoredLine]:
        """Lines with an id above `after_id` and up to `upto_id`, oldest first, or newest first."""
        t = task_logs.c
        after = max(after_id, where.after_id)
        of_lines, of_blocks = conditions(where)
        query = select(task_logs).where(t.task_id == task_id, *of_lines)
        query = query.order_by(t.id.desc() if newest_first else t.id)
        lines: list[RowMapping] = []
        with self._store.transaction() as session:
            upto = min(log_blocks.upto(session, task_id), upto_id) if of_blocks else 0
            behind = Span(max(after, upto), upto_id)
            spans = log_blocks.spans(session, task_id, of_blocks, after, upto, newest_first)
            for span in chain([behind], spans) if newest_first else chain(spans, [behind]):
                part = query.where(t.id > span.after, t.id <= span.last)
                if limit is not None:
                    part = part.limit(limit - len(lines))
                lines += session.execute(part).mappings()
                if limit is not None and len(lines) >= limit:
                    break
        return [StoredLine(**{**row, "level": LEVELS[row["level"]], "log": shown(row["log"])}) for row in lines]

    def fields(self, task_id: str) -> dict[str, list[Any]]:
        """Return the values of each column that lines can be filtered by."""
        t = task_logs.c
        columns = {
            "allocation_ids": t.allocation_id,
            "agent_ids": t.agent_id,
            "container_ids": t.container_id,
            "rank_ids": t.rank_id,
            "sources": t.source,
            "stdtypes": t.stdtype,
        }
        parts = [
            func.array_agg(column.distinct()).filter(column.is_not(None)).label(name)
            for name, column in columns.items()
        ]
        with self._store.transaction() as session:
            upto = log_blocks.upto(session, task_id)
            known = log_blocks.values(session, task_id, list(columns)) if upto else {}
            row = session.execute(select(*parts).where(t.task_id == task_id, t.id > upto)).one()
        return {name: sorted({*(getattr(row, name) or ()), *known.get(name, ())}) for name in columns}


def _check_pattern(pattern: str) -> None:
    """RE2, which has no operators that take for ever, must accept it too; but what RE2 reads as the number of a
    character (`\\12`) is a reference for PostgreSQL, and some escapes are PostgreSQL's own."""
    escapes = re.findall(r"\\(.)", pattern, re.DOTALL)
    if any(letter in "123456789" for letter in escapes):
        raise Invalid(
            f"{pattern!r} refers back to what it has found (\\1 to \\9), which a search in logs cannot do: it may take "
            "for ever. Write out what is looked for."
        )
    shared = re.sub(r"\\(.)", lambda match: _SAME.get(match[1], match[0]), pattern, flags=re.DOTALL)
    try:
        compiled(shared)
    except BadPattern as error:
        raise Invalid(f"{pattern!r} is not a regular expression: {error}.") from None


_SAME = {"y": r"\b", "m": r"\b", "M": r"\b", "Y": r"\B", "Z": r"\z"}  # RE2's equivalents of PostgreSQL's constraints


def conditions(where: LogFilter) -> tuple[list[ColumnElement[bool]], list[ColumnElement[bool]]]:
    """Return the conditions on lines, and those on blocks that may hold such lines: none without a filter."""
    t, b = task_logs.c, blocks.c
    of_lines: list[ColumnElement[bool]] = []
    of_blocks: list[ColumnElement[bool]] = []
    for column, name, wanted in (
        (t.allocation_id, "allocation_ids", where.allocation_ids),
        (t.agent_id, "agent_ids", where.agent_ids),
        (t.container_id, "container_ids", where.container_ids),
        (t.stdtype, "stdtypes", where.stdtypes),
        (t.source, "sources", where.sources),
    ):
        if wanted:
            of_lines.append(column.in_(wanted))
            of_blocks.append(log_blocks.has_any(name, wanted))
    if where.rank_ids:
        of_lines.append(_of_ranks(where.rank_ids))
        if NO_RANK not in where.rank_ids:
            of_blocks.append(log_blocks.has_any("rank_ids", where.rank_ids))
    if where.levels:
        levels = [LEVELS.index(level) for level in where.levels]
        of_lines.append(t.level.in_(levels))
        of_blocks.append(b.levels.op("&")(sum(1 << level for level in set(levels))) != 0)
    if where.before:
        of_lines.append(t.at < where.before)
        of_blocks.append(b.first_at < where.before)
    if where.after:
        of_lines.append(t.at > where.after)
        of_blocks.append(b.last_at > where.after)
    if where.search_text:
        text = where.search_text if where.regex else stored(where.search_text)
        of_lines.append(t.log.regexp_match(text) if where.regex else t.log.icontains(text, autoescape=True))
        # A regular expression that matches a line may not match joined lines, or lower case.
        if not where.regex:
            of_blocks.append(log_blocks.holds(text))
    return of_lines, of_blocks


def _of_ranks(wanted: Sequence[int]) -> ColumnElement[bool]:
    of_some = task_logs.c.rank_id.in_(wanted)
    return of_some | task_logs.c.rank_id.is_(None) if NO_RANK in wanted else of_some


def _clean(text: str) -> str:
    text = stored(text)
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} [cut: the line had {len(text)} characters]"
