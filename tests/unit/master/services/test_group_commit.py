"""Calls that come while a batch is under way share the next one, and nobody's fault is another's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from trainmaster.master.admission.group_commit import GroupCommit
from trainmaster.master.db.request_context import CURRENT
from trainmaster.master.db.watchdog import DatabaseUnavailable
from trainmaster.master.services.batches import BatchHandler, CannotBatch, single
from trainmaster.master.services.errors import Invalid, Unavailable

Call = tuple[str, int]  # of whom, which
Take = Callable[[Sequence[Call]], Sequence[str | Exception]]


class Held:
    """Takes calls in, and notes the batches; the first one waits until it is let go."""

    def __init__(self, take: Take) -> None:
        self.batches: list[list[Call]] = []
        self.alone: list[list[Call]] = []
        self.seconds: list[float] = []
        self.go = threading.Event()
        self._take = take

    def __call__(self, calls: Sequence[Call], /, *, wait: bool) -> Sequence[str | Exception]:
        (self.alone if wait else self.batches).append(list(calls))
        self.seconds.append(CURRENT.get().seconds)
        assert self.go.wait(30)
        return self._take(calls)


def said(calls: Sequence[Call]) -> list[str | Exception]:
    return [f"{name} {number}" for name, number in calls]


def play(
    take: BatchHandler[Call, str],
    story: Callable[[GroupCommit[Call, str]], Coroutine[Any, Any, None]],
    **limits: int,
) -> None:
    with ThreadPoolExecutor(4) as alone:

        async def run() -> None:
            async with asyncio.timeout(30):
                await story(GroupCommit(take, lambda call: call[0], alone, 7.0, 1, **limits))

        asyncio.run(run())


async def begun(*asked: Coroutine[Any, Any, str]) -> list[asyncio.Task[str]]:
    tasks = [asyncio.create_task(each) for each in asked]
    await asyncio.sleep(0)  # until each of them waits
    return tasks


def test_calls_during_batch_share_next_one() -> None:
    take = Held(said)

    async def story(group: GroupCommit[Call, str]) -> None:
        tasks = await begun(*(group.ask((name, 1)) for name in "abc"), group.ask(("b", 2)))
        take.go.set()
        assert await asyncio.gather(*tasks) == ["a 1", "b 1", "c 1", "b 2"]

    play(take, story)
    assert take.batches == [[("a", 1)], [("b", 1), ("c", 1)], [("b", 2)]]
    assert set(take.seconds) == {7.0}


def test_calls_have_own_errors_and_unbatchable_ones_run_alone() -> None:
    def some(calls: Sequence[Call]) -> list[str | Exception]:
        if len(calls) > 1:
            return [CannotBatch() if name == "b" else Invalid(name) if name == "c" else name for name, _ in calls]
        return said(calls)

    take = Held(some)

    async def story(group: GroupCommit[Call, str]) -> None:
        tasks = await begun(*(group.ask((name, 1)) for name in "abcd"))
        take.go.set()
        first, second, third, fourth = await asyncio.gather(*tasks, return_exceptions=True)
        assert (first, second, fourth) == ("a 1", "b 1", "d")
        assert isinstance(third, Invalid)

    play(take, story)
    assert (take.batches, take.alone) == ([[("a", 1)], [("b", 1), ("c", 1), ("d", 1)]], [[("b", 1)]])


def test_call_waiting_alone_delays_no_batch() -> None:
    go = threading.Event()

    def take(calls: Sequence[Call], /, *, wait: bool) -> Sequence[str | Exception]:
        if wait:
            assert go.wait(30)
            return said(calls)
        return [CannotBatch() if name == "slow" else f"{name} {number}" for name, number in calls]

    async def story(group: GroupCommit[Call, str]) -> None:
        (slow,) = await begun(group.ask(("slow", 1)))
        assert [await group.ask(("b", number)) for number in range(3)] == ["b 0", "b 1", "b 2"]
        assert not slow.done()
        go.set()
        assert await slow == "slow 1"

    play(take, story)


def test_a_batch_that_fails_is_taken_in_one_by_one() -> None:
    def spoilt(calls: Sequence[Call]) -> list[str | Exception]:
        if ("c", 1) in calls:
            raise Invalid("it cannot be stored")
        return said(calls)

    take = Held(spoilt)

    async def story(group: GroupCommit[Call, str]) -> None:
        tasks = await begun(*(group.ask((name, 1)) for name in "abcd"))
        take.go.set()
        first, second, third, fourth = await asyncio.gather(*tasks, return_exceptions=True)
        assert (first, second, fourth) == ("a 1", "b 1", "d 1")
        assert isinstance(third, Invalid)

    play(take, story)
    assert sorted(take.alone) == [[("b", 1)], [("c", 1)], [("d", 1)]]


def test_unreachable_database_stops_retries() -> None:
    def away(calls: Sequence[Call]) -> list[str | Exception]:
        raise DatabaseUnavailable

    take = Held(away)

    async def story(group: GroupCommit[Call, str]) -> None:
        tasks = await begun(*(group.ask((name, 1)) for name in "abc"))
        take.go.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, DatabaseUnavailable) for outcome in outcomes)

    play(take, story)
    assert (len(take.batches), take.alone) == (2, [])


def test_cancelled_call_is_left_out_of_batch() -> None:
    take = Held(said)

    async def story(group: GroupCommit[Call, str]) -> None:
        first, second, third = await begun(*(group.ask((name, 1)) for name in "abc"))
        first.cancel()  # its batch is under way: what comes of it is nobody's
        second.cancel()
        await asyncio.sleep(0)
        take.go.set()
        assert await third == "c 1"

    play(take, story)
    assert take.batches == [[("a", 1)], [("c", 1)]]


def test_there_is_an_end_to_waiting_calls() -> None:
    take = Held(said)

    async def story(group: GroupCommit[Call, str]) -> None:
        tasks = await begun(*(group.ask((name, 1)) for name in "abc"))
        with pytest.raises(Unavailable):
            await group.ask(("d", 1))
        take.go.set()
        assert await asyncio.gather(*tasks) == ["a 1", "b 1", "c 1"]
        assert await group.ask(("d", 1)) == "d 1"

    play(take, story, pending=3, together=2)


def test_the_outcome_of_a_batch_of_one() -> None:
    assert single(["yes"]) == "yes"
    with pytest.raises(Invalid):
        single([Invalid("no")])
