"""`resources.max_slots` of experiments whose scheduler knows nothing of it."""

from __future__ import annotations

import datetime as dt

from tests.master.services.attempts import Attempts
from trainmaster.master.services import slot_limits, submission
from trainmaster.master.services.clock import now
from trainmaster.master.services.slot_limits import SlotLimit

LIMITED = {"resources": {"slots_per_trial": 2, "max_slots": 5}}


def rooms(attempts: Attempts, *under_way: str) -> dict[int, int]:
    return {number: limit.room for number, limit in slot_limits.of_experiments(attempts.store, under_way).items()}


def due(attempts: Attempts, cluster: str, *under_way: str, limit: int = 10) -> list[str]:
    left = rooms(attempts, *under_way)
    return submission.due(attempts.store, cluster, limit, under_way=under_way, rooms=left)


def test_no_more_is_submitted_than_the_limit_has_room_for() -> None:
    assert [SlotLimit(5, held, 2).room for held in (0, 2, 3, 4, 5, 8)] == [2, 1, 1, 0, 0, 0]
    assert SlotLimit(most=1, held=0, each=2).room == 0
    assert SlotLimit(most=0, held=0, each=0).room > 1000  # trials without slots hold none


def test_attempts_wait_for_others_of_their_experiment_and_keep_up_nobody_else(attempts: Attempts) -> None:
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
    assert free not in rooms(attempts)


def test_an_experiment_that_has_ended_is_not_asked_about(attempts: Attempts) -> None:
    number = attempts.experiment(LIMITED)
    assert number in rooms(attempts)
    attempts.end(number)
    assert number not in rooms(attempts)


def test_who_waits_is_told_once(attempts: Attempts) -> None:
    cluster = "told"
    number = attempts.experiment(LIMITED)
    waiting = [attempts.attempt(number, dispatcher=cluster, submission="NEW", slots=2) for _ in range(2)]
    slot_limits.tell(attempts.store, cluster, {number: SlotLimit(5, 2, 2)})
    assert attempts.log(waiting[0]) == []
    for _ in range(2):
        slot_limits.tell(attempts.store, cluster, {number: SlotLimit(5, 4, 2)})
    text = "Its experiment holds as many slots as it may (max_slots: 5)."
    assert [attempts.log(name) for name in waiting] == [[text], []]
    assert attempts.row(waiting[0]).explanation == text


def test_only_what_is_to_come_is_waited_for(attempts: Attempts) -> None:
    cluster = "later"
    attempts.attempt(dispatcher=cluster, submission="NEW")
    assert submission.next_due(attempts.store, cluster) is None
    soon = now() + dt.timedelta(seconds=30)
    attempts.attempt(dispatcher=cluster, submission="NEW", not_before=soon)
    assert submission.next_due(attempts.store, cluster) == soon
