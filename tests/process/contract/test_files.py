"""What the published `det` brings onto the user's disk, and what it deletes of a checkpoint."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support import trainings
from tests.support.master import MasterProcess, files, only_trial, wait_ended, wait_for
from tests.support.reference.batch import batch
from trainmaster.client.master import Master


@pytest.fixture(scope="module")
def ended(running: MasterProcess, truth: Master) -> int:
    """An experiment that keeps two checkpoints: the client's `trial download` finds none in a list of one."""
    storage = {"type": "shared_fs", "host_path": str(running.folder / "kept"), "save_trial_latest": 2}
    (running.folder / "kept").mkdir()
    text = trainings.experiment(epochs=3, pause=0.01, save_at=1, keys={"checkpoint_storage": storage})
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING)).id
    assert wait_ended(truth, number).state == "COMPLETED"
    return number


def test_downloads(client: Reference, truth: Master, ended: int, tmp_path: Path) -> None:
    trial = only_trial(truth, ended).id
    checkpoint, first = sorted(truth.checkpoints(ended), key=lambda found: -found.steps_completed)
    *said, bundle = batch(
        replace(client, user="admin"),
        f"checkpoint download {checkpoint.uuid} --output-dir {tmp_path}/one",
        f"checkpoint download {checkpoint.uuid} --output-dir {tmp_path}/two --mode master --quiet",
        f"checkpoint download {checkpoint.uuid} --output-dir {tmp_path}/three --mode direct --quiet",
        f"!checkpoint download 00000000-0000-0000-0000-000000000000 --output-dir {tmp_path}/none",
        f"experiment download {ended} --output-dir {tmp_path}/four --top-n 2 --quiet",
        f"trial download {trial} --best --output-dir {tmp_path}/five --quiet",
        f"experiment download-model-def {ended} --output-dir {tmp_path}",
        f"trial support-bundle {trial} --output-dir {tmp_path}",
    )
    assert checkpoint.uuid in said[0].out
    last = ("one", "two", "three", f"four/{checkpoint.uuid}")
    for name, epochs in {**dict.fromkeys(last, 3), f"four/{first.uuid}": 1, "five": 1}.items():
        folder = tmp_path / name
        assert json.loads((folder / "state.json").read_text()) == {"epochs": epochs}
        assert json.loads((folder / "metadata.json").read_text())["steps_completed"] == epochs
    (archive,) = tmp_path.glob("*model_def*")
    with tarfile.open(archive) as opened:
        member = opened.extractfile("train.py")
        assert member is not None
        assert member.read().decode() == trainings.COUNTING
    with tarfile.open(bundle.out.partition("bundle path: ")[2].strip()) as opened:
        members = {Path(name).name: name for name in opened.getnames()}
        content = {name: opened.extractfile(path).read().decode() for name, path in members.items()}  # type: ignore[union-attr]
    assert "starting after epoch 0" in content["trial_logs.txt"]
    assert "startup complete" in content["master_logs.txt"]
    assert json.loads(content["api_trial_call.json"])["id"] == trial
    assert json.loads(content["api_experiment_call.json"])["experiment"]["id"] == ended


def test_support_bundle_masks_master_log_for_ordinary_user(
    client: Reference, ended: int, truth: Master, tmp_path: Path
) -> None:
    """Who may not read the master's log finds it masked."""
    trial = only_trial(truth, ended).id
    said = client.det("trial", "support-bundle", str(trial), "--output-dir", str(tmp_path))
    with tarfile.open(said.partition("bundle path: ")[2].strip()) as opened:
        members = {Path(name).name: name for name in opened.getnames()}
        content = {name: opened.extractfile(path).read().decode() for name, path in members.items()}  # type: ignore[union-attr]
    assert "starting after epoch 0" in content["trial_logs.txt"]
    log = content["master_logs.txt"].splitlines()
    assert len(log) > 2
    assert all(line.endswith(": ********") for line in log)


def test_deleting_a_checkpoint(client: Reference, truth: Master) -> None:
    text = trainings.experiment(epochs=1, pause=0.01)
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_ended(truth, number)
    (checkpoint,) = truth.checkpoints(number)
    (said,) = batch(replace(client, user="admin"), f"checkpoint delete {checkpoint.uuid} --yes")
    assert "in progress" in said.out
    wait_for(lambda: truth.checkpoint(checkpoint.uuid).state == "DELETED", "the checkpoint to go")
