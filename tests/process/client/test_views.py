"""The calls behind the web page as the SDK gives them, on a search that has run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import trainings
from tests.support.master import MasterProcess, files, serving
from trainmaster.client import APIError, Master, NoSuchThing
from trainmaster.client.experiment import Experiment
from trainmaster.client.views import by_name

TRAINING = """
from trainmaster import core

with core.init() as context:
    rate = core.get_cluster_info().trial.hparams["rate"]
    for epoch in (1, 2, 3, 4):
        context.train.report_validation_metrics(epoch * 10, {"loss": rate / epoch, "epochs": epoch})
        if context.preempt.should_preempt():
            break
"""
CONFIG = {
    "name": "race",
    "entrypoint": "python3 train.py",
    "hyperparameters": {"rate": {"type": "double", "minval": 1.0, "maxval": 2.0}, "width": 8},
    "searcher": {
        **{"name": "async_halving", "metric": "loss", "time_metric": "epochs", "num_rungs": 2, "divisor": 2},
        **{"max_time": 4, "max_trials": 3, "max_concurrent_trials": 1},
    },
}


@pytest.fixture(scope="module")
def process() -> Iterator[MasterProcess]:
    with serving("resource_manager: {type: local, slots: 2, poll_interval: 0.2}\n") as process:
        yield process


@pytest.fixture(scope="module")
def master(process: MasterProcess) -> Master:
    return process.client()


@pytest.fixture(scope="module")
def raced(master: Master) -> Experiment:
    ended = master.create_experiment(CONFIG, files(train__py=TRAINING)).wait(0.2)
    assert ended.state == "COMPLETED", ended.reason
    return ended


def test_an_experiment_with_its_curves(master: Master, raced: Experiment) -> None:
    board = master.views.experiment(raced.id, curves=True, x="epochs")
    assert (board.experiment.name, board.experiment.metric, board.experiment.trials) == ("race", "loss", 3)
    assert (board.hparams, dict(board.constants)) == (("rate",), {"width": 8})
    rows = by_name(board)
    assert min(row["best"] for row in rows) == board.experiment.best
    assert board.curves == master.views.curves(raced.id, x="epochs")
    assert board.curves is not None
    assert board.curves.x_name == "epochs"
    assert [bracket.rungs[0].units for bracket in board.brackets] == [2]
    assert master.views.experiment(raced.id).curves is None


def test_the_race_and_the_story(master: Master, raced: Experiment) -> None:
    race = master.views.rungs(raced.id)
    events = by_name(race)
    assert (race.metric, race.total, len(events)) == ("loss", len(race.rows), len(race.rows))
    rates = {trial.id: trial.hparams["rate"] for trial in raced.trials()}
    for event in events:
        assert event["value"] == pytest.approx(rates[event["trial"]] / (2, 4)[event["rung"]])
    story = list(master.views.story(raced.id))
    stops = {one.id: one for one in story if (one.subject, one.event) == ("search", "Stop")}
    assert {event["story"] for event in events if event["decision"] != "goes on"} == set(stops)
    trial = events[0]["trial"]
    assert {one.trial for one in master.views.story(raced.id, trial=trial)} == {trial}


def test_a_trial_with_its_jobs(master: Master, raced: Experiment) -> None:
    trial = raced.best_trial()
    assert trial is not None
    board = master.views.trial(trial.id)
    assert (board.trial.id, board.trial.experiment_id, board.trial.best) == (trial.id, raced.id, raced.best_metric)
    assert board.attempts == master.views.attempts(trial.id)
    assert [attempt.state for attempt in board.attempts] == ["TERMINATED"]
    assert board.curve is not None
    (curve,) = master.views.trial_curves(trial.id, [("validation", "loss")]).curves
    assert curve == board.curve
    assert (curve.x[0], curve.y[0]) == (10, pytest.approx(trial.hparams["rate"], rel=1e-5))  # type: ignore[comparison-overlap]
    assert master.views.machine(trial.id).total >= 0
    assert by_name(master.views.trial_checkpoints(trial.id)) == []


def test_checkpoints_are_rows_of_a_table(master: Master) -> None:
    made = master.create_experiment(trainings.experiment(epochs=2), files(train__py=trainings.COUNTING)).wait(0.2)
    (row,) = by_name(master.views.experiment_checkpoints(made.id))
    assert row["uuid"] == made.best_checkpoint().uuid
    assert master.views.trial_checkpoints(row["trial"]) == master.views.experiment_checkpoints(made.id)


def test_trials_and_experiments_are_compared(master: Master, raced: Experiment) -> None:
    trials = raced.trials()
    found = master.views.compare(trials=[trial.id for trial in trials], x="epochs")
    assert [thing.id for thing in found.things] == [trial.id for trial in trials]
    differing = {one.name: one.values for one in found.settings if len(one.values) > 1}
    assert differing == {"rate": tuple(trial.hparams["rate"] for trial in trials)}
    by_experiment = master.views.compare(experiments=[raced.id, 999_999])
    assert [thing.best for thing in by_experiment.things] == [raced.best_metric]
    assert [one.id for one in by_experiment.missing] == [999_999]
    with pytest.raises(APIError, match="Name what to compare"):
        master.views.compare()


def test_home_shows_pools_and_missing_ids_raise(master: Master, raced: Experiment) -> None:
    home = master.views.home()
    assert home.total >= 1
    assert [pool.slots for pool in home.pools] == [2]
    for call in (master.views.experiment, master.views.rungs, master.views.trial, master.views.attempts):
        with pytest.raises(NoSuchThing, match="999999"):
            call(999_999)


def test_usage_sums_slot_seconds_by_user_and_day(master: Master, raced: Experiment) -> None:
    used = master.views.usage()
    assert [share.name for share in used.users] == ["determined"]
    assert used.slot_seconds == pytest.approx(sum(day.slot_seconds for day in used.days))
    assert used.slot_seconds >= master.views.experiment(raced.id).experiment.slot_seconds > 0
    assert used.nodes == ()
    assert master.views.usage("2020-01-01", "2020-01-31").slot_seconds == 0
    with pytest.raises(APIError, match="must not lie before"):
        master.views.usage("2020-02-01", "2020-01-31")
