"""How long a job waits before it calls a master again that is away, or that has asked it to wait."""

from __future__ import annotations

import pytest

from tests.support.runtime.master import TOKEN, FakeMaster
from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.errors import MasterUnreachable
from trainmaster.runtime.master import MasterCalls

REPORTS = "/api/x1/allocations/a/reports"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def waits(backoff: Backoff, count: int) -> list[float]:
    return [backoff.next() for _ in range(count)]


def test_waits_double_to_ceiling_with_up_to_half_jitter() -> None:
    backoff = Backoff(0.25, 10.0, Clock())
    for wait, longest in zip(waits(backoff, 9), (0.25, 0.5, 1, 2, 4, 8, 10, 10, 10), strict=True):
        assert longest / 2 <= wait <= longest
    backoff.reset()
    assert backoff.next() <= 0.25


def test_jobs_that_come_back_after_an_hour_spread_over_a_minute() -> None:
    last = []
    for _ in range(1000):
        clock = Clock()
        backoff = Backoff(clock=clock)
        while clock.now < 3600:
            last_wait = backoff.next()
            clock.now += last_wait
        last.append(last_wait)
    assert max(last) <= 60
    assert min(last) >= 15
    assert len({round(wait) for wait in last}) > 20  # seconds in which some of them call


def test_backoff_stays_below_ceiling_in_short_outage() -> None:
    clock = Clock()
    backoff = Backoff(clock=clock)
    while clock.now < 180:
        wait = backoff.next()
        assert wait <= 10
        clock.now += wait


def test_requested_wait_is_kept_with_random_spread() -> None:
    asked = [Backoff(clock=Clock()).next(40.0) for _ in range(1000)]
    assert min(asked) >= 40
    assert max(asked) <= 50
    assert len(set(asked)) > 100


@pytest.mark.parametrize(("said", "heard"), [(7, 7.0), (0, 0.0), (10**6, 120.0), (None, None)])
def test_a_call_says_how_long_the_master_asked_to_wait(said: int | None, heard: float | None) -> None:
    master = FakeMaster({})
    master.answer_status["reports"], master.retry_after = 503, said
    calls = MasterCalls(master.url, TOKEN, environ={})
    try:
        with pytest.raises(MasterUnreachable, match="503") as caught:
            calls.call("POST", REPORTS, {})
        assert caught.value.retry_after == heard
    finally:
        calls.close()
        master.close()
