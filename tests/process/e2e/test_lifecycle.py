"""Pause, activate, cancel, kill, restarts and endings: on a real master with real jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, validations, wait_ended, wait_for
from trainmaster.client.errors import APIError, NoSuchThing
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport


def create(master: Master, text: str, script: str = trainings.COUNTING) -> int:
    return master.create_experiment(text, files(train__py=script)).id


def wait_for_steps(master: Master, experiment_id: int, steps: int) -> None:
    wait_for(
        lambda: any(trial.batches >= steps for trial in master.trials(experiment_id)),
        f"step {steps} of experiment {experiment_id}",
    )


def story(master: Master, trial_id: int) -> str:
    return " ".join(f"{event.event} {event.why}" for event in master.story(trial_id))


def test_a_trial_runs_to_its_end(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=3))
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.state, trial.batches, trial.restarts, trial.best_metric) == ("COMPLETED", 3, 0, pytest.approx(1 / 3))  # type: ignore[comparison-overlap]
    assert validations(master, [trial.id]) == {trial.id: [1, 2, 3]}
    assert trial.summary["avg_metrics"]["loss"]["count"] == 3
    assert trial.summary["validation_metrics"]["error"]["min"] == pytest.approx(1 / 3)
    (checkpoint,) = master.checkpoints(number)
    assert checkpoint.steps_completed == 3
    assert checkpoint.metric == pytest.approx(1 / 3)
    assert "starting after epoch 0" in log_text(master, trial.id)


def test_paused_trial_saves_and_resumes_from_checkpoint(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=10, stay_at=2))
    wait_for_steps(master, number, 2)
    master.pause(number)
    assert master.experiment(number).state == "PAUSED"
    wait_for(lambda: all(a.get("endTime") for a in allocations(master, number)), "the job to leave")
    assert only_trial(master, number).state == "PAUSED"
    saved = only_trial(master, number).batches
    assert master.checkpoints(number)[0].steps_completed == saved
    master.activate(number)
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert trial.restarts == 0
    assert f"starting after epoch {saved}" in log_text(master, trial.id)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 11))


def allocations(master: Master, number: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = master.task(only_trial(master, number).task_id)["allocations"]
    return found


def test_an_experiment_created_paused_waits(local: MasterProcess) -> None:
    master = local.client()
    made = master.create_experiment(trainings.experiment(epochs=1), files(train__py=trainings.COUNTING), activate=False)
    assert made.state == "PAUSED"
    assert allocations(master, made.id) == []
    master.activate(made.id)
    ended_as(master, made.id, "COMPLETED")


def test_cancelling_lets_the_trial_save_first(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=100_000))
    wait_for_steps(master, number, 2)
    master.cancel(number)
    ended_as(master, number, "CANCELED")
    trial = only_trial(master, number)
    assert trial.state == "CANCELED"
    assert master.checkpoints(number)[0].steps_completed == trial.batches


@pytest.mark.parametrize("deaf", [False, True])
def test_killing_ends_it_at_once(local: MasterProcess, deaf: bool) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=100_000, deaf=deaf))
    wait_for_steps(master, number, 2)
    master.kill(number)
    ended_as(master, number, "CANCELED")
    assert only_trial(master, number).state == "CANCELED"


def test_killing_one_trial_leaves_the_others(local: MasterProcess) -> None:
    master, gate = local.client(), local.folder / "gate-of-the-killed"
    searcher = {"name": "random", "metric": "error", "max_trials": 2}
    number = create(master, trainings.experiment(searcher, epochs=3, wait_at=1, wait_for=str(gate)))
    wait_for_steps(master, number, 1)
    first, second = master.trials(number)
    master.kill_trial(first.id)
    wait_for(lambda: master.trial(first.id).state == "CANCELED", "the end of the killed trial")
    gate.touch()
    ended_as(master, number, "COMPLETED")
    assert [trial.state for trial in master.trials(number)] == ["CANCELED", "COMPLETED"]
    assert "killed by determined" in story(master, first.id)
    assert master.trial(second.id).batches == 3


def test_a_trial_that_does_not_listen_is_ended_after_its_time(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=100_000, deaf=True, keys={"preemption_timeout": 1}))
    wait_for_steps(master, number, 1)
    master.cancel(number)
    ended_as(master, number, "CANCELED")
    assert "did not leave in time" in log_text(master, only_trial(master, number).id)


def test_a_failure_is_restarted_from_the_latest_checkpoint(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=6, save_at=3, fail_at=4, keys={"max_restarts": 2}))
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.restarts, trial.attempts) == (1, 2)
    text = log_text(master, trial.id)
    assert "exit code 3" in text
    assert "Restart 1 of 2, from the latest checkpoint" in text
    assert "starting after epoch 3" in text
    # Epoch 4 was reported by both attempts; the first one's report is put aside.
    assert validations(master, [trial.id])[trial.id] == [1, 2, 3, 4, 5, 6]


def test_without_restarts_left_it_ends_in_error_with_the_reason(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=6, fail_at=1, fail_times=9, keys={"max_restarts": 1}))
    ended = wait_ended(master, number)
    trial = only_trial(master, number)
    assert (ended.state, trial.state, trial.restarts, trial.attempts) == ("ERROR", "ERROR", 1, 2)
    assert "exit code 3" in trial.reason
    assert "max_restarts: 1" in trial.reason


def test_a_signal_is_named(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=3, die_at=1, keys={"max_restarts": 1}))
    ended_as(master, number, "COMPLETED", 180)
    assert "signal 9" in log_text(master, only_trial(master, number).id)


def test_invalid_hyperparameters_are_replaced(local: MasterProcess) -> None:
    master = local.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_concurrent_trials": 1}
    number = create(
        master, trainings.experiment(searcher, x={"type": "int", "minval": 0, "maxval": 9}), trainings.INVALID
    )
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    assert sum(trial.hparams["x"] >= 5 for trial in trials) == 3 or len(trials) == 6
    assert all(trial.state == "COMPLETED" for trial in trials)
    refused = [trial for trial in trials if trial.hparams["x"] < 5]
    assert all(trial.stop_cause == "invalid_hp" for trial in refused)


def test_early_stopping_stops_each_trial_at_its_rung(local: MasterProcess) -> None:
    master = local.client()
    text = trainings.experiment(
        trainings.asha(8, 8), epochs=8, pause=0.02, value={"type": "double", "minval": 1, "maxval": 9}
    )
    number = create(master, text)
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    ran = sorted(trial.batches for trial in trials)
    assert len(trials) == 8
    assert set(ran) <= {2, 4, 8}, "a trial went on after the searcher had stopped it"
    assert ran[0] == 2
    assert sum(ran) < 8 * 8
    stopped = [trial for trial in trials if trial.batches == 2]
    assert all(trial.stop_cause == "searcher" and "rung 1" in story(master, trial.id) for trial in stopped)


def test_a_nan_metric_ends_that_trial_and_not_the_experiment(local: MasterProcess) -> None:
    master = local.client()
    text = trainings.experiment(
        trainings.asha(4, 4), epochs=4, pause=0.02, nan={"type": "categorical", "vals": [True, False]}
    )
    number = create(master, text)
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    assert {trial.hparams["nan"] for trial in trials} == {True, False}, "the seed no longer draws both values"
    for trial in trials:
        assert trial.state == "COMPLETED"
        assert (trial.batches == 1) if trial.hparams["nan"] else (trial.best_metric is not None)


def test_one_seed_gives_the_same_trials(local: MasterProcess) -> None:
    master = local.client()
    nested = {
        "inner": {"b": {"type": "int", "minval": 0, "maxval": 99}, "a": {"type": "double", "minval": 0, "maxval": 1}}
    }
    text = trainings.experiment(
        trainings.asha(6, 4), epochs=4, pause=0.01, value={"type": "double", "minval": 1, "maxval": 9}, **nested
    )
    found = []
    for _ in range(2):
        number = create(master, text)
        ended_as(master, number, "COMPLETED")
        found.append(
            [(trial.hparams, trial.raw["id"] and trial.task_id.partition(".")[2]) for trial in master.trials(number)]
        )
    assert found[0] == found[1]
    assert len(found[0]) == 6


def test_deleting_removes_rows_and_files(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=1))
    with pytest.raises(APIError, match="kill it before deleting it"):
        master.delete_experiment(number)
    wait_ended(master, number)
    checkpoint = master.checkpoints(number)[0]
    folder = Path(checkpoint.storage["host_path"]) / checkpoint.uuid
    assert folder.is_dir()
    cluster = Transport(local.url).request("GET", "/info")["cluster_id"]
    (trial,) = master.trials(number)
    events = folder.parent / str(cluster) / "tensorboard" / "experiment" / str(number)
    (events / "trial" / str(trial.id) / "empty").mkdir(parents=True, exist_ok=True)
    (events / "trial" / str(trial.id) / "events.out").write_text("an event")
    master.delete_experiment(number)

    def gone() -> bool:
        try:
            master.experiment(number)
        except NoSuchThing:
            return True
        return False

    wait_for(gone, "the experiment to be deleted")
    assert not folder.exists()
    assert not events.exists()


def test_pausing_completed_experiment_is_rejected(local: MasterProcess) -> None:
    master = local.client()
    number = create(master, trainings.experiment(epochs=1))
    wait_ended(master, number)
    with pytest.raises(APIError, match="COMPLETED and cannot be paused") as refused:
        master.pause(number)
    assert refused.value.status == 409
    master.kill(number)  # what has ended is as dead as was asked for


def test_max_slots_limits_slots_of_experiment(local: MasterProcess) -> None:
    """There would be room for more of its trials, and the pool's own scheduler does not know of `max_slots`."""
    master, gate = local.client(), local.folder / "gate-of-max-slots"
    searcher = {"name": "random", "metric": "error", "max_trials": 5}
    keys = {"resources": {"slots_per_trial": 1, "max_slots": 2}}
    gated = {"wait_at": 1, "wait_for": str(gate)}
    number = create(master, trainings.experiment(searcher, epochs=2, keys=keys, **gated))
    wait_for(lambda: sum(trial.batches >= 1 for trial in master.trials(number)) == 2, "the first report of two trials")
    wait_for(
        lambda: (
            any("holds as many slots as it may (max_slots: 2)" in job.explanation for job in master.jobs())
            or any("(max_slots: 2)" in log_text(master, trial.id) for trial in master.trials(number))
        ),
        "the word about the limit",
    )
    tasks = [master.task(trial.task_id) for trial in master.trials(number)]
    submitted = [a for task in tasks for a in task["allocations"] if a.get("jobId")]
    assert len(submitted) == 2
    gate.touch()
    ended_as(master, number, "COMPLETED")


def test_job_reports_take_effect_between_scheduler_polls(own_master: MasterProcess) -> None:
    """One trial follows the other, each is ended by its own word, and the cluster is looked at once an hour."""
    own_master.config.write_text("resource_manager: {type: local, slots: 1, poll_interval: 3600}\n")
    own_master.start()
    master = own_master.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_concurrent_trials": 1}
    number = create(master, trainings.experiment(searcher, epochs=2))
    ended_as(master, number, "COMPLETED", 90)
    number = create(master, trainings.experiment(epochs=6000))
    wait_for_steps(master, number, 1)
    master.pause(number)
    trial = only_trial(master, number)
    wait_for(lambda: master.trial(trial.id).state == "PAUSED" and not _live(master, trial.id), "the end of its attempt")


def _live(master: Master, trial_id: int) -> bool:
    allocations = master.task(master.trial(trial_id).task_id)["allocations"]
    return any(one["state"] != "STATE_TERMINATED" for one in allocations)
