"""The two primitives of admission: token buckets and fair queues."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.admission.fair_queue import FairQueue
from trainmaster.master.admission.token_buckets import TokenBuckets


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    clock = Clock()
    buckets = TokenBuckets(10.0, 0.5, most=10, clock=clock)
    assert [buckets.try_take("a") for _ in range(6)] == [True] * 5 + [False]
    assert buckets.try_take("b")
    clock.now += 0.1
    assert buckets.try_take("a")
    assert not buckets.try_take("a")


def test_tokens_taken_beyond_burst_are_owed() -> None:
    clock = Clock()
    buckets = TokenBuckets(10.0, 0.5, most=10, clock=clock)
    assert buckets.take("a", 5.0) == 0.0
    assert buckets.take("a", 20.0) == pytest.approx(2.0)
    clock.now += 1.5
    assert buckets.owed("a") == pytest.approx(0.5)
    buckets.give_back("a", 5.0)
    assert buckets.owed("a") == 0.0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.0, 1.0)), max_size=60))
def test_no_key_gets_more_than_its_burst_and_rate(steps: list[tuple[str, float]]) -> None:
    clock = Clock()
    buckets = TokenBuckets(4.0, 1.0, most=10, clock=clock)
    taken = dict.fromkeys("ab", 0)
    for key, pause in steps:
        clock.now += pause
        taken[key] += buckets.try_take(key)
    assert all(count <= 4.0 * (1.0 + clock.now - 100.0) + 1e-6 for count in taken.values())


def test_keys_take_turns_within_a_priority() -> None:
    order: list[str] = []

    async def visit(queue: FairQueue, name: str, priority: int) -> None:
        await queue.enter(name[0], priority=priority)
        order.append(name)
        await asyncio.sleep(0)
        queue.leave()

    async def scene() -> None:
        queue = FairQueue(lambda: 1)
        assert queue.try_enter()
        names = [("a1", 1), ("a2", 1), ("a3", 1), ("b1", 1), ("c1", 0)]
        tasks = [asyncio.create_task(visit(queue, *name)) for name in names]
        await asyncio.sleep(0)
        assert (len(queue), queue.waiting("a", 1)) == (5, 3)
        queue.leave()
        await asyncio.gather(*tasks)
        assert queue.idle
        assert not len(queue)

    asyncio.run(scene())
    assert order == ["c1", "a1", "b1", "a2", "a3"]


def test_a_waiter_that_leaves_makes_way() -> None:
    async def scene() -> None:
        queue = FairQueue(lambda: 2)
        assert queue.try_enter()
        wide = asyncio.create_task(queue.enter("wide", 2))
        narrow = asyncio.create_task(queue.enter("narrow", 1))
        await asyncio.sleep(0)
        assert not narrow.done()  # what came first is not overtaken
        wide.cancel()
        await asyncio.wait_for(narrow, 5)
        assert not queue.try_enter()
        queue.leave()
        queue.leave()
        assert queue.idle

    asyncio.run(scene())


def test_error_of_check_ends_waiting() -> None:
    def check() -> None:
        raise ConnectionResetError

    async def scene() -> None:
        queue = FairQueue(lambda: 1)
        assert queue.try_enter()
        with pytest.raises(ConnectionResetError):
            await queue.enter("a", check=check)
        assert not len(queue)

    asyncio.run(scene())
