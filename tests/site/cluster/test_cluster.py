"""The test cluster itself: safe to start twice, ends only its own processes, runs jobs of ordinary users."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.daemons import Daemon, boot_id, started_at, wait_until
from tests.support.cluster.slurm import apptainer_command, slurm_cluster, torch_image
from tests.support.cluster.users import run_as

__all__ = ["apptainer_command", "slurm_cluster", "torch_image"]

ROOT = Path(__file__).parents[3]


@pytest.mark.slurm
def test_starting_twice_changes_nothing(slurm_cluster: Cluster) -> None:
    before = slurm_cluster.status()
    slurm_cluster.up()
    after = slurm_cluster.status()
    assert {name: state for name, state in after.items() if name != "nodes"} == {
        name: state for name, state in before.items() if name != "nodes"
    }
    assert slurm_cluster.is_up()


@pytest.mark.slurm
@pytest.mark.parametrize("user", ["tmalice", "tmbob"])
def test_ordinary_users_run_jobs_on_several_nodes_with_gpus(slurm_cluster: Cluster, user: str) -> None:
    words = ["srun", "-N2", "--gpus-per-node=2", "sh", "-c", "id -un; echo $CUDA_VISIBLE_DEVICES"]
    done = slurm_cluster.run_as(user, words)
    assert sorted(done.stdout.split()) == ["0,1", "0,1", user, user], done.stderr


@pytest.mark.slurm
def test_everything_listens_on_the_loopback_only(slurm_cluster: Cluster) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [slurm_cluster.layout.controller_port, *map(slurm_cluster.layout.node_port, slurm_cluster.layout.nodes)]
    addresses = {entry[1] for entry in listening if entry[3] == "0A" and int(entry[1].split(":")[1], 16) in ours}
    assert {address.split(":")[0] for address in addresses} == {"0100007F"}
    assert len(addresses) == len(ours)


@pytest.mark.slurm
def test_a_killed_node_comes_back(slurm_cluster: Cluster) -> None:
    node = slurm_cluster.layout.nodes[0]
    slurm_cluster.kill_node(node)
    assert slurm_cluster.status()[f"slurmd-{node}"] == "down"
    slurm_cluster.restore_node(node)
    assert slurm_cluster.is_up()


@pytest.mark.slurm
def test_status_command_lists_running_daemons(slurm_cluster: Cluster) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/cluster"), "status"], capture_output=True, text=True, check=True
    )
    assert "slurmctld    up (pid " in done.stdout
    usage = subprocess.run([sys.executable, str(ROOT / "scripts/cluster"), "dance"], capture_output=True, check=False)
    assert usage.returncode == 2


def test_a_stale_pid_file_is_not_believed(tmp_path: Path) -> None:
    daemon = Daemon("sleeper", tmp_path / "pid", tmp_path / "log")
    for text in (
        "",
        "nonsense",
        f"{os.getpid()} 1 {boot_id()}",  # the pid was given to another process
        f"{os.getpid()} {started_at(os.getpid())} another-boot",
    ):
        daemon.pid_file.write_text(text)
        assert daemon.pid() is None
        daemon.stop()
        assert not daemon.pid_file.exists()


def test_a_daemon_is_started_once_and_ended_for_good(tmp_path: Path) -> None:
    daemon = Daemon("sleeper", tmp_path / "pid", tmp_path / "log")
    daemon.start(["sleep", "300"], {"PATH": "/usr/bin:/bin"})
    pid = daemon.pid()
    assert pid is not None
    daemon.start(["sleep", "300"], {"PATH": "/usr/bin:/bin"})
    assert daemon.pid() == pid
    daemon.stop()
    wait_until(lambda: started_at(pid) is None, 60, "the end of the sleeper")
    assert daemon.pid() is None


@pytest.mark.apptainer
def test_torch_image_has_what_training_needs(torch_image: Path, apptainer_command: Path) -> None:
    program = (
        "import json, shutil, sklearn.datasets, torch; "
        "print(json.dumps([torch.__version__, sklearn.datasets.load_digits().data.shape, shutil.which('torchrun')]))"
    )
    words = [str(apptainer_command), "--silent", "exec", "--cleanenv", str(torch_image), "python3", "-c", program]
    done = run_as("tmalice", words, timeout=120)
    version, shape, torchrun = json.loads(done.stdout)
    assert version.startswith("2.13.0")
    assert shape == [1797, 64]
    assert torchrun
