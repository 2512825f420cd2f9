"""`resources.max_slots` of experiments whose scheduler knows nothing of it."""

from __future__ import annotations

import datetime as dt

from tests.support.attempts import Attempts
from trainmaster.master.lifecycle.breaker import PoolPause
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.scheduling.slot_limits import SlotLimit

LIMITED = {"resources": {"slots_per_trial": 2, "max_slots": 5}}


def rooms(attempts: Attempts, cluster: str, *under_way: str) -> dict[int, int]:
    limits = attempts.master.slot_limits.of_experiments(cluster, under_way)
    return {number: limit.room for number, limit in limits.items()}


def due(attempts: Attempts, cluster: str, *under_way: str, limit: int = 10) -> list[str]:
    left = rooms(attempts, cluster, *under_way)
    return attempts.master.submissions.due(cluster, limit, under_way=under_way, rooms=left)


def test_no_more_is_submitted_than_the_limit_has_room_for() -> None:
    assert [SlotLimit(5, held, 2).room for held in (0, 2, 3, 4, 5, 8)] == [2, 1, 1, 0, 0, 0]
    assert SlotLimit(most=1, held=0, each=2).room == 0
    assert SlotLimit(most=0, held=0, each=0).room > 1000  # trials without slots hold none


def test_max_slots_delays_only_its_own_experiment(attempts: Attempts) -> None:
    cluster = "limited"
    limited, free = attempts.experiment(LIMITED), attempts.experiment()
    number = [attempts.attempt(limited, dispatcher=cluster, submission="NEW", slots=2) for _ in range(4)]
    other = attempts.attempt(free, dispatcher=cluster, submission="NEW")
    assert due(attempts, cluster) == [*number[:2], other]
    assert due(attempts, cluster, limit=1) == number[:1]
    # What is under way counts, before and after its row says so.
    assert due(attempts, cluster, number[0]) == [number[1], other]
    attempts.change(number[0], submission="SUBMITTING")
    assert due(attempts, cluster, number[0]) == [number[1], other]
    attempts.change(number[1], submission="UNKNOWN")
    assert due(attempts, cluster) == [other]
    assert due(attempts, cluster, limit=1) == [other]
    attempts.change(number[0], ended_at=now())
    assert due(attempts, cluster) == [number[2], other]
    assert free not in rooms(attempts, cluster)


def test_limited_experiment_leaves_places_to_others(attempts: Attempts) -> None:
    cluster = "front"
    limited = attempts.experiment(LIMITED)
    front = [attempts.attempt(limited, dispatcher=cluster, submission="NEW", slots=2) for _ in range(8)]
    others = [attempts.attempt(dispatcher=cluster, submission="NEW") for _ in range(4)]
    assert due(attempts, cluster, limit=4) == [*front[:2], *others[:2]]


def test_room_covers_only_experiments_with_waiting_attempts(attempts: Attempts) -> None:
    number = attempts.experiment(LIMITED)
    attempts.attempt(number, dispatcher="busy")
    attempts.attempt(number, dispatcher="elsewhere", submission="NEW")
    assert rooms(attempts, "busy") == {}
    attempts.attempt(number, dispatcher="busy", submission="NEW")
    assert rooms(attempts, "busy") == {number: 2}


def test_attempt_waiting_for_slot_limit_is_logged_once(attempts: Attempts) -> None:
    cluster = "told"
    number = attempts.experiment(LIMITED)
    waiting = [attempts.attempt(number, dispatcher=cluster, submission="NEW", slots=2) for _ in range(2)]
    attempts.master.slot_limits.explain_waits(cluster, {number: SlotLimit(5, 2, 2)})
    assert attempts.log(waiting[0]) == []
    for _ in range(2):
        attempts.master.slot_limits.explain_waits(cluster, {number: SlotLimit(5, 4, 2)})
    text = "Its experiment holds as many slots as it may (max_slots: 5)."
    assert [attempts.log(name) for name in waiting] == [[text], []]
    assert attempts.row(waiting[0]).explanation == text


def test_each_full_experiment_log_names_its_own_limit(attempts: Attempts) -> None:
    cluster = "several"
    numbers = [attempts.experiment(LIMITED) for _ in range(3)]
    waiting = {
        number: [attempts.attempt(number, dispatcher=cluster, submission="NEW") for _ in range(2)] for number in numbers
    }
    limits = {number: SlotLimit(most, 9, 2) for most, number in enumerate(numbers, 3)}
    attempts.change(waiting[numbers[1]][0], explanation="Its experiment holds as many slots as it may (max_slots: 4).")
    attempts.master.slot_limits.explain_waits(cluster, limits)
    texts = [f"Its experiment holds as many slots as it may (max_slots: {most})." for most in (3, 4, 5)]
    assert [attempts.row(waiting[number][0]).explanation for number in numbers] == texts
    assert [attempts.log(waiting[number][0]) for number in numbers] == [texts[:1], [], texts[2:]]
    assert [attempts.log(waiting[number][1]) for number in numbers] == [[], [], []]


def test_where_its_pool_rests_only_that_is_said(attempts: Attempts) -> None:
    """Pass after pass: neither of the two reasons takes the other's place."""
    cluster, number = "resting", attempts.experiment(LIMITED)
    name = attempts.attempt(number, dispatcher=cluster, submission="NEW", slots=2, pool="tired")
    resting = {"tired": PoolPause(3, epoch(now()) + 600, "no node", frozenset())}
    for _ in range(3):
        attempts.master.pool_health.half_open_probes(cluster, resting, [number])
        attempts.master.slot_limits.explain_waits(cluster, {number: SlotLimit(5, 4, 2)}, resting)
    (said,) = attempts.log(name)
    assert said.startswith("Pool tired is paused: the cluster could not start the last 3 jobs there (no node).")


def test_next_due_ignores_times_already_past(attempts: Attempts) -> None:
    cluster, asked = "later", now()
    attempts.attempt(dispatcher=cluster, submission="NEW", not_before=asked)
    assert attempts.master.submissions.next_due(cluster, asked) is None
    soon = asked + dt.timedelta(seconds=30)
    attempts.attempt(dispatcher=cluster, submission="NEW", not_before=soon)
    assert attempts.master.submissions.next_due(cluster, asked) == soon
    came_due = asked + dt.timedelta(microseconds=1)  # since it was asked what is due, and before it is slept over
    attempts.attempt(dispatcher=cluster, submission="NEW", not_before=came_due)
    assert attempts.master.submissions.next_due(cluster, asked) == came_due
