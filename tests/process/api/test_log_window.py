"""The window of a log: any part of it by one call, with counts and the matches of a search."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.support.api.http import Api
from tests.support.api.jobs import Job
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.logs.log_store import NewLogLine
from trainmaster.master.services.store import Store

LINES = 1000
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def line(number: int) -> NewLogLine:
    """What is counted in bins is far from their edges: other jobs' lines make gaps between the ids."""
    level = "ERROR" if number == 730 else "WARNING" if number % 100 == 50 else "INFO"
    return NewLogLine(
        f"step {number}" + (" needle" if number in (10, 530, 990) else ""),
        level,
        START + dt.timedelta(seconds=number),
        rank=number % 4,
        agent_id=f"n{number % 2}",
        stdtype="stderr" if number % 5 == 0 else "stdout",
    )


@pytest.fixture
def window(user: Api, job: Job, engine: Engine) -> Callable[..., Any]:
    """Asks for a window of the log of a job that has written a thousand lines, without those of the master."""
    with Store(engine).transaction() as session:
        session.execute(log_store.task_logs.delete().where(log_store.task_logs.c.task_id == job.task_id))  # type: ignore[attr-defined]
        log_store.append(session, job.task_id, f"{job.task_id}.1", [line(number) for number in range(LINES)])

    def ask(**query: Any) -> Any:
        answer = user.get(f"/api/x1/tasks/{job.task_id}/log", **{"sources": "task", **query})
        return answer.json if answer.status == 200 else answer

    return ask


def numbers(found: Any) -> list[int]:
    return [int(one["text"].split()[1]) for one in found["lines"]]


def test_lines_around_an_id_a_time_a_position_and_a_share(window: Callable[..., Any]) -> None:
    end = window(before=5)
    assert numbers(end) == [995, 996, 997, 998, 999]
    assert (end["position"], end["total"], end["focus"], end["began"]) == (995, LINES, None, START.timestamp())
    assert end["newest"] >= end["lines"][-1]["id"]
    size = {"before": 2, "after": 3}
    for place in (
        {"around": window(position=500, before=0, after=1)["focus"]},
        {"at": (START + dt.timedelta(seconds=500)).timestamp()},
        {"at": (START + dt.timedelta(seconds=499.5)).timestamp()},
        {"position": 500},
        {"share": 500 / 999},
    ):
        found = window(**place, **size)
        assert numbers(found) == [498, 499, 500, 501, 502], place
        assert (found["position"], found["focus"]) == (498, found["lines"][2]["id"])
    assert numbers(window(share=0, **size)) == [0, 1, 2]
    assert numbers(window(position=5000, **size)) == [997, 998, 999]
    assert numbers(window(around=0, **size)) == [0, 1, 2]
    assert numbers(window(at=START.timestamp() + 1e6, **size)) == [998, 999]
    first = window(share=0, **size)["lines"][0]
    assert first | {"id": 0} == {
        "id": 0, "at": START.timestamp(), "level": "INFO", "rank": 0, "node": "n0", "attempt": 1, "stream": "stderr",
        "text": "step 0", "cut": 0,
    }  # fmt: skip


def test_filters_count_only_matching_lines(window: Callable[..., Any]) -> None:
    found = window(rankIds=3, before=2)
    assert (numbers(found), found["total"]) == ([995, 999], 250)
    found = window(rankIds=[1, 2], agentIds="n0", share=0.5, before=0, after=1)
    assert (numbers(found), found["total"]) == ([2 + 4 * 124], 250)
    found = window(levels=["WARNING", "ERROR"], before=3)
    assert (numbers(found), found["total"]) == ([750, 850, 950], 11)
    found = window(stdtypes="stderr", timestampBefore="2026-01-01T00:01:00Z", before=2)
    assert (numbers(found), found["total"]) == ([50, 55], 12)
    assert window(allocationIds="none")["total"] == 0


