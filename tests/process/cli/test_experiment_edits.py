"""The verbs that change experiments, trials and checkpoints after their start."""

from __future__ import annotations

import uuid

import pytest

from tests.process.cli.conftest import Finished
from tests.support import trainings
from tests.support.det_shell import Shell
from tests.support.master import files, wait_ended, wait_for
from trainmaster.client.master import Master


@pytest.fixture
def ended(api: Master) -> int:
    """An experiment of one trial that ended with two epochs."""
    number = api.create_experiment(trainings.experiment(epochs=2, pause=0.01), files(train__py=trainings.COUNTING)).id
    assert wait_ended(api, number).state == "COMPLETED"
    return number


def test_words_numbers_and_labels(shell: Shell, api: Master, ended: int) -> None:
    number = str(ended)
    for arguments in (
        ("set", "name", number, "second try"),
        ("set", "description", number, "with more"),
        ("set", "max-slots", number, "3"),
        ("set", "priority", number, "7"),
        ("set", "weight", number, "2.5"),
        ("set", "log-retention", number, "--days", "9"),
        ("label", "add", number, "kept"),
        ("label", "add", number, "gone"),
        ("label", "remove", number, "gone"),
    ):
        assert number in shell.det("experiment", *arguments).out
    found = api.experiment(ended)
    assert (found.name, found.description, found.labels) == ("second try", "with more", ("kept",))
    resources = found.raw["config"]["resources"]
    assert (resources["max_slots"], resources["priority"], resources["weight"]) == (3, 7, 2.5)
    assert found.raw["config"]["retention_policy"]["log_retention_days"] == 9
    shell.det("experiment", "set", "max-slots", number, "none")
    assert api.experiment(ended).raw["config"]["resources"]["max_slots"] is None
    (trial,) = api.trials(ended)
    shell.det("trial", "set", "log-retention", str(trial.id), "--forever")
    wrong = shell.run("experiment", "set", "weight", number, "heavy")
    assert (wrong.status, "heavy" in wrong.sentence) == (2, True)
    for verb, archived in (("archive", True), ("unarchive", False)):
        shell.det("experiment", verb, number)
        assert api.experiment(ended).archived is archived


def test_move(shell: Shell, api: Master, ended: int) -> None:
    name = f"moved-{uuid.uuid4().hex[:8]}"
    shell.det("workspace", "create", name)
    shell.det("project", "create", name, "there")
    shell.det("experiment", "move", str(ended), name, "there")
    assert (api.experiment(ended).workspace, api.experiment(ended).project) == (name, "there")
    listed = shell.det("project", "list-experiments", name, "there", "--csv").csv()
    assert [row["ID"] for row in listed] == [str(ended)]


def test_continue(shell: Shell, api: Master, ended: int) -> None:
    done = shell.det("experiment", "continue", str(ended), "--config", "hyperparameters.epochs=4", "-f")
    assert f"Continued experiment {ended}" in done.out
    assert "starting after epoch 2" in done.out
    assert wait_ended(api, ended).state == "COMPLETED"
    (trial,) = api.trials(ended)
    assert (trial.batches, trial.attempts) == (4, 2)


def test_code_and_checkpoints(shell: Shell, api: Master, finished: Finished) -> None:
    number = str(finished.id)
    shell.det("experiment", "download-model-def", number)
    code = shell.cwd / f"experiment_{number}_model_def" / "train.py"
    assert code.read_text() == trainings.COUNTING
    again = shell.run("experiment", "download-model-def", number)
    assert (again.status, "already exists" in again.sentence) == (1, True)
    best = api.checkpoints(finished.id, best=1)[0]
    assert shell.det("experiment", "download", number, "-q", "-o", "best").out == f"best/{best.uuid}\n"
    trial = str(finished.trials[0].id)
    (latest,) = api.trial_checkpoints(finished.trials[0].id)
    assert latest.uuid in shell.det("trial", "download", trial, "--latest", "-o", latest.uuid).out
    other = shell.run("trial", "download", str(finished.trials[1].id), "--uuid", latest.uuid)
    assert (other.status, "does not belong to trial" in other.sentence) == (1, True)


def test_checkpoints_go(shell: Shell, api: Master, ended: int) -> None:
    (checkpoint,) = api.checkpoints(ended)
    refused = shell.run("checkpoint", "delete", checkpoint.uuid)
    assert (refused.status, "--yes" in refused.sentence) == (2, True)
    shell.det("checkpoint", "rm", checkpoint.uuid, "--glob", "state.json", "--yes")
    wait_for(lambda: "state.json" not in api.checkpoint(checkpoint.uuid).resources, "the file to be gone")
    shell.det("checkpoint", "delete", checkpoint.uuid, "--yes")
    wait_for(lambda: api.checkpoint(checkpoint.uuid).state == "DELETED", "the checkpoint to be gone")


def test_gc_policy(shell: Shell, api: Master, ended: int) -> None:
    (checkpoint,) = api.checkpoints(ended)
    policy = ["--save-experiment-best", "0", "--save-trial-best", "0", "--save-trial-latest", "0"]
    question = "Checkpoints that the policy does not keep are deleted. Set it? [y/N] "
    kept = shell.at_terminal("experiment", "set", "gc-policy", str(ended), *policy, typed={question: "n"})
    assert (kept.status, checkpoint.uuid in kept.out) == (1, True)
    shell.det("experiment", "set", "gc-policy", str(ended), *policy, "--yes")
    wait_for(lambda: api.checkpoint(checkpoint.uuid).state == "DELETED", "the checkpoint to be gone")
    shell.det("experiment", "delete-tb-files", str(ended))
