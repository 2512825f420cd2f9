"""What the published `det` and SDK change about experiments that are there."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support import trainings
from tests.support.master import files, only_trial, wait_ended, wait_for
from tests.support.reference.batch import batch
from trainmaster.client.master import Master

CHANGES = """
client.login()
experiment = client.get_experiment(int(sys.argv[1]))
experiment.set_name("by the SDK"); experiment.set_description("described"); experiment.set_notes("noted")
experiment.set_labels({"one"}); experiment.add_label("two"); experiment.remove_label("one")
experiment.archive(); experiment.unarchive()
experiment.delete_tensorboard_files()
checkpoint = experiment.list_checkpoints()[0]
checkpoint.add_metadata({"a": 1, "b": 2}); checkpoint.remove_metadata(["b"])
checkpoint.remove_files(["train*"])
experiment.reload()
answer({"labels": sorted(experiment.labels), "name": experiment.name, "notes": experiment.notes,
        "metadata": client.get_checkpoint(checkpoint.uuid).metadata,
        "code": experiment.download_code(sys.argv[2])})
checkpoint.delete()
"""


@pytest.fixture
def ended(running: object, truth: Master) -> int:
    text = trainings.experiment(epochs=2, pause=0.01)
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING)).id
    assert wait_ended(truth, number).state == "COMPLETED"
    return number


def test_det(client: Reference, truth: Master, ended: int) -> None:
    admin = Reference(client.environment, client.master, client.home, user="admin")
    name, number = f"moved-{uuid.uuid4().hex[:8]}", str(ended)
    policy = "--save-experiment-best 0 --save-trial-best 0 --save-trial-latest 0 --yes"
    (trial,) = truth.trials(ended)
    (checkpoint,) = truth.checkpoints(ended)
    list(
        batch(
            admin,
            ["e", "set", "name", number, "by det"],
            f"e set description {number} described",
            f"e set max-slots {number} 4",
            f"e set max-slots {number} none",
            f"e set weight {number} 2.5",
            f"e set priority {number} 9",
            f"e set log-retention {number} --days 9",
            f"trial set log-retention {trial.id} --forever",
            f"e label add {number} one",
            f"e label add {number} two",
            f"e label remove {number} one",
            f"e archive {number}",
            f"e unarchive {number}",
            f"workspace create {name}",
            f"project create {name} there",
            f"e move {number} {name} there",
            f"e delete-tb-files {number}",
            "task cleanup-logs",
            f"checkpoint rm {checkpoint.uuid} --glob state* --yes",
            f"e set gc-policy {number} {policy}",
        )
    )
    found = truth.experiment(ended)
    assert (found.name, found.description, found.labels) == ("by det", "described", ("two",))
    assert (found.workspace, found.project, found.archived) == (name, "there", False)
    config = found.raw["config"]
    assert (config["resources"]["max_slots"], config["resources"]["weight"]) == (None, 2.5)
    assert config["retention_policy"]["log_retention_days"] == 9
    wait_for(lambda: truth.checkpoint(checkpoint.uuid).state == "DELETED", "the checkpoint to go by the policy")


def test_det_continues(client: Reference, truth: Master) -> None:
    text = trainings.experiment(epochs=1, pause=0.01)
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_ended(truth, number)
    client = Reference(client.environment, client.master, client.home, user="admin")
    (said,) = batch(client, f"e continue {number} --config hyperparameters.epochs=3 -f")
    assert f"Continued experiment {number}" in said.out
    assert wait_ended(truth, number).state == "COMPLETED"
    assert only_trial(truth, number).batches == 3


def test_det_continues_search_and_sees_warm_start(client: Reference, truth: Master) -> None:
    client = Reference(client.environment, client.master, client.home, user="admin")
    space = {"epochs": {"type": "categorical", "vals": [1, 2]}, "pause": 0.01}
    keys = {"searcher": {"name": "grid", "metric": "error", "max_concurrent_trials": 1}, "hyperparameters": space}
    text = trainings.experiment(keys=keys)
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING), activate=False).id
    truth.kill(number)
    wait_ended(truth, number)
    (said,) = batch(client, f"e continue {number}")
    assert f"Continued experiment {number}" in said.out
    assert wait_ended(truth, number).state == "COMPLETED"
    found = client.run(_TASKS, str(number))
    assert sorted(len(trial["tasks"]) for trial in found) == [1, 2]
    assert all(trial["state"] == "STATE_COMPLETED" for trial in found)
    for trial in found:
        assert trial["tasks"][1:] == [f"{trial['tasks'][0]}-1"][: len(trial["tasks"]) - 1]
    (refused,) = batch(client, f"!e continue {number}")
    assert "experiment has been completed, cannot continue" in refused.err
    source = found[0]["id"]
    keys = {"searcher": {"name": "single", "metric": "error", "source_trial_id": source}}
    other = truth.create_experiment(trainings.experiment(epochs=3, keys=keys), files(train__py=trainings.COUNTING)).id
    wait_ended(truth, other)
    (trial,) = client.run(_TASKS, str(other))
    assert trial["warm"] in {checkpoint.uuid for checkpoint in truth.checkpoints(number)}
    (log,) = batch(client, f"trial logs {trial['id']}")
    assert "starting after epoch 0" not in log.out  # it has loaded what it began with


_TASKS = """
from determined.common.api import bindings
session = client.Determined()._session
found = bindings.get_GetExperimentTrials(session, experimentId=int(sys.argv[1])).trials
full = [bindings.get_GetTrial(session, trialId=one.id).trial for one in found]
answer([{"id": t.id, "tasks": t.taskIds, "state": t.state.value, "warm": t.warmStartCheckpointUuid} for t in full])
"""


def test_sdk(client: Reference, truth: Master, ended: int, tmp_path: Path) -> None:
    admin = Reference(client.environment, client.master, client.home, user="admin")
    (checkpoint,) = truth.checkpoints(ended)
    found = admin.run(CHANGES, str(ended), str(tmp_path))
    assert (found["name"], found["notes"], found["labels"]) == ("by the SDK", "noted", ["two"])
    assert found["metadata"]["a"] == 1
    assert "b" not in found["metadata"]
    assert Path(found["code"]).exists()
    wait_for(lambda: truth.checkpoint(checkpoint.uuid).state == "DELETED", "the checkpoint to be gone")
