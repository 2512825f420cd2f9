"""The master is killed or away, and comes back: no job is lost or doubled, no report is missing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, validations, wait_ended, wait_for

SEARCH = trainings.experiment(
    trainings.asha(12, 8), epochs=8, pause=0.15, value={"type": "double", "minval": 1, "maxval": 9}
)


def test_search_survives_ten_kills_of_master(own_master: MasterProcess) -> None:
    own_master.start()
    number = own_master.client().create_experiment(SEARCH, files(train__py=trainings.COUNTING)).id
    moments = random.Random(4)
    for _ in range(10):
        time.sleep(moments.uniform(0.05, 1.2))  # the moment is the input here, not a wait for something
        own_master.kill()
        own_master.start()
    master = own_master.client()
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    assert len(trials) == 12
    reported = validations(master, [trial.id for trial in trials])
    for trial in trials:
        text = log_text(master, trial.id)
        assert trial.state == "COMPLETED", trial.reason
        assert (trial.attempts, trial.restarts) == (1, 0), text
        assert text.count("starting after epoch") == 1, "a job ran twice"
        assert reported[trial.id] == list(range(1, trial.batches + 1)), "a report is missing or doubled"
        assert trial.summary["avg_metrics"]["loss"]["count"] == trial.batches
        # One that is stopped goes on while the master is away.
        assert trial.batches == 8 or (trial.batches >= 2 and trial.stop_cause == "searcher")
    assert not own_master.errors()


def test_hyperparameters_do_not_depend_on_restarts(own_master: MasterProcess, local: MasterProcess) -> None:
    undisturbed = local.client()
    expected = undisturbed.create_experiment(SEARCH, files(train__py=trainings.COUNTING)).id
    own_master.start()
    number = own_master.client().create_experiment(SEARCH, files(train__py=trainings.COUNTING)).id
    for _ in range(3):
        time.sleep(0.4)
        own_master.kill()
        own_master.start()
    master = own_master.client()
    wait_ended(master, number)
    wait_ended(undisturbed, expected)
    assert [t.hparams for t in master.trials(number)] == [t.hparams for t in undisturbed.trials(expected)]


def test_trial_that_ends_during_master_outage_loses_nothing(own_master: MasterProcess) -> None:
    own_master.start()
    master = own_master.client()
    gate = own_master.folder / "gate"
    text = trainings.experiment(epochs=12, save_at=6, wait_at=2, wait_for=str(gate))
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 2 for t in master.trials(number)), "the trial to report")
    own_master.kill()
    gate.touch()
    # The runtime gives an unreachable master ten seconds at the end, then leaves its reports in the job folder.
    folders = own_master.data / "jobs"
    wait_for(lambda: list(folders.glob("**/exit/0.json")), "the job to end by itself", 90)
    own_master.start()
    master = own_master.client()
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.batches, trial.attempts, trial.restarts) == (12, 1, 0)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 13))
    assert trial.summary["validation_metrics"]["error"]["count"] == 12
    assert len(master.checkpoints(number)) == 2
    assert "starting after epoch 0" in log_text(master, trial.id)


def test_job_that_ends_while_master_hangs_loses_nothing(own_master: MasterProcess) -> None:
    own_master.start()
    master = own_master.client()
    gate = own_master.folder / "gate"
    text = trainings.experiment(epochs=8, wait_at=2, wait_for=str(gate))
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 2 for t in master.trials(number)), "the trial to report")
    os.kill(own_master.pid, signal.SIGSTOP)
    try:
        gate.touch()
        folders = own_master.data / "jobs"
        wait_for(lambda: list(folders.glob("**/exit/0.json")), "the word on disk", 90)
        # Each call that is not answered would be given a minute, and there are three to make.
        wait_for(lambda: list(folders.glob("**/.local/ended")), "the job to leave", 45)
    finally:
        os.kill(own_master.pid, signal.SIGCONT)
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.batches, trial.attempts, trial.restarts) == (8, 1, 0)
    assert validations(master, [trial.id])[trial.id] == list(range(1, 9))
    assert not own_master.errors()


def test_restarted_master_keeps_cluster_id_and_experiments(own_master: MasterProcess) -> None:
    own_master.start()
    first = own_master.client()
    number = first.create_experiment(trainings.experiment(epochs=2), files(train__py=trainings.COUNTING)).id
    wait_ended(first, number)
    cluster = first.info()["clusterId"]
    own_master.stop()
    own_master.start()
    again = own_master.client()
    assert again.info()["clusterId"] == cluster
    assert again.experiment(number).state == "COMPLETED"
    assert only_trial(again, number).batches == 2


def test_job_lost_without_trace_is_restarted_without_charge(own_master: MasterProcess) -> None:
    own_master.start()
    master = own_master.client()
    text = trainings.experiment(epochs=10, save_at=2, stay_at=3)
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: any(t.batches >= 3 for t in master.trials(number)), "the trial to report")
    kill_everything_of_the_job(own_master)
    ended_as(master, number, "COMPLETED", 120)
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts, trial.batches) == (2, 0, 10)
    assert "no restart is charged" in log_text(master, trial.id)


def kill_everything_of_the_job(process: MasterProcess) -> None:
    """As a node that loses power: every process that works in the job's folder, at once."""
    marks = str(process.data / "jobs")
    victims: set[int] = set()
    while more := working_in(marks) - victims - {process.pid, os.getpid()}:  # what they start before they stop
        victims |= more
        for pid in more:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
    assert victims
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def working_in(folder: str) -> set[int]:
    """Processes that have the folder in their command line or environment."""
    found = set()
    for proc in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (proc / "cmdline").read_bytes().decode(errors="replace")
            environment = (proc / "environ").read_bytes().decode(errors="replace")
            if folder in command or f"={folder}" in environment:
                found.add(int(proc.name))
    return found
