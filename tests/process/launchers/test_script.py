"""Workers that are started by the `script` launcher: what they find, how they end; real programs of MPI."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

import pytest

from tests.process.launchers.conftest import find_python
from tests.process.runtime.test_whole_job import archive
from trainmaster.launchers.place import Place
from trainmaster.launchers.pmi import Pmi, process_mapping
from trainmaster.launchers.script import worker_variables
from trainmaster.launchers.workers import worker_environments

PLACE = Place(
    addresses=("10.0.0.1", "10.0.0.2"),
    slots=(2, 1),
    rank=1,
    torch_port=20001,
    launcher_port=20002,
    worker_ports=((20003, 20004), (20005,)),
)


def test_ranks_count_through_all_nodes() -> None:
    first = worker_environments({"A": "b"}, (2, 1, 3), 0)
    last = worker_environments({}, (2, 1, 3), 2)
    assert [worker["RANK"] for worker in first + last] == ["0", "1", "3", "4", "5"]
    assert last[1] == {
        "RANK": "4",
        "WORLD_SIZE": "6",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "LOCAL_SIZE": "3",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "NODE_RANK": "2",
        "CROSS_RANK": "2",
        "CROSS_SIZE": "3",
    }
    assert first[0]["A"] == "b"


def test_worker_environment_has_framework_variables() -> None:
    (worker,) = worker_environments({"SLURM_JOB_ID": "7", "SLURM_PROCID": "1"}, (2, 1), 1)
    found = worker_variables(PLACE, (2, 1), worker, per_node=False)
    assert json.loads(found.pop("TF_CONFIG")) == {
        "cluster": {"worker": ["10.0.0.1:20003", "10.0.0.1:20004", "10.0.0.2:20005"]},
        "task": {"type": "worker", "index": 2},
    }
    assert found == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "20001",
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:20001",
        "SLURM_PROCID": "2",
        "SLURM_LOCALID": "0",
        "SLURM_NTASKS": "3",
        "SLURM_NPROCS": "3",
    }


def test_ipv6_addresses_stand_in_brackets_before_a_port() -> None:
    place = Place(addresses=("fd00::1", "fd00::2"), slots=(1, 1), worker_ports=((20003,), (20004,)), torch_port=20001)
    (worker,) = worker_environments({}, (1, 1), 0)
    found = worker_variables(place, (1, 1), worker, per_node=False)
    assert found["JAX_COORDINATOR_ADDRESS"] == "[fd00::1]:20001"
    assert json.loads(found["TF_CONFIG"])["cluster"]["worker"] == ["[fd00::1]:20003", "[fd00::2]:20004"]


SHOW = """
import json, os
names = "RANK WORLD_SIZE LOCAL_RANK NODE_RANK MASTER_PORT PMI_RANK PMI_SIZE".split()
print("found", json.dumps([os.environ[name] for name in names]))
"""


def spoken(master: Any, word: Any) -> Any:
    return [
        (record["rank"], str(record["line"]).partition(" ")[2])
        for stream in master.streams
        for record in master.streams[stream]
        if str(record.get("line")).startswith(word + " ")
    ]


def two_nodes(stage: Any, entrypoint: Any, script: Any, slots: Any = 4, **files: Any) -> Any:
    job, master = stage(
        entrypoint, context=archive(**{"train.py": script}, **files), slots=slots, work={"num_nodes": 2}
    )
    return job, master, [job.start(node_rank=rank, num_nodes=2) for rank in (0, 1)]


@pytest.mark.parametrize(("option", "workers"), [("", 4), ("--per-node -- ", 2)])
def test_workers_of_two_nodes_know_their_ranks(stage: Any, option: str, workers: int) -> None:
    _, master, nodes = two_nodes(stage, f"python3 -m trainmaster.launchers.script {option}train.py", SHOW)
    for node in nodes:
        output, _ = node.communicate(timeout=120)
        assert node.returncode == 0, output
    found = sorted((rank, json.loads(line)) for rank, line in spoken(master, "found"))
    ports = {values[4] for _, values in found}
    assert len(ports) == 1
    each = workers // 2
    assert [(rank, values[:4] + values[5:]) for rank, values in found] == [
        (rank, [str(rank), str(workers), str(rank % each), str(rank // each), str(rank), str(workers)])
        for rank in range(workers)
    ]


DIES = """
import os, signal, sys, time
if os.environ["RANK"] == "1":
    print("about to die", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
signal.signal(signal.SIGTERM, signal.SIG_IGN if os.environ.get("DEAF") else signal.SIG_DFL)
time.sleep(600)
"""


def test_a_killed_worker_ends_the_others_and_is_the_reason(stage: Any) -> None:
    job, _ = stage("python3 -m trainmaster.launchers.script train.py", context=archive(**{"train.py": DIES}))
    status, output = job.run()
    record = job.exit_record()
    assert (status, record["exit_code"], record["failed_rank"]) == (137, 137, 1), output
    assert record["evidence"] == "about to die"
    assert record["failed_at"] is not None


def test_signals_reach_every_worker(stage: Any) -> None:
    script = """
import os, signal, sys, time
def leave(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it comes from the launcher and from the runtime
    print("left", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""
    job, master = stage(
        [sys.executable, "-m", "trainmaster.launchers.script", "train.py"],
        context=archive(**{"train.py": script}),
        term_grace=0.1,
    )
    process = job.start()
    master.wait(lambda: master.lines().count("ready") == 2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert master.lines().count("left") == 2, output


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("--nonesuch -- train.py", 64, "there is no option --nonesuch"),
        ("", 64, "there is no script to run"),
        ("missing.py", 2, "can't open file"),
        ("./missing", 127, "there is no program './missing'"),
    ],
)
def test_bad_input_is_the_reason(stage: Any, arguments: str, status: int, words: str) -> None:
    job, _ = stage(f"python3 -m trainmaster.launchers.script {arguments}", context=archive(**{"train.py": ""}))
    code, output = job.run()
    assert code == status, output
    assert words in job.exit_record()["evidence"]


def test_which_workers_share_a_node() -> None:
    assert process_mapping([2, 2, 2]) == "(vector,(0,3,2))"
    assert process_mapping([2, 1, 1, 2]) == "(vector,(0,1,2),(1,2,1),(3,1,2))"


class Worker:
    """One end of PMI-1, spoken by hand."""

    def __init__(self, descriptor: Any) -> None:
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._socket.settimeout(60)
        self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def ask(self, line: Any) -> Any:
        self.say(line)
        return self._lines.readline().rstrip("\n")

    def say(self, line: Any) -> None:
        self._lines.write(line + "\n")
        self._lines.flush()

    def hear(self) -> Any:
        return self._lines.readline().rstrip("\n")


def test_workers_exchange_values_at_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DET_CLUSTER_ID", "c0ffee")
    monkeypatch.setenv("DET_ALLOCATION_ID", "3.7.1")
    failures: list[Any] = []
    with Pmi(Place(slots=(2,), worker_ports=((1, 2),)), (2,), failures.append) as pmi:
        given = [pmi.worker(local) for local in (0, 1)]
        assert [variables["PMI_RANK"] for variables, _ in given] == ["0", "1"]
        pmi.start()
        one, two = (Worker(descriptor) for _, descriptor in given)
        assert one.ask("cmd=init pmi_version=1 pmi_subversion=1") == (
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        )
        assert "kvsname_max=" in one.ask("cmd=get_maxes")
        # MPICH's shared memory has this name; that of a job that was killed stays on the node.
        assert one.ask("cmd=get_my_kvsname") == "cmd=my_kvsname rc=0 kvsname=trainmaster-c0ffee-3.7.1-29400"
        assert one.ask("cmd=get_universe_size") == "cmd=universe_size rc=0 size=2"
        assert one.ask("cmd=put kvsname=trainmaster key=P0 value=tcp://a:1=2") == "cmd=put_result rc=0 msg=success"
        assert two.ask("cmd=put kvsname=trainmaster key=P1 value=b") == "cmd=put_result rc=0 msg=success"
        assert two.ask("cmd=get kvsname=trainmaster key=PMI_process_mapping").endswith("value=(vector,(0,1,2))")
        one.say("cmd=barrier_in")
        assert two.ask("cmd=barrier_in").startswith("cmd=barrier_out")
        assert one.hear().startswith("cmd=barrier_out")
        assert two.ask("cmd=get kvsname=trainmaster key=P0").endswith(" value=tcp://a:1=2")
        assert " rc=-1 " in one.ask("cmd=get kvsname=trainmaster key=nonesuch")
        assert " rc=-1 " in one.ask("mcmd=spawn\nnprocs=1\nendcmd")
        assert one.ask("cmd=finalize") == "cmd=finalize_ack rc=0"
        one.close()
        two.close()
    assert failures == []


MPI = find_python("mpi4py", "TRAINMASTER_TORCH_PYTHON", "torch-venv")
ALLREDUCE = """
from mpi4py import MPI
world = MPI.COMM_WORLD
print("sum", world.allreduce(world.rank + 1), "of", world.size)
"""


@pytest.mark.skipif(MPI is None, reason="no Python with mpi4py and MPICH: set TRAINMASTER_TORCH_PYTHON")
def test_a_program_of_mpich_runs_on_two_nodes_without_mpiexec(stage: Any) -> None:
    _, master, nodes = two_nodes(stage, f"{MPI} -m trainmaster.launchers.script {MPI} train.py", ALLREDUCE)
    for node in nodes:
        output, _ = node.communicate(timeout=120)
        assert node.returncode == 0, output + "\n".join(line for s in master.streams for line in master.lines(s))
    assert sorted(spoken(master, "sum")) == [(rank, "10 of 4") for rank in range(4)]


def test_scheduler_pmi_is_kept_if_it_started_all_workers(stage: Any) -> None:
    """One worker on this node, for which the scheduler opened a connection before the job began."""
    ours, theirs = socket.socketpair()
    script = """
import os, socket
connection = socket.socket(fileno=int(os.environ["PMI_FD"]))
connection.sendall(b"cmd=init of rank " + os.environ["PMI_RANK"].encode())
"""
    job, _ = stage(
        [sys.executable, "-m", "trainmaster.launchers.script", "train.py"],
        context=archive(**{"train.py": script}),
        slots=1,
    )
    with ours, theirs:
        process = job.start(
            pass_fds=[theirs.fileno()], PMI_FD=str(theirs.fileno()), PMI_RANK="5", PMI_SIZE="9", SLURM_JOB_ID="1"
        )
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
        assert ours.recv(100) == b"cmd=init of rank 5"
