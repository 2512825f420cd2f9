"""Container runtimes in batch jobs on real Slurm: processes after a cancel, and images that cannot work."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import trainings
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import apptainer_command, python_image, slurm_cluster
from tests.support.master import MasterProcess, ended_as, files, image_digests, log_text, only_trial, wait_for
from tests.support.slurm.site import slurm_master
from trainmaster.cli import admin
from trainmaster.client.master import Master
from trainmaster.containers.cache import ImageCache

__all__ = ["apptainer_command", "python_image", "slurm_cluster", "slurm_master"]

pytestmark = [pytest.mark.slurm, pytest.mark.apptainer]

# Reads from its image, once it was asked to leave, what it has not read before. Slurm sends SIGTERM to it too.
LATE = """
import json, signal
from trainmaster import core

signal.signal(signal.SIGTERM, lambda *_: None)
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    done = 0
    while not context.preempt.should_preempt():
        done += 1
        context.train.report_training_metrics(done, {"loss": 1.0})
    import wsgiref.simple_server, xmlrpc.client
    with context.checkpoint.store_path({"steps_completed": done}) as (path, _):
        (path / "state.json").write_text(json.dumps({"file": wsgiref.simple_server.__file__}))
    print("saved after", done, flush=True)
"""
# What an old Python would do with the runtime, in the place of the image's.
OLD_PYTHON = """#!/usr/bin/python3.11 -S
import sys
sys.version_info, sys.version = (3, 6, 9, "final", 0), "3.6.9 (stub)"
del sys.argv[:2]
code = sys.argv[1]
sys.argv[:2] = ["-c"]
exec(code)
"""


def run(master: Master, script: str, **keys: Any) -> int:
    return master.create_experiment(trainings.experiment(keys=keys), files(train__py=script)).id


def reports(master: Master, number: int) -> str:
    """The Slurm job id of the experiment's only trial once it reports."""
    wait_for(lambda: any(trial.batches for trial in master.trials(number)), f"a report of experiment {number}")
    return str(master.task(only_trial(master, number).task_id)["allocations"][-1]["jobId"])


@pytest.fixture
def place(slurm_master: MasterProcess) -> Iterator[Path]:
    """A folder that jobs can read."""
    folder = slurm_master.folder / "place"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def old_python(place: Path) -> dict[str, Any]:
    """Keys of an experiment whose image has a Python that is too old."""
    stub = place / "python3"
    stub.write_text(OLD_PYTHON)
    stub.chmod(0o755)
    return {"bind_mounts": [{"host_path": str(stub), "container_path": "/usr/local/bin/python3"}]}


def reason(master: Master, number: int, restarts: int = 0) -> str:
    """Of an experiment whose trial could not be started."""
    ended_as(master, number, "ERROR")
    trial = only_trial(master, number)
    assert (trial.state, trial.restarts) == ("ERROR", restarts), log_text(master, trial.id)
    assert trial.reason in log_text(master, trial.id)
    return trial.reason


def test_a_cancelled_training_still_has_its_image(slurm_master: MasterProcess, slurm_cluster: Cluster) -> None:
    """scancel signals every process of a job, also the one that serves the image."""
    master = slurm_master.client()
    number = run(master, LATE)
    slurm_cluster.command("scancel", reports(master, number))
    ended_as(master, number, "CANCELED")
    text = log_text(master, only_trial(master, number).id)
    assert "saved after" in text, text
    assert "Transport endpoint" not in text
    assert len(master.checkpoints(number)) == 1


def test_an_image_is_found_by_its_name(slurm_master: MasterProcess, python_image: Path) -> None:
    images = slurm_master.folder / "images"
    images.chmod(0o755)
    assert admin.main(["image", "add", "--root", str(images), "site/python:cpu", str(python_image)]) == 0
    master = slurm_master.client()
    text = trainings.experiment(
        epochs=1, keys={"environment": {"image": {"cpu": "site/python:cpu", "cuda": "site/python:cpu"}}}
    )
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    ended_as(master, number, "COMPLETED")
    [image] = ImageCache(images).images()
    assert image.checksum == hashlib.sha256(python_image.read_bytes()).hexdigest()
    assert image_digests(master, number) == [f"sha256:{image.checksum}"]


def test_image_without_checksum_is_known_by_its_own_uuid(slurm_master: MasterProcess, python_image: Path) -> None:
    master = slurm_master.client()
    number = run(master, trainings.COUNTING)
    ended_as(master, number, "COMPLETED")
    assert image_digests(master, number) == [f"sif:{python_image.read_bytes()[48:64].hex()}"]


def test_data_is_copied_to_the_node_and_seen_in_the_container(slurm_master: MasterProcess, place: Path) -> None:
    (place / "words").mkdir()
    (place / "words" / "a.txt").write_text("alpha")
    script = "import os; print('READ', open(os.environ['TRAINMASTER_DATA'] + '/words/a.txt').read())"
    master = slurm_master.client()
    for said in ("copied 5 B in 1 files", "is on this node already"):
        number = run(master, script, data=[{"source": str(place / "words"), "to": "node"}])
        ended_as(master, number, "COMPLETED")
        text = log_text(master, only_trial(master, number).id)
        assert said in text, text
        assert "READ alpha" in text, text


def test_reason_says_image_has_no_python(slurm_master: MasterProcess, place: Path) -> None:
    image = place / "bare"
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "var/tmp", "home", "root", "usr"):
        (image / name).mkdir(parents=True)
    master = slurm_master.client()
    said = reason(master, run(master, LATE, environment={"image": str(image)}, max_restarts=3))
    assert said.startswith("The container image has no working Python; a job needs Python 3.8 or newer")
    assert said.endswith("executable file not found in $PATH")


def test_image_with_old_python_is_the_reason(slurm_master: MasterProcess, place: Path) -> None:
    master = slurm_master.client()
    said = reason(master, run(master, LATE, **old_python(place), max_restarts=3))
    assert said == ("The container image's Python is too old: the job's image needs Python 3.8 or newer, this is 3.6.9")


def test_reason_says_image_is_missing(slurm_master: MasterProcess, place: Path, python_image: Path) -> None:
    image = place / "image.sif"
    shutil.copyfile(python_image, image)
    master = slurm_master.client()
    text = trainings.experiment(keys={"environment": {"image": str(image)}, "max_restarts": 3})
    number = master.create_experiment(text, files(train__py=LATE), activate=False).id
    image.unlink()
    master.activate(number)
    said = reason(master, number)
    assert said.startswith("The container image cannot be read on the node: ")
    assert str(image) in said


def test_damaged_image_is_the_reason(slurm_master: MasterProcess, place: Path, python_image: Path) -> None:
    image = place / "image.sif"
    image.write_bytes(python_image.read_bytes()[: 2**20])
    master = slurm_master.client()
    said = reason(master, run(master, LATE, environment={"image": str(image)}))
    assert said.startswith("The container image is damaged")
