"""A window of a log is what reading the whole log would show, at any moment of compaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.master.services.logs.test_log_blocks import FILTERS, LINES, START, compact, write
from tests.support.attempts import Attempts
from trainmaster.master.services.logs import log_blocks, log_store
from trainmaster.master.services.logs.log_store import LogFilter, NewLogLine, StoredLine
from trainmaster.master.services.views import log_outline
from trainmaster.master.services.views.log_outline import Outlines
from trainmaster.master.services.views.log_window import Find, LogExcerpt, LogPlace, LogWindows

BATCHES = st.lists(st.lists(LINES, min_size=1, max_size=30) | st.none(), min_size=1, max_size=6)


def look(
    windows: LogWindows,
    task: str,
    where: LogFilter,
    place: LogPlace,
    *,
    size: int = 3,
    only: bool = False,
) -> LogExcerpt:
    return windows.read(task, where, place, before=size, after=size, bins=7, only_matches=only)


def check(
    found: LogExcerpt, lines: Sequence[StoredLine], matches: Sequence[StoredLine], at: int | None, size: int
) -> None:
    """`at`: the index of the line in focus among all that are shown; None: the end."""
    middle = len(lines) if at is None else at
    first = max(0, middle - size)
    assert list(found.lines) == list(lines[first : middle + size])
    assert (found.total, found.position) == (len(lines), first)
    assert found.focus == (None if at is None else lines[at].id)
    assert found.bins is not None
    assert sum(found.bins.lines) == len(lines)
    assert sum(found.bins.warnings) == sum(line.level == "WARNING" for line in lines)
    assert sum(found.bins.errors) == sum(line.level in ("ERROR", "CRITICAL") for line in lines)
    known = {line.id for line in matches}
    if found.bins.matches is not None:
        assert sum(found.bins.matches) == found.matches == len(matches)
        assert list(found.matched) == [line.id for line in found.lines if line.id in known]
    if found.match is not None:
        assert matches[found.match - 1].id == found.focus


@settings(max_examples=25, deadline=None)
@given(
    batches=BATCHES,
    filters=st.lists(FILTERS, min_size=1, max_size=3),
    only=st.booleans(),
    most=st.integers(1, 8),
    size=st.integers(1, 60),
    fine=st.integers(1, 50),
    data=st.data(),
)
def test_window_shows_what_whole_log_shows(
    attempts: Attempts,
    batches: list[list[NewLogLine] | None],
    filters: list[LogFilter],
    only: bool,
    most: int,
    size: int,
    fine: int,
    data: st.DataObject,
) -> None:
    """Outlines are kept from batch to batch, as a page that follows a log asks for them."""
    master, task = attempts.master, attempts.attempt()
    windows = LogWindows(master, Outlines(most=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_blocks, "MOST", most)
        patch.setattr(log_blocks, "SIZE", size)
        patch.setattr(log_outline, "FINE", fine)
        patch.setattr(log_outline, "MOST_PARTS", 2 * fine)
        for batch in batches:
            if batch is None:
                compact(master, task)
                continue
            write(master, task, batch)
            for where in filters:
                shown = where if only else replace(where, search_text="")
                lines = master.log_store.read(task, shown)
                matches = master.log_store.read(task, where) if where.search_text else []
                _compare(windows, task, where, lines, matches, only, data)


def _compare(
    windows: LogWindows,
    task: str,
    where: LogFilter,
    lines: Sequence[StoredLine],
    matches: Sequence[StoredLine],
    only: bool,
    data: st.DataObject,
) -> None:
    def at(place: LogPlace, index: int | None) -> None:
        check(look(windows, task, where, place, only=only), lines, matches, index, 3)

    at(LogPlace(), None)
    if not lines:
        at(LogPlace(share=0.5), None)
        return
    index = data.draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    at(LogPlace(line_id=line.id), index)
    at(LogPlace(position=index), index)
    at(LogPlace(position=len(lines) + 5), len(lines) - 1)
    share = index / max(1, len(lines) - 1)
    at(LogPlace(share=share), round(share * (len(lines) - 1)))
    at(LogPlace(at=line.at), next(i for i, one in enumerate(lines) if one.at >= line.at))
    if matches:
        ids = [one.id for one in lines]
        following = next((one for one in matches if one.id > line.id), matches[0])
        earlier = next((one for one in reversed(matches) if one.id < line.id), matches[-1])
        at(LogPlace(Find.NEXT, line_id=line.id), ids.index(following.id))
        at(LogPlace(Find.PREVIOUS, line_id=line.id), ids.index(earlier.id))
        at(LogPlace(Find.NEXT), ids.index(matches[0].id))
        at(LogPlace(Find.PREVIOUS), ids.index(matches[-1].id))
    errors = [i for i, one in enumerate(lines) if one.level in ("ERROR", "CRITICAL")]
    at(LogPlace(Find.ERROR), errors[0] if errors else None)


def test_a_traceback_is_an_error_too(attempts: Attempts) -> None:
    master, task = attempts.master, attempts.attempt()
    write(master, task, [NewLogLine(f"line {number}", at=START) for number in range(5)])
    place = LogPlace(Find.ERROR)
    assert look(master.log_windows, task, LogFilter(), place).focus is None
    write(
        master,
        task,
        [NewLogLine("Traceback (most recent call last):"), NewLogLine("  File x"), NewLogLine("y", "ERROR")],
    )
    found = look(master.log_windows, task, LogFilter(), place)
    assert [line.log for line in found.lines if line.id == found.focus] == ["Traceback (most recent call last):"]
    found = look(master.log_windows, task, LogFilter(levels=["WARNING"]), place)
    assert (found.focus, found.total, list(found.lines)) == (None, 0, [])


def test_log_is_recounted_after_its_removal(attempts: Attempts) -> None:
    master, task = attempts.master, attempts.attempt()
    windows = LogWindows(master)
    write(master, task, [NewLogLine("old")] * 10)
    assert look(windows, task, LogFilter(), LogPlace()).total == 10
    with master.store.transaction() as session:
        log_blocks.forget(session, [task])
        session.execute(log_store.task_logs.delete().where(log_store.task_logs.c.task_id == task))  # type: ignore[attr-defined]
    assert look(windows, task, LogFilter(), LogPlace()).total == 0
    write(master, task, [NewLogLine("new", at=START + dt.timedelta(1))])
    found = look(windows, task, LogFilter(), LogPlace())
    assert (found.total, found.began) == (1, START + dt.timedelta(1))
