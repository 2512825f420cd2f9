from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.lifecycle.breaker import FIRST_PAUSE, LONGEST_PAUSE, MEMORY, THRESHOLD, Failure, pool_pause

NOW = 1_000_000.0


def failures(count: int, last: float = NOW - 1, group: int = 1) -> list[Failure]:
    return [Failure(last - i, group, f"failure {i}") for i in range(count)]


def test_a_few_failures_are_life() -> None:
    assert pool_pause(failures(THRESHOLD - 1), 0.0, NOW) is None


def test_as_many_as_the_threshold_make_the_pool_rest() -> None:
    found = pool_pause(failures(THRESHOLD), 0.0, NOW)
    assert found is not None
    assert (found.failures, found.until, found.why) == (THRESHOLD, NOW - 1 + FIRST_PAUSE, "failure 0")
    assert found.text == f"the cluster could not start the last {THRESHOLD} jobs there (failure 0)"


def test_every_further_failure_doubles_the_rest_up_to_a_limit() -> None:
    rests = [pool_pause(failures(THRESHOLD + more), 0.0, NOW) for more in range(12)]
    lengths = [one.until - (NOW - 1) for one in rests if one]
    assert lengths[:4] == [60.0, 120.0, 240.0, 480.0]
    assert max(lengths) == LONGEST_PAUSE
    assert len(lengths) == 12


@given(st.integers(0, 30), st.floats(0, 40))
def test_a_job_that_starts_closes_the_matter(count: int, ago: float) -> None:
    """Only failures after it count."""
    found = pool_pause(failures(count), NOW - 1 - ago, NOW)
    after = sum(1 for i in range(count) if NOW - 1 - i > NOW - 1 - ago)
    assert (found is not None) == (after >= THRESHOLD)


def test_old_failures_are_forgotten() -> None:
    assert pool_pause(failures(THRESHOLD, NOW - MEMORY - 10), 0.0, NOW) is None


def test_pool_pause_names_groups_of_failed_jobs() -> None:
    found = pool_pause([*failures(3, group=1), *failures(3, NOW - 9, group=2)], 0.0, NOW)
    assert found is not None
    assert found.groups == {1, 2}
