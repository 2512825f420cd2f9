"""What is looked for in a log is found alike in its lines and through blocks of them."""

from __future__ import annotations

import datetime as dt
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from tests.support.attempts import Attempts, waits
from tests.support.bound import bind
from tests.support.master import wait_for
from trainmaster.master.db.compacted import log_blocks as blocks
from trainmaster.master.db.compacted import log_progress
from trainmaster.master.db.tables import Task, Trial
from trainmaster.master.services.clock import now
from trainmaster.master.services.logs import log_blocks, log_store
from trainmaster.master.services.logs.log_blocks import SOURCE
from trainmaster.master.services.logs.log_store import LogFilter, NewLogLine, StoredLine
from trainmaster.master.services.master import Master
from trainmaster.master.services.store import Store

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LETTERS = "abAB é%_\\.\n"


@pytest.fixture
def task(attempts: Attempts) -> str:
    return attempts.attempt()


def write(master: Master, task_id: str, lines: list[NewLogLine]) -> None:
    with master.store.transaction() as session:
        log_store.append(session, task_id, None, lines)


def compact(master: Master, task_id: str) -> None:
    master.compaction.count(SOURCE, master.compaction.newest(SOURCE))
    while master.log_blocks.compact(task_id):
        pass


def upto(master: Master, task_id: str) -> int:
    with master.store.transaction() as session:
        return log_blocks.upto(session, task_id)


def wanted(line: StoredLine, where: LogFilter) -> bool:
    return (
        (not where.levels or line.level in where.levels)
        and (not where.rank_ids or (-1 if line.rank_id is None else line.rank_id) in where.rank_ids)
        and (not where.agent_ids or line.agent_id in where.agent_ids)
        and (not where.stdtypes or line.stdtype in where.stdtypes)
        and (not where.sources or line.source in where.sources)
        and (where.before is None or line.at < where.before)
        and (where.after is None or line.at > where.after)
        and line.id > where.after_id
        and (where.regex or _ascii_lower(where.search_text) in _ascii_lower(line.log))
    )


def _ascii_lower(text: str) -> str:
    """As the private server, which has no locale, makes small letters."""
    return re.sub("[A-Z]+", lambda found: found[0].lower(), text)


TIMES = st.integers(0, 20).map(lambda seconds: START + dt.timedelta(seconds=seconds))
LINES = st.builds(
    NewLogLine,
    log=st.text(LETTERS, max_size=12),
    level=st.sampled_from(log_store.LEVELS),
    at=TIMES,
    rank=st.sampled_from([None, 0, 1]),
    agent_id=st.sampled_from([None, "n1", "n2"]),
    stdtype=st.sampled_from([None, "stdout", "stderr"]),
    source=st.sampled_from(["task", "master"]),
)


def some(values: list[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), max_size=2)


FILTERS = st.builds(
    LogFilter,
    agent_ids=some(["n1", "n3"]),
    rank_ids=some([0, 2, -1]),
    levels=some(list(log_store.LEVELS)),
    stdtypes=some(["stdout"]),
    sources=some(["task", "other"]),
    before=st.none() | TIMES,
    after=st.none() | TIMES,
    search_text=st.text(LETTERS, max_size=2),
)


