"""Causes of failures, the reason of a failed experiment, and the fuse of searches."""

from __future__ import annotations

import pytest

from trainmaster.master.lifecycle.failures import FailedTrial, blown, cause_of, reason_of

MISSING = "The training code ended with exit code 1 in rank {} on node n{}; its last lines: No module named 'torch'"


def test_cause_ignores_node_rank_and_folder() -> None:
    assert cause_of(MISSING.format(0, 1)) == cause_of(MISSING.format(7, 12))
    assert cause_of("cannot open /tmp/a1/x/data.csv") == cause_of("cannot open /tmp/b2/data.csv")
    assert cause_of("cannot open /tmp/data.csv") != cause_of("cannot open /tmp/model.bin")
    assert cause_of("ends with 'a'") != cause_of("ends with 'b'")


def test_reason_is_most_frequent_cause_in_first_trials_words() -> None:
    assert reason_of([]) == ""
    assert reason_of([FailedTrial(4, "It broke.")]) == "trial 4 failed: It broke"
    several = [FailedTrial(4, "It ran out of memory"), *(FailedTrial(n, MISSING.format(0, n)) for n in (5, 6))]
    words = "(2 of 3 failed trials have this cause)"
    assert reason_of(several) == f"trial 5 failed: {MISSING.format(0, 5)} {words}"


def alike(count: int, seconds: float = 3.0) -> list[FailedTrial]:
    return [FailedTrial(n, MISSING.format(0, n), seconds) for n in range(1, count + 1)]


def test_the_fuse_blows_once_at_its_number() -> None:
    assert [bool(blown(alike(count), 3)) for count in range(6)] == [False, False, False, True, False, False]
    assert "(trial 1)" in blown(alike(3), 3)
    assert "No module named 'torch'" in blown(alike(3), 3)


@pytest.mark.parametrize(
    ("failures", "limit"),
    [
        (alike(3), 0),
        ([*alike(2), FailedTrial(3, "something else", 1.0)], 3),
        ([*alike(2), FailedTrial(3, MISSING.format(0, 3), 61.0)], 3),
    ],
    ids=["switched off", "another cause", "a longer training"],
)
def test_the_fuse_does_not_blow(failures: list[FailedTrial], limit: int) -> None:
    assert blown(failures, limit) == ""
