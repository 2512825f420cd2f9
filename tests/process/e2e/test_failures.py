"""Why trials and experiments failed, as their users read it, and what is not tried again: on real jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, wait_ended, wait_for
from trainmaster.client.master import Master

BROKEN = """
import sys
from trainmaster import core
x = core.get_cluster_info().trial.hparams["x"]
{code}
"""
SAME = BROKEN.format(code="import no_such_package")
# No two of eight trials share a cause, in whatever order they end.
OWN = BROKEN.format(code="raise ValueError('abcdefgh'[core.get_cluster_info().trial.trial_id % 8])")


def search(master: Master, script: str, trials: int = 8, **keys: Any) -> int:
    config = {
        "name": "broken",
        "entrypoint": "python3 train.py",
        "hyperparameters": {"x": {"type": "double", "minval": 0, "maxval": 1}},
        "searcher": {"name": "random", "metric": "loss", "max_trials": trials, "max_concurrent_trials": 4},
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 1},
        **keys,
    }
    return master.create_experiment(json.dumps(config), files(train__py=script)).id


def test_the_reason_of_a_failed_experiment_is_its_cause(local: MasterProcess) -> None:
    master = local.client()
    number = search(master, SAME, trials=2)
    reason = wait_ended(master, number).reason
    first = min(trial.id for trial in master.trials(number))
    assert reason.startswith(f"trial {first} failed: The training code ended with exit code 1")
    assert "No module named 'no_such_package'" in reason
    assert reason.endswith("(2 of 2 failed trials have this cause)")


def test_search_with_same_early_failures_is_paused_once(local: MasterProcess) -> None:
    master = local.client()
    number = search(master, SAME, failure_fuse=3, max_restarts=2)
    wait_for(lambda: master.experiment(number).state == "PAUSED", "the fuse to blow")
    reason = master.experiment(number).reason
    assert reason.startswith("The first 3 trials all failed within 60 s for the same cause, so the search is paused.")
    assert "No module named 'no_such_package'" in reason
    logs = [log_text(master, trial.id) for trial in master.trials(number)]
    assert sum("so the search is paused" in log for log in logs) == 1
    master.activate(number)
    ended_as(master, number, "ERROR")
    assert len(master.trials(number)) == 8


@pytest.mark.parametrize(
    ("script", "keys"),
    [(SAME, {"failure_fuse": 0}), (SAME, {"trials": 5}), (OWN, {"failure_fuse": 2})],
    ids=["switched off", "a small search", "several causes"],
)
def test_other_searches_are_not_paused(local: MasterProcess, script: str, keys: dict[str, Any]) -> None:
    master = local.client()
    number = search(master, script, **keys)
    wait_for(lambda: master.experiment(number).state in ("PAUSED", "ERROR"), "its end", 90)
    assert master.experiment(number).state == "ERROR"


def test_a_failed_trial_s_sentence_is_its_experiment_s(local: MasterProcess) -> None:
    master = local.client()
    config = {
        "name": "one",
        "entrypoint": "exit 3",
        "searcher": {"name": "single", "metric": "loss"},
        "max_restarts": 0,
    }
    number = master.create_experiment(json.dumps(config)).id
    trial_reason = (wait_ended(master, number), only_trial(master, number).reason)[1]
    assert master.experiment(number).reason == f"trial {only_trial(master, number).id} failed: {trial_reason}"


# -- what has no effect -------------------------------------------------------------------------------------------


def test_ineffective_mounts_are_named_at_creation_and_in_log(local: MasterProcess) -> None:
    master = local.client()
    config = {
        "name": "mounts",
        "entrypoint": "ls data",
        "searcher": {"name": "single", "metric": "loss"},
        "bind_mounts": [{"host_path": "/usr/share", "container_path": "data"}],
        "environment": {"image": "python:3.12"},
        "max_restarts": 0,
    }
    said: list[str] = []
    number = master.create_experiment(json.dumps(config), notice=said.append).id
    wait_ended(master, number)
    log = log_text(master, only_trial(master, number).id)
    lines = [
        "environment.image has no effect: a job without a container runs with the programs of its node.",
        "bind_mounts (data) has no effect: a job without a container sees the files of its node under their own paths.",
    ]
    assert said == lines
    assert all(line in log for line in lines)


# -- what is final ------------------------------------------------------------------------------------------------

REPORTING = """
from trainmaster import core
with core.init() as context:
    with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
        pass
"""
S3 = {"type": "s3", "bucket": "b"}
NOWHERE = {"type": "shared_fs", "host_path": "/dev/null"}


@pytest.mark.parametrize(
    ("entrypoint", "script", "keys", "words"),
    [
        ("python3 train.py", REPORTING, {"checkpoint_storage": S3}, "give the experiment a key of its own"),
        (
            "python3 train.py",
            REPORTING,
            {"checkpoint_storage": {"type": "shared_fs", "host_path": "/dev/null"}},
            "made",
        ),
        ("python3 train.py", "def broken(:", {}, "SyntaxError"),
    ],
)
def test_a_final_fault_is_not_tried_again(
    local: MasterProcess, entrypoint: str, script: str, keys: dict[str, Any], words: str
) -> None:
    master = local.client()
    searcher = {"name": "single", "metric": "loss"}
    config = {"name": "final", "entrypoint": entrypoint, "searcher": searcher, "max_restarts": 3, **keys}
    number = master.create_experiment(json.dumps(config), files(train__py=script)).id
    reason = wait_ended(master, number).reason
    trial = only_trial(master, number)
    assert (trial.state, trial.restarts) == ("ERROR", 0), reason
    assert words in reason
    assert "it is not tried again: " in reason


def test_other_faults_are_tried_again(local: MasterProcess) -> None:
    master = local.client()
    searcher = {"name": "single", "metric": "loss"}
    config = {"name": "again", "entrypoint": "python3 train.py", "searcher": searcher, "max_restarts": 1}
    number = master.create_experiment(json.dumps(config), files(train__py="import no_such_module")).id
    wait_ended(master, number)
    assert only_trial(master, number).restarts == 1
