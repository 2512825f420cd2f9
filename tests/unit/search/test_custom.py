"""`custom`: questions are asked once, answered once and in order, and a rebuilt search has had the same answers."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.master.search import Create, ExitReason, Search, SearchError, SearchEvent, Shutdown, StopTrial
from trainmaster.master.search.custom import MOST_WAITING, Custom, parse_operations

SECTION: dict[str, Any] = {"name": "custom", "metric": "loss", "smaller_is_better": False, "metrics": ["size"]}
SPACE = {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}, "depth": 3}


def begun(**more: Any) -> tuple[Search, Custom]:
    search, actions = Search.start({**SECTION, **more}, SPACE, seed=1)
    assert actions == []
    assert isinstance(search.method, Custom)
    return search, search.method


def answer(search: Search, number: int, *operations: Any, state: Any = None) -> list[Any]:
    return search.instructed(number, {"operations": list(operations), "state": state})


def create(lr: float, **more: Any) -> dict[str, Any]:
    return {"create": {"hparams": {"lr": lr}, **more}}


def test_questions_and_answers() -> None:
    search, method = begun()
    assert [(n, q.kind) for n, q in method.waiting(0, 9)] == [(1, "begun")]
    first, second = answer(search, 1, create(0.5), create(0.25, parent=0), {"progress": 0.5}, state={"seen": 1})
    assert (first.hparams, first.parent, second.parent) == ({"lr": 0.5, "depth": 3}, None, first.request_id)
    assert (search.progress(), method.kept, method.created) == (0.5, {"seen": 1}, 2)
    assert search.validation(first.request_id, {"loss": 2.0, "size": 7}, 4) == []
    ((number, question),) = method.waiting(0, 9)
    assert (number, question.metrics, question.time) == (2, {"loss": 2.0, "size": 7.0}, 4.0)
    assert [type(each) for each in answer(search, 2, {"stop": 0}, {"finish": True})] == [StopTrial]
    search.exited(first.request_id)
    (shutdown,) = search.exited_early(second.request_id, ExitReason.OUT_OF_MEMORY)
    assert isinstance(shutdown, Shutdown)
    assert [(n, q.kind, q.reason) for n, q in method.waiting(2, 9)] == [
        (3, "ended", None),
        (4, "ended", "OUT_OF_MEMORY"),
    ]


def test_it_waits_with_paused_trials_and_without_any() -> None:
    search, method = begun()
    (trial,) = answer(search, 1, create(0.5))
    search.validation(trial.request_id, {"loss": 1.0}, 1)
    answer(search, 2, {"pause": 0})
    assert method.open
    assert not search.over
    assert search.exited(trial.request_id) == []
    assert not search.over
    (last,) = answer(search, 3, {"finish": True})
    assert isinstance(last, Shutdown)


def test_rebuilt_search_has_had_the_same_answers() -> None:
    search, _ = begun()
    snapshot = search.snapshot()
    (trial,) = answer(search, 1, create(0.5), state=[1])
    search.validation(trial.request_id, {"loss": float("nan")}, 1)
    events = [SearchEvent(*event) for event in search.take_events()]
    rebuilt = Search.restore(SECTION, SPACE, snapshot)
    rebuilt.replay(events)
    assert rebuilt.snapshot() == search.snapshot()
    assert isinstance(rebuilt.method, Custom)
    ((_, question),) = rebuilt.method.waiting(0, 9)
    assert question.metrics == {"loss": None}
    assert question.complaint == "the validation's loss is nan, not a number"


@pytest.mark.parametrize(
    ("operations", "sentence"),
    [
        ({}, "operations: a list is wanted"),
        ([{"create": {"hparams": {}}}], "operations[0]: create: hparams give no value to lr"),
        ([{"create": {"hparams": {"lr": 1}, "parent": 0}}], "operations[0]: create: there is no trial number 0 to be"),
        ([{"create": {"hparams": {"lr": float("nan")}}}], "operations[0].create.hparams: NaN and infinity are no"),
        ([{"create": {"lr": 1}}], "operations[0].create: a mapping with `hparams` is wanted"),
        ([{"create": {"hparams": {}, "seed": 1}}], "operations[0].create: there is no key seed"),
        ([create(1), {"stop": "0"}], "operations[1].stop: the number of a trial is wanted"),
        ([{"stop": 3}], "operations[0]: the searcher asked to stop trial number 3, which is not there"),
        ([create(1), create(1), create(1)], "operations[2]: create: searcher.max_concurrent_trials is 2, and as many"),
        ([create(1), {"finish": True}, create(1)], "operations[2]: create: the search was finished"),
        ([{"finish": True}], "operations: a search that finishes without having created a trial has no result"),
        ([{"sleep": 1}], "operations[0]: a mapping with one key is wanted, one of create, stop"),
        ([{"progress": 2}], "operations[0].progress: a number from 0 to 1 is wanted"),
    ],
)
def test_answers_that_make_no_sense(operations: Any, sentence: str) -> None:
    search, _ = begun(max_concurrent_trials=2)

    def take() -> None:
        parse_operations(operations)
        search.instructed(1, {"operations": operations, "state": None})

    with pytest.raises(SearchError) as error:
        take()
    assert str(error.value).startswith(sentence)


def test_only_the_next_question_can_be_answered() -> None:
    search, method = begun()
    answer(search, 1, create(0.5))
    assert method.answered(1)
    assert not method.answered(2)
    with pytest.raises(SearchError, match="there is no question 2: the last one is 1"):
        answer(search, 2)


def test_validations_that_nobody_reads_are_thinned() -> None:
    search, method = begun()
    creates = [each for each in answer(search, 1, create(0.5), create(0.6)) if isinstance(each, Create)]
    for step in range(1, MOST_WAITING + 50):
        search.validation(creates[0].request_id, {"loss": 1.0}, step)
    search.validation(creates[1].request_id, {"loss": 1.0}, 1)
    waiting = [question for _, question in method.waiting(0, 10**6)]
    assert len(waiting) == MOST_WAITING + 1
    assert waiting[0].time == 1, "it may be with the program already"
    assert (waiting[-1].trial, waiting[1].time) == (1, MOST_WAITING + 49)