def test_bins_count_by_position(window: Callable[..., Any]) -> None:
    bins = window(bins=10, searchText="NEEDLE")["bins"]
    assert sum(bins["lines"]) == LINES
    assert max(abs(lines - 100) for lines in bins["lines"]) <= 10  # ids have gaps
    assert bins["warnings"] == [1] * 10
    assert bins["errors"] == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]
    assert bins["matches"] == [1, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert len(window()["bins"]["lines"]) == 200
    assert window()["bins"]["matches"] is None
    assert window(bins=0)["bins"] is None


def test_matches_are_found_in_a_circle(window: Callable[..., Any]) -> None:
    search = {"searchText": "needle", "before": 1, "after": 1}
    found = window(find="next", **search)
    assert (numbers(found), found["match"], found["matches"]) == ([9, 10], 1, 3)
    assert found["matched"] == [found["focus"]]
    for way, wanted in (("next", (530, 2)), ("next", (990, 3)), ("next", (10, 1)), ("previous", (990, 3))):
        found = window(find=way, **{"from": found["focus"]}, **search)
        assert (numbers(found)[1], found["match"]) == wanted
    found = window(find="next", searchText="step 7[01]. ?$", enableRegex=True, before=0, after=1)
    assert (numbers(found), found["matches"]) == ([700], 20)
    found = window(searchText="needle", onlyMatches=True)
    assert (numbers(found), found["total"]) == ([10, 530, 990], 3)
    found = window(find="next", searchText="nowhere", before=1)
    assert (found["focus"], found["matches"], numbers(found)) == (None, 0, [999])
    found = window(find="error", before=0, after=1)
    assert (numbers(found), found["lines"][0]["level"]) == ([730], "ERROR")


def test_new_lines_are_counted_with_those_before(window: Callable[..., Any], job: Job, engine: Engine) -> None:
    assert window(bins=10)["total"] == LINES
    with Store(engine).transaction() as session:
        log_store.append(session, job.task_id, None, [NewLogLine("step 1000 needle", "ERROR"), NewLogLine("step 1001")])
    found = window(bins=10, searchText="needle", before=1)
    assert (numbers(found), found["total"], found["matches"]) == ([1001], LINES + 2, 4)
    assert sum(found["bins"]["lines"]) == LINES + 2
    assert found["bins"]["errors"][-1] == 1


def test_long_lines_are_cut_until_they_are_asked_for(window: Callable[..., Any], job: Job, engine: Engine) -> None:
    with Store(engine).transaction() as session:
        log_store.append(session, job.task_id, None, [NewLogLine("x" * 1_000_000)])
    (found,) = window(before=1)["lines"]
    assert (found["text"], found["cut"]) == (
        "x" * 4000,
        len(f"{'x' * 65536} [cut: the line had 1000000 characters]") - 4000,
    )
    (whole,) = window(around=found["id"], before=0, after=1, whole=True)["lines"]
    assert whole["cut"] == 0
    assert whole["text"].endswith("[cut: the line had 1000000 characters]")


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"share": 1.5}, "share"),
        ({"before": 1001}, "before"),
        ({"after": -1}, "after"),
        ({"bins": 401}, "bins"),
        ({"at": 1e300}, "at"),
        ({"at": "nan"}, "at"),
        ({"around": 2**63}, "around"),
        ({"find": "sideways"}, "find: 'sideways' is none of next, previous, error."),
        ({"find": "next"}, "find=next looks for matches of a search, and there is none: give searchText."),
        ({"whole": True}, "whole: at most 4 lines are read whole"),
        ({"levels": "LOUD"}, "There is no 'LOUD' here"),
        ({"searchText": "(", "enableRegex": True}, "'(' is not a regular expression"),
    ],
)
def test_invalid_window_query_is_rejected_with_reason(
    window: Callable[..., Any], query: dict[str, Any], sentence: str
) -> None:
    answer = window(**query)
    assert answer.status == 400
    assert sentence in answer.sentence


def test_a_task_that_is_not_there(user: Api) -> None:
    answer = user.get("/api/x1/tasks/none/log")
    assert answer.status == 404
    assert "There is no task none." in answer.sentence
