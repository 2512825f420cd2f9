"""Calls on one thing are carried out together, in order, and nobody pays for another one's error."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainmaster.master.services.combining import Combiner


def test_calls_that_wait_are_carried_out_together() -> None:
    batches: list[list[int]] = []
    first, go = threading.Event(), threading.Event()

    def carry_out(_key: int, calls: Sequence[int]) -> list[int]:
        batches.append([*calls])
        first.set()
        go.wait(10)
        return [call * 2 for call in calls]

    combiner = Combiner(carry_out)
    with ThreadPoolExecutor(9) as pool:
        one = pool.submit(combiner.call, 1, 0)
        assert first.wait(10)
        rest = [pool.submit(combiner.call, 1, n) for n in range(1, 9)]
        while len(combiner._queues[1].waiting) < 8:
            pass
        go.set()
        assert one.result(10) == 0
        assert [each.result(10) for each in rest] == [2 * n for n in range(1, 9)]
    assert batches[0] == [0]
    assert sorted(batches[1]) == [*range(1, 9)]
    assert combiner._queues == {}


def test_error_of_one_call_is_its_own() -> None:
    go = threading.Event()

    def carry_out(_key: int, calls: Sequence[int]) -> list[int]:
        go.wait(10)
        if 3 in calls:
            raise ValueError("3")
        return [*calls]

    combiner = Combiner(carry_out)
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(combiner.call, 1, n) for n in range(6)]
        go.set()
        for number, call in enumerate(calls):
            if number == 3:
                with pytest.raises(ValueError, match="3"):
                    call.result(10)
            else:
                assert call.result(10) == number


def test_different_things_do_not_wait_for_each_other() -> None:
    go = threading.Event()

    def carry_out(key: int, calls: Sequence[int]) -> list[int]:
        if key == 1:
            go.wait(10)
        return [*calls]

    combiner = Combiner(carry_out)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(combiner.call, 1, 1)
        assert pool.submit(combiner.call, 2, 2).result(10) == 2
        assert not slow.done()
        go.set()
        assert slow.result(10) == 1
