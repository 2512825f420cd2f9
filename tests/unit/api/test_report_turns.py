"""Reports that cost much take turns; the others do not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from trainmaster.master.admission import report_queue
from trainmaster.master.admission.report_queue import (
    LARGE,
    LARGE_PLACES,
    LATEST,
    MOST_OF_ONE,
    MOST_WAITING,
    PLACES,
    PLACES_BESIDE_PEOPLE,
    RECENT,
    SOONEST,
    ReportQueue,
)
from trainmaster.master.db.request_context import CURRENT, RequestContext
from trainmaster.master.http import error_envelope
from trainmaster.master.services.errors import TooSlow, Unavailable

SPOOL = LARGE + 1
TOGETHER = PLACES // LARGE_PLACES  # large reports


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Reports:
    """Reports of jobs in their turns, each of which is taken in when it is let go."""

    def __init__(self, turns: ReportQueue) -> None:
        self.turns, self.let_go = turns, asyncio.Event()
        self.begun: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, *jobs: str, size: int = SPOOL) -> None:
        self.tasks += [asyncio.create_task(self._report(job, size)) for job in jobs]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _report(self, job: str, size: int) -> None:
        async with self.turns.turn(job, size):
            self.begun.append(job)
            await self.let_go.wait()

    async def end(self) -> None:
        self.let_go.set()
        await asyncio.gather(*self.tasks)


def play(story: Callable[[Reports, Clock], Coroutine[Any, Any, None]], *, people: bool = False) -> None:
    async def run() -> None:
        clock = Clock()
        async with asyncio.timeout(30):
            await story(Reports(ReportQueue(lambda: people, clock)), clock)

    asyncio.run(run())


def names(count: int, what: str = "job") -> list[str]:
    return [f"{what}-{number}" for number in range(count)]


@pytest.mark.parametrize("people", [False, True])
def test_large_reports_are_limited_at_once_and_all_get_a_turn(people: bool) -> None:
    async def story(reports: Reports, _: Clock) -> None:
        await reports.come(*names(40))
        assert reports.begun == names((PLACES_BESIDE_PEOPLE if people else PLACES) // LARGE_PLACES)
        await reports.end()
        assert reports.begun == names(40)

    play(story, people=people)


def test_steady_job_does_not_wait_for_returning_jobs() -> None:
    async def story(reports: Reports, clock: Clock) -> None:
        async with reports.turns.turn("steady", 100):
            pass
        await reports.come(*names(TOGETHER + 10))
        await reports.come("steady", "new", size=100)
        assert reports.begun[TOGETHER:] == ["steady"]
        await reports.come("steady")  # a large one comes before the large ones of others
        reports.let_go.set()
        await asyncio.gather(*reports.tasks)
        assert reports.begun[TOGETHER + 1 : TOGETHER + 3] == ["new", "steady"]
        clock.now += RECENT
        reports.let_go.clear()
        await reports.come(*names(TOGETHER))
        await reports.come("steady", size=100)
        assert reports.begun[-1] != "steady"
        await reports.end()

    play(story)


def test_reports_beyond_queue_get_different_retry_times() -> None:
    async def story(reports: Reports, _: Clock) -> None:
        await reports.come(*names(TOGETHER + MOST_WAITING))
        asked = []
        for job in names(20_000, "more"):
            with pytest.raises(Unavailable, match=f"{MOST_WAITING} reports") as refused:
                await reports.turns.turn(job, SPOOL).__aenter__()
            asked.append(refused.value.retry_after or 0.0)
        assert asked == sorted(asked)
        assert SOONEST <= asked[0] < asked[1000] < asked[-1] <= LATEST
        await reports.end()
        assert len(reports.begun) == TOGETHER + MOST_WAITING

    play(story)


def test_the_answer_says_in_whole_seconds_when_to_come_again() -> None:
    app = FastAPI()
    error_envelope.install(app)

    @app.get("/")
    def crowded() -> None:
        raise Unavailable("Many wait.", retry_after=7.2)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://master") as client:
            return await client.get("/")

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "8")
    assert answer.json()["error"]["error"] == "Many wait."


def test_one_job_cannot_take_all_places_in_the_queue() -> None:
    async def story(reports: Reports, _: Clock) -> None:
        await reports.come(*names(TOGETHER))
        await reports.come(*["greedy"] * MOST_OF_ONE)
        with pytest.raises(Unavailable):
            await reports.turns.turn("greedy", SPOOL).__aenter__()
        await reports.come("modest")
        await reports.end()
        assert reports.begun.count("greedy") == MOST_OF_ONE
        assert "modest" in reports.begun

    play(story)


def test_bodies_that_wait_take_so_much_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_queue, "MOST_BYTES", 3 * SPOOL)

    async def story(reports: Reports, _: Clock) -> None:
        await reports.come(*names(TOGETHER + 3))
        with pytest.raises(Unavailable):
            await reports.turns.turn("another", SPOOL).__aenter__()
        await reports.end()
        async with AsyncExitStack() as held:
            await held.enter_async_context(reports.turns.turn("another", SPOOL))

    play(story)


def test_departed_client_loses_its_turn_and_takes_no_place() -> None:
    async def story(reports: Reports, _: Clock) -> None:
        await reports.come(*names(TOGETHER))
        context = RequestContext(30.0)
        token = CURRENT.set(context)
        await reports.come("gone")
        CURRENT.reset(token)
        await reports.come("cancelled", "last")
        context.gone = True
        reports.tasks[TOGETHER + 1].cancel()
        reports.let_go.set()
        ended = await asyncio.gather(*reports.tasks, return_exceptions=True)
        assert isinstance(ended[TOGETHER], TooSlow)
        assert isinstance(ended[TOGETHER + 1], asyncio.CancelledError)
        assert reports.begun == [*names(TOGETHER), "last"]
        reports.let_go.clear()
        reports.tasks.clear()
        await reports.come(*names(TOGETHER, "next"))  # all places are free again
        assert reports.begun[-TOGETHER:] == names(TOGETHER, "next")
        await reports.end()

    play(story)
