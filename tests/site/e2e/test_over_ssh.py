"""A master outside the cluster: trials over SSH, whose job folders are not on the master's machine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster
from tests.site.dispatchers.access.conftest import ssh_server
from tests.support import trainings
from tests.support.access.sshd import Sshd
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import slurm_cluster
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    free_port,
    make_folder,
    only_trial,
    remove_folder,
    validations,
    wait_for,
)

__all__ = ["slurm_cluster", "ssh_server"]
pytestmark = pytest.mark.slurm

CONFIG = """
resource_manager:
  type: slurm
  cluster_name: test
  job_storage_root: {jobs}
  container_run_type: none
  poll_interval: 1
  environment: {{SLURM_CONF: {conf}}}
  ssh: {{host: 127.0.0.1, port: {port}, user: tmalice, identity_file: {key}, known_hosts: {known}}}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
"""


@pytest.fixture
def process(slurm_cluster: Cluster, ssh_server: Sshd) -> Iterator[MasterProcess]:
    """Runs as tmbob, who may not even look into the folders of jobs, which are tmalice's."""
    folder = make_folder()
    jobs = Path(slurm_cluster.layout.job_root) / folder.name
    for path, user in ((jobs, "tmalice"), (folder / "checkpoints", "tmalice")):
        path.mkdir(mode=0o700)
        shutil.chown(path, user)
    shutil.copytree(
        Path(trainmaster.__file__).parent,
        folder / "source/trainmaster",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    key = folder / "key"
    shutil.copy(ssh_server.key, key)
    key.chmod(0o600)
    shutil.chown(key, "tmbob")
    known = folder / "known_hosts"
    shutil.copy(ssh_server.known_hosts, known)
    known.chmod(0o644)
    ssh_server.start_if_stopped()
    text = CONFIG.format(
        jobs=jobs,
        conf=slurm_cluster.layout.slurm_conf,
        port=ssh_server.port,
        key=key,
        known=known,
        checkpoints=folder / "checkpoints",
    )
    process = MasterProcess(folder, text, user="tmbob", environment={"PYTHONPATH": str(folder / "source")})
    process.start()
    yield process
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    shutil.rmtree(jobs)
    assert errors == []


def test_trials_continue_through_cut_connection(process: MasterProcess, ssh_server: Sshd) -> None:
    master = process.client()
    number = master.create_experiment(trainings.experiment(epochs=60), files(train__py=trainings.COUNTING)).id
    wait_for(lambda: only_trial(master, number).batches >= 1, "the first report")
    ssh_server.stop()
    wait_for(lambda: "cannot be observed, all states stay" in process.log.read_text(), "the cut being seen")
    ssh_server.start()
    second = master.create_experiment(trainings.experiment(epochs=3), files(train__py=trainings.COUNTING)).id
    for experiment in (number, second):
        ended_as(master, experiment, "COMPLETED")
        assert only_trial(master, experiment).restarts == 0


def test_a_running_job_finds_the_master_at_its_new_address(process: MasterProcess) -> None:
    master = process.client()
    gate = process.folder / "gate"
    text = trainings.experiment(epochs=40, wait_at=20, wait_for=str(gate))
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: only_trial(master, number).batches >= 20, "the reports at the old address")
    process.kill()
    process.port = free_port()
    process.url = f"http://127.0.0.1:{process.port}"
    process.start()
    master = process.client()
    gate.touch()
    wait_for(lambda: only_trial(master, number).batches > 20, "reports at the new address")
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts) == (1, 0)
    assert validations(master, [trial.id]) == {trial.id: list(range(1, 41))}
