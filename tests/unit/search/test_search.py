"""What a search does about odd, late and repeated reports, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.master.search import Action, Create, ExitReason, Search, SearchError, Shutdown, StopTrial

SPACE = {"x": {"type": "double", "minval": 0, "maxval": 1}}
ASHA = {
    "name": "async_halving", "metric": "loss", "time_metric": "epochs", "num_rungs": 3, "divisor": 3,
    "max_time": 9, "max_trials": 9, "max_concurrent_trials": 3,
}  # fmt: skip
RANDOM = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 2}


def begin(searcher: dict[str, Any]) -> tuple[Search, list[str]]:
    search, actions = Search.start(searcher, SPACE, 3)
    return search, created(actions)


def created(actions: list[Action]) -> list[str]:
    return [action.request_id for action in actions if isinstance(action, Create)]


def stopped(actions: list[Action]) -> list[str]:
    return [action.request_id for action in actions if isinstance(action, StopTrial)]


@pytest.mark.parametrize(
    "value", [float("nan"), "NaN", float("inf"), float("-inf"), "Infinity", "0.1", None, True, [1], 10**400]
)
def test_a_metric_that_is_no_number_stops_its_trial_only(value: Any) -> None:
    search, [first, second, _] = begin(ASHA)
    actions = search.validation(first, {"loss": value, "epochs": 1}, 10)
    assert stopped(actions) == [first]
    assert len(created(actions)) == 1
    assert "not a number: counted as the worst" in actions[0].why
    assert search.validation(second, {"loss": 5.0, "epochs": 1}, 10) == []  # ranks before it


def test_a_missing_metric_names_those_that_are_there() -> None:
    search, [first, *_] = begin(ASHA)
    (stop, _) = search.validation(first, {"accuracy": 1, "epochs": 1}, 10)
    assert stop.why == "the validation has no metric loss (its metrics: accuracy, epochs): counted as the worst"


def test_the_reason_says_rung_rank_and_cut() -> None:
    search, [first, second, _] = begin({**ASHA, "time_metric": "epochs"})
    assert search.validation(first, {"loss": 1, "epochs": 1}, 10) == []
    (stop, create) = search.validation(second, {"loss": 2, "epochs": 2.5}, 25)
    assert stop.why == "rung 1 (1 epochs): rank 2 of 2 on loss, the best 1 go on"
    assert create.why == "trial 4 of 9 random points"
    (stop, _) = search.validation(first, {"loss": 1, "epochs": 9}, 90)
    assert stop.why == "rung 3 (9 epochs): rank 1 of 1 on loss, the top rung"


def test_ties_go_on() -> None:
    search, [first, second, _] = begin(ASHA)
    assert search.validation(first, {"loss": 1, "epochs": 1}, 1) == []
    assert search.validation(second, {"loss": 1, "epochs": 1}, 1) == []


def test_larger_is_better_turns_the_ranking() -> None:
    search, [first, second, _] = begin({**ASHA, "smaller_is_better": False})
    search.validation(first, {"loss": 1, "epochs": 1}, 1)
    assert search.validation(second, {"loss": 2, "epochs": 1}, 1) == []


@pytest.mark.parametrize("metrics", [{"loss": 3}, {"loss": 3, "epochs": "NaN"}, {"loss": 3, "epochs": None}])
def test_trial_without_the_time_metric_is_stopped_with_a_sentence(metrics: dict[str, Any]) -> None:
    search, [first, second, _] = begin(ASHA)
    search.validation(first, {"loss": 5, "epochs": 1}, 1)
    actions = search.validation(second, metrics, 1)
    assert stopped(actions) == [second]
    assert actions[0].why.startswith("the validation has no time metric epochs (its metrics: ")


def test_steps_stand_in_for_batches() -> None:
    search, [first, second, _] = begin({**ASHA, "time_metric": "batches"})
    search.validation(first, {"loss": 1}, 1)
    assert stopped(search.validation(second, {"loss": 3}, 1)) == [second]


def test_a_repeated_or_older_report_changes_nothing() -> None:
    search, [first, *_] = begin(ASHA)
    assert search.validation(first, {"loss": 1, "epochs": 3}, 30) == []
    before = search.snapshot()
    assert search.validation(first, {"loss": 1, "epochs": 3}, 30) == []
    assert search.validation(first, {"loss": 99, "epochs": 1}, 10) == []
    assert search.validation(first, {"loss": float("nan"), "epochs": 2}, 20) == []
    assert search.validation("nobody", {"loss": 1, "epochs": 3}, 30) == []
    assert search.snapshot() == before


def test_a_stopped_trial_never_re_enters() -> None:
    search, [first, *_] = begin(ASHA)
    assert stopped(search.validation(first, {"loss": "NaN", "epochs": 1}, 1)) == [first]
    before = search.snapshot()
    assert search.validation(first, {"loss": -1, "epochs": 9}, 9) == []
    assert search.snapshot() == before
    assert search.exited(first) == []
    assert search.exited(first) == []
    assert search.exited_early(first, ExitReason.ERRORED) == []


def test_a_stopped_trial_is_not_replaced_twice() -> None:
    for reason in ExitReason:
        search, [first, *_] = begin(ASHA)
        assert len(created(search.validation(first, {"loss": "NaN", "epochs": 1}, 1))) == 1
        assert search.exited_early(first, reason) == []


@pytest.mark.parametrize("reason", [None, *ExitReason])
def test_an_early_end_makes_room_for_the_next_trial(reason: ExitReason | None) -> None:
    search, [first, *_] = begin(ASHA)
    search.validation(first, {"loss": 1, "epochs": 1}, 1)
    actions = search.exited(first) if reason is None else search.exited_early(first, reason)
    assert len(created(actions)) == 1


def test_failed_trial_ranks_worst_and_invalid_one_is_unranked() -> None:
    for reason, rank in ((ExitReason.ERRORED, "rank 2 of 3"), (ExitReason.INVALID_HP, "rank 2 of 2")):
        search, [first, second, third] = begin(ASHA)
        search.exited_early(first, reason)
        assert search.validation(second, {"loss": 1, "epochs": 1}, 1) == []
        (stop, _) = search.validation(third, {"loss": 2, "epochs": 1}, 1)
        assert rank in stop.why


def test_refused_points_are_replaced_but_not_for_ever() -> None:
    searchers: list[dict[str, Any]] = [RANDOM, ASHA]
    for searcher in searchers:
        search, queue = begin(searcher)
        total = len(queue)
        while queue:
            actions = search.exited_early(queue.pop(), ExitReason.INVALID_HP)
            queue += created(actions)
            total += len(created(actions))
        assert total == 2 * searcher["max_trials"]
        assert actions[-1] == Shutdown(False, True, f"all {total} trials have ended: {total} had invalid points")


@pytest.mark.parametrize(
    ("ends", "cancel", "failure"),
    [
        ([None] * 3, False, False),
        ([ExitReason.USER_CANCELED] * 3, True, False),
        ([ExitReason.ERRORED] * 3, False, True),
        ([ExitReason.ERRORED, None, ExitReason.ERRORED], False, False),
        ([ExitReason.INVALID_HP] + [ExitReason.ERRORED] * 3, False, True),
        ([ExitReason.INVALID_HP, None, None, None], False, False),
    ],
)
def test_how_a_search_ends(ends: list[ExitReason | None], cancel: bool, failure: bool) -> None:
    search, queue = begin(RANDOM)
    for reason in ends:
        trial = queue.pop(0)
        actions = search.exited(trial) if reason is None else search.exited_early(trial, reason)
        queue += created(actions)
    assert not queue
    assert isinstance(actions[-1], Shutdown)
    assert (actions[-1].cancel, actions[-1].failure) == (cancel, failure)
    assert search.progress() == 1.0
    assert search.exited(trial) == []


def test_single_is_over_with_its_trial() -> None:
    for reason, outcome in ((ExitReason.ERRORED, (False, True)), (ExitReason.USER_CANCELED, (True, False))):
        search, [trial] = begin({"name": "single", "metric": "loss"})
        (end,) = search.exited_early(trial, reason)
        assert isinstance(end, Shutdown)
        assert (end.cancel, end.failure) == outcome


def test_progress_goes_up_with_the_trials() -> None:
    search, [first, second] = begin(RANDOM)
    assert search.progress() == 0
    search.progressed(first, 0.5)
    assert search.progress() == pytest.approx(0.5 / 3)
    search.progressed(first, 0.2)  # restarted
    search.progressed(first, float("nan"))
    search.progressed("nobody", 1.0)
    assert search.progress() == pytest.approx(0.5 / 3)
    search.progressed(second, 7.0)
    assert search.progress() == pytest.approx(1.5 / 3)
    search.exited(first)
    assert search.progress() == pytest.approx(2 / 3)


def test_an_asha_search_tells_its_rungs() -> None:
    search, [first, second, _] = begin(ASHA)
    search.validation(first, {"loss": 1, "epochs": 1}, 1)
    search.validation(second, {"loss": 2, "epochs": 1}, 1)
    assert search.describe() == (
        "rung 1 of 3 (1 epochs): 2 running, 1 stopped; rung 2 of 3 (3 epochs): 1 running, 0 stopped; "
        "rung 3 of 3 (9 epochs): 0 running, 0 stopped"
    )
    assert search.progress() == pytest.approx(2 / (1.2 * 9))
    assert begin(RANDOM)[0].describe() == "0 of 3 trials ended, 2 running"


def test_brackets_wait_for_a_place() -> None:
    searcher = {**ASHA, "name": "adaptive_asha", "mode": "conservative", "max_concurrent_trials": 1}
    search, [first] = begin(searcher)
    assert search.describe().count("waiting") == 2
    assert created(search.exited(first)) != []


def test_snapshot_of_other_version_or_config_is_rejected() -> None:
    search, _ = begin(ASHA)
    with pytest.raises(SearchError, match="version 99, this master reads versions up to 2"):
        Search.restore(ASHA, SPACE, {**search.snapshot(), "version": 99})
    with pytest.raises(SearchError, match="does not fit its configuration"):
        Search.restore({**ASHA, "num_rungs": 2}, SPACE, search.snapshot())
    with pytest.raises(SearchError, match="does not fit its configuration"):
        Search.restore(RANDOM, SPACE, search.snapshot())
