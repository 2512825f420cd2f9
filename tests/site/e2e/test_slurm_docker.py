"""Docker as the container runtime of batch jobs on real Slurm, for an ordinary user in the docker group."""

from __future__ import annotations

import io
import json
import os
import pwd
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.e2e.test_slurm_containers import LATE, old_python, reason, reports, run
from tests.support import trainings
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import slurm_cluster
from tests.support.docker.engine import IMAGE, DockerEngine, batch_engine
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    image_digests,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    wait_for,
)
from tests.support.slurm.site import USER, make_slurm_master

__all__ = ["batch_engine", "slurm_cluster"]

pytestmark = [pytest.mark.slurm, pytest.mark.docker]

FACTS = """
import grp, json, os, sys
from trainmaster import core

with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    status = dict(line.split(":\\t") for line in open("/proc/self/status") if ":\\t" in line)
    print("FACTS", json.dumps({
        "uid": os.getuid(), "gid": os.getgid(), "new_privileges": status["NoNewPrivs"].strip(),
        "capabilities": status["CapEff"].strip(), "bounding": status["CapBnd"].strip(),
        "pid_1": open("/proc/1/comm").read().strip(), "tmp": os.listdir("/tmp"), "home": os.path.expanduser("~"),
        "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
        "inherited": sorted(name for name in os.environ if name in ("DOCKER_HOST", "SLURM_CONF", "SLURM_JOB_ID")),
    }), flush=True)
    context.train.report_validation_metrics(1, {"error": 1.0})
"""
# Takes no notice of being asked to leave.
DEAF = """
import signal, time
from trainmaster import core

with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    context.train.report_training_metrics(1, {"loss": 1.0})
    while True:
        time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def docker_master(slurm_cluster: Cluster, batch_engine: DockerEngine) -> Iterator[MasterProcess]:
    folder = make_folder()
    process = make_slurm_master(folder, slurm_cluster, Path("/usr/bin/docker"), Path(IMAGE), container="docker")
    text = process.config.read_text().replace("environment: {", f"environment: {{DOCKER_HOST: {batch_engine.address}, ")
    process.config.write_text("\n".join(line for line in text.splitlines() if "container_command" not in line))
    process.start()
    yield process
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


@pytest.fixture(autouse=True)
def no_container_stays(batch_engine: DockerEngine) -> Iterator[None]:
    yield
    wait_for(lambda: not batch_engine.containers(), "the end of all containers")


def test_a_trial_runs_as_its_user_with_nothing_of_the_hosts(docker_master: MasterProcess) -> None:
    master = docker_master.client()
    number = run(master, FACTS, resources={"shm_size": 2**26})
    ended_as(master, number, "COMPLETED")
    text = log_text(master, only_trial(master, number).id)
    facts = json.loads(next(line for line in text.splitlines() if "FACTS" in line).partition("FACTS ")[2])
    account = pwd.getpwnam(USER)
    assert (facts["uid"], facts["gid"], facts["home"]) == (account.pw_uid, account.pw_gid, account.pw_dir)
    assert (facts["new_privileges"], int(facts["capabilities"], 16), int(facts["bounding"], 16)) == ("1", 0, 0)
    assert facts["shm"] == 2**26
    assert set(facts["tmp"]) <= {docker_master.folder.name}  # what it mounts lies below /var/tmp
    assert "init" in facts["pid_1"]
    assert facts["inherited"] == ["SLURM_CONF", "SLURM_JOB_ID"]
    assert "/dev/shm" not in text


def test_two_nodes_meet(docker_master: MasterProcess) -> None:
    master = docker_master.client()
    number = run(master, "print('here')", resources={"slots_per_trial": 4}, slurm={"slots_per_node": 2})
    ended_as(master, number, "COMPLETED")
    assert {line.node for line in master.logs(only_trial(master, number).id) if line.node} >= {"n1", "n2"}


def test_a_cancelled_job_saves_and_leaves(docker_master: MasterProcess, slurm_cluster: Cluster) -> None:
    master = docker_master.client()
    number = run(master, LATE)
    slurm_cluster.command("scancel", reports(master, number))
    ended_as(master, number, "CANCELED")
    assert "saved after" in log_text(master, only_trial(master, number).id)
    assert len(master.checkpoints(number)) == 1


def test_warned_job_saves_and_continues(
    docker_master: MasterProcess, slurm_cluster: Cluster, batch_engine: DockerEngine
) -> None:
    master = docker_master.client()
    text = trainings.experiment(epochs=8, stay_at=4)
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    slurm_cluster.command("scancel", "--batch", "--signal=USR2", reports(master, number))
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts, trial.batches) == (2, 0, 8)
    assert image_digests(master, number) == [batch_engine.image_id()]


def test_a_killed_job_leaves_no_container(
    docker_master: MasterProcess, slurm_cluster: Cluster, batch_engine: DockerEngine
) -> None:
    """Everything of the job on its node gets SIGKILL, and nothing can clean up: Docker's daemon would not notice."""
    master = docker_master.client()
    number = run(master, DEAF)
    reports(master, number)
    (name,) = batch_engine.containers()
    processes = [pid for pid in of_the_job(name) if pid != os.getpid()]
    assert len(processes) >= 2
    for pid in processes:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: name not in batch_engine.containers(), "the end of the container", 20)
    master.kill(number)
    ended_as(master, number, "CANCELED")


def of_the_job(container: str) -> list[int]:
    """Host processes of the start script and of Docker's command line: they have the container's name, or its token."""
    token = container.split(".")[0]
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            folder = os.readlink(entry / "cwd")
        except OSError:
            continue
        if folder.endswith(token) and (b"slurm_script" in words or container.encode() in words):
            found.append(int(entry.name))
    return found


def test_missing_image_is_the_reason(docker_master: MasterProcess) -> None:
    master = docker_master.client()
    said = reason(master, run(master, LATE, environment={"image": "127.0.0.1:1/nobody/nothing:1"}))
    assert said.startswith("The container image could not be fetched: ")
    assert "127.0.0.1:1" in said


def test_reason_says_image_has_no_python(docker_master: MasterProcess, batch_engine: DockerEngine) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        folder = tarfile.TarInfo("bin")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
    client = batch_engine.client()
    client.api.import_image_from_data(data.getvalue(), repository="trainmaster-test/bare", tag="1")
    client.close()
    master = docker_master.client()
    said = reason(master, run(master, LATE, environment={"image": "trainmaster-test/bare:1"}, max_restarts=2))
    assert said.startswith("The container image has no working Python; a job needs Python 3.8 or newer")
    assert "exec python3 failed" in said


def test_image_with_old_python_is_the_reason(docker_master: MasterProcess) -> None:
    place = docker_master.folder / "place"
    place.mkdir()
    master = docker_master.client()
    said = reason(master, run(master, LATE, **old_python(place), max_restarts=2))
    assert said == ("The container image's Python is too old: the job's image needs Python 3.8 or newer, this is 3.6.9")


@pytest.mark.parametrize("link", [False, True])
def test_no_job_gets_the_daemons_socket(docker_master: MasterProcess, batch_engine: DockerEngine, link: bool) -> None:
    socket = Path(batch_engine.address.removeprefix("unix://"))
    if link:
        innocent = docker_master.folder / "innocent"
        innocent.symlink_to(socket)
        socket = innocent
    master = docker_master.client()
    keys = {"bind_mounts": [{"host_path": str(socket), "container_path": "/mnt/socket"}]}
    said = reason(master, run(master, LATE, **keys))
    assert str(socket) in said
    assert "no job may mount" in said or "may not be mounted by a job" in said
