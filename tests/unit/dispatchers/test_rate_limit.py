"""The rate limit of calls to a scheduler."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from trainmaster.dispatchers.cluster.rate_limit import TokenBucket


def test_threads_wait_their_turn_after_a_first_burst() -> None:
    bucket = TokenBucket(rate=50.0, burst=5)
    began = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        passed = list(threads.map(lambda _: (bucket.wait(), time.monotonic() - began)[1], range(25)))  # type: ignore[func-returns-value]
    for number, at in enumerate(sorted(passed)):
        assert at >= (number - 4) / 50.0 - 0.005, f"call {number} came after {at:.3f} s"


def test_nothing_is_saved_up_for_a_larger_burst() -> None:
    bucket = TokenBucket(rate=1000.0, burst=2)
    bucket.wait()
    bucket._stamp -= 3600.0  # an hour in which nobody asked
    began = time.monotonic()
    for _ in range(22):
        bucket.wait()
    assert time.monotonic() - began >= 20 / 1000.0 - 0.005