@settings(max_examples=25, deadline=None)
@given(
    batches=st.lists(st.lists(LINES, min_size=1, max_size=30) | st.none(), min_size=1, max_size=6),
    filters=st.lists(FILTERS, min_size=1, max_size=4),
    most=st.integers(1, 8),
    size=st.integers(1, 60),
)
def test_log_filters_find_exactly_matching_lines(
    attempts: Attempts, batches: list[list[NewLogLine] | None], filters: list[LogFilter], most: int, size: int
) -> None:
    """Condensed at any moment; in pages, forwards and backwards."""
    master, task = attempts.master, attempts.attempt()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_blocks, "MOST", most)
        patch.setattr(log_blocks, "SIZE", size)
        for batch in batches:
            if batch is None:
                compact(master, task)
            else:
                write(master, task, batch)
    everything = master.log_store.read(task, LogFilter())
    assert [line.log for line in everything] == [line.log for batch in batches for line in batch or ()]
    middle = everything[len(everything) // 2].id if everything else 0
    for where in [*filters, *(replace(one, after_id=middle) for one in filters)]:
        fitting = [line for line in everything if wanted(line, where)]
        assert master.log_store.read(task, where) == fitting
        assert master.log_store.read(task, where, newest_first=True) == fitting[::-1]
        assert master.log_store.read(task, where, limit=2) == fitting[:2]
        assert master.log_store.read(task, where, limit=2, newest_first=True) == fitting[::-1][:2]
    ranks = {line.rank_id for line in everything if line.rank_id is not None}
    assert master.log_store.fields(task)["rank_ids"] == sorted(ranks)


# -- regular expressions ------------------------------------------------------------------------------------------


def test_an_expression_is_searched_in_lines_and_not_in_blocks(attempts: Attempts, task: str) -> None:
    master = attempts.master
    write(master, task, [NewLogLine(f"step {number} Loss {number % 7}") for number in range(300)])
    compact(master, task)
    write(master, task, [NewLogLine("step 300 Loss 6")])
    found = master.log_store.read(task, LogFilter(search_text=r"^step \d+7 Loss [56]$", regex=True))
    assert [line.log for line in found] == [
        f"step {number} Loss {number % 7}" for number in range(301) if number % 10 == 7 and number % 7 in (5, 6)
    ]
    assert len(master.log_store.read(task, LogFilter(search_text="(Loss 6|nothing)", regex=True))) == 43
    assert len(master.log_store.read(task, LogFilter(search_text=r"^\w+ \d\d [A-Z]", regex=True))) == 90
    assert master.log_store.read(task, LogFilter(search_text=r"\d{4}", regex=True)) == []
    assert len(master.log_store.read(task, LogFilter(search_text=r"\ALoss|6\Z", regex=True))) == 43


# -- when lines go --------------------------------------------------------------------------------------------------


def test_blocks_go_with_their_lines(attempts: Attempts, task: str) -> None:
    master = attempts.master
    write(master, task, [NewLogLine("secret")])
    compact(master, task)
    with master.store.transaction() as session:
        session.execute(text("DELETE FROM task_logs WHERE task_id = :id"), {"id": task})
    assert master.log_store.read(task, LogFilter(search_text="secret")) == []
    with master.store.transaction() as session:
        log_blocks.sweep(session, [task])
        assert session.execute(select(blocks).where(blocks.c.task_id == task)).all() == []
    write(master, task, [NewLogLine("another")])
    compact(master, task)
    assert [line.log for line in master.log_store.read(task, LogFilter(search_text="other"))] == ["another"]
    with master.store.transaction() as session:
        log_blocks.forget(session, [task])
        for table in (blocks, log_progress):
            assert session.execute(select(table).where(table.c.task_id == task)).all() == []
    assert [line.log for line in master.log_store.read(task, LogFilter(search_text="other"))] == ["another"]


def expire(attempts: Attempts, task: str) -> None:
    """The time of its lines has come."""
    with attempts.store.transaction() as session:
        session.get_one(Task, task).end_time = now() - dt.timedelta(days=2)
        session.get_one(Trial, attempts.row(task).trial_id).log_retention_days = 1


def blocks_of(master: Master, task: str) -> int:
    with master.store.transaction() as session:
        return len(session.execute(select(blocks).where(blocks.c.task_id == task)).all())


def test_retention_removes_only_expired_blocks(attempts: Attempts, task: str) -> None:
    master, other = attempts.master, attempts.attempt()
    for name in (task, other):
        write(master, name, [NewLogLine("one"), NewLogLine("two")])
        compact(master, name)
    expire(attempts, task)
    assert master.retention.clean_up() == 2
    assert (blocks_of(master, task), blocks_of(master, other)) == (0, 1)
    assert master.retention.clean_up() == 0


class Slow(Store):
    """Something happens just before each commit."""

    def __init__(self, store: Store, meanwhile: Callable[[], None]) -> None:
        super().__init__(store.engine)
        self._meanwhile = meanwhile

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        with super().transaction() as session:
            yield session
            self._meanwhile()


def test_blocks_that_are_being_made_of_such_lines_go_too(attempts: Attempts, task: str) -> None:
    master = attempts.master
    write(master, task, [NewLogLine("one"), NewLogLine("two")])
    expire(attempts, task)
    thread = threading.Thread(target=master.retention.clean_up)

    def clean_up() -> None:
        thread.start()
        wait_for(lambda: waits(master.store), "who cleans up to wait")

    master.compaction.count(SOURCE, master.compaction.newest(SOURCE))
    bind(Slow(master.store, clean_up)).log_blocks.compact(task)
    thread.join()
    assert blocks_of(master, task) == 0


def test_a_line_comes_back_as_it_came(attempts: Attempts, task: str) -> None:
    """PostgreSQL's texts hold no NUL. What stands for one comes from nobody else."""
    write(
        attempts.master, task, [NewLogLine("Logs\0Can\0Have\0Null\0Bytes"), NewLogLine("odd \ufdd0"), NewLogLine("\0")]
    )
    found = [line.log for line in attempts.master.log_store.read(task, LogFilter())]
    assert found == ["Logs\0Can\0Have\0Null\0Bytes", "odd \ufffd", "\0"]
    assert len(attempts.master.log_store.read(task, LogFilter(search_text="can\0have"))) == 1
    assert attempts.master.log_store.read(task, LogFilter(search_text="odd \0")) == []
