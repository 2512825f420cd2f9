"""Launchers on real Slurm: workers on two nodes in containers, and the end of a trial when one worker ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.cluster.slurm import (
    apptainer_command,
    frameworks_image,
    horovod_image,
    openmpi_image,
    python_image,
    slurm_cluster,
    torch_image,
)
from tests.support.master import MasterProcess, ended_as, files, only_trial
from tests.support.slurm.site import slurm_master
from trainmaster.client.master import Master

__all__ = [
    "apptainer_command",
    "frameworks_image",
    "horovod_image",
    "openmpi_image",
    "python_image",
    "slurm_cluster",
    "slurm_master",
    "torch_image",
]
pytestmark = [pytest.mark.slurm, pytest.mark.apptainer, pytest.mark.timeout(1200)]  # an image may have to be built

TWO_BY_TWO = {"resources": {"slots_per_trial": 4}, "slurm": {"slots_per_node": 2}, "max_restarts": 0}

ROUND = """
import json, os
from trainmaster import core

names = "RANK WORLD_SIZE LOCAL_RANK NODE_RANK SLURM_PROCID SLURM_NTASKS MASTER_ADDR MASTER_PORT".split()
with core.DistributedContext.from_torch_distributed() as distributed, core.init(distributed=distributed) as context:
    everybody = distributed.allgather([os.environ[name] for name in names])
    total = sum(distributed.allgather(distributed.rank + 1))
    context.train.report_validation_metrics(1, {"error": total})
    print("everybody", json.dumps(everybody), flush=True)
"""

KILLED = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
print("epoch 7 of rank", rank, flush=True)
print("about to warn", rank, file=sys.stderr, flush=True)
if rank == 3:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


FAILS_ALONE = """
import os
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 2:
    raise ValueError("no sample has 3 channels")
dist.barrier()
"""


def create(master: Master, script: str, launcher: str = "script train.py", image: Path | None = None) -> int:
    keys = {**TWO_BY_TWO, "entrypoint": f"python3 -m trainmaster.launchers.{launcher}"}
    if image is not None:
        keys["environment"] = {"image": str(image), "environment_variables": ["OMP_NUM_THREADS=1"]}
    return master.create_experiment(trainings.experiment(keys=keys), files(train__py=script)).id


def test_workers_on_two_nodes_know_each_other(slurm_master: MasterProcess) -> None:
    master = slurm_master.client()
    number = create(master, ROUND)
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert trial.summary["validation_metrics"]["error"]["last"] == 10
    said = [line for line in master.logs(trial.id) if "everybody" in line.message]
    assert len(said) == 4
    assert len({line.node for line in said}) == 2
    everybody = json.loads(said[0].message.partition("everybody ")[2])
    assert [each[:6] for each in everybody] == [
        [str(rank), "4", str(rank % 2), str(rank // 2), str(rank), "4"] for rank in range(4)
    ]
    assert len({tuple(each[6:]) for each in everybody}) == 1


def test_killed_rank_is_named_with_node_and_last_lines(
    slurm_master: MasterProcess,
) -> None:
    master = slurm_master.client()
    number = create(master, KILLED)
    ended_as(master, number, "ERROR")
    trial = only_trial(master, number)
    (node,) = {line.node for line in master.logs(trial.id) if line.rank == 3}
    assert f"was ended by signal 9 (SIGKILL) in rank 3 on node {node}; its last lines: about to warn 3" in trial.reason
    command = ["trial", "logs", str(trial.id), "--rank", "3"]
    shown = slurm_master.det(*command).stdout
    assert "epoch 7 of rank 3" in shown
    assert "epoch 7 of rank 2" not in shown
    assert "about to warn" not in slurm_master.det(*command, "--stdtype", "stdout").stdout


def test_failed_rank_is_reason_while_others_wait(slurm_master: MasterProcess, torch_image: Path) -> None:
    master = slurm_master.client()
    number = create(master, FAILS_ALONE, "torchrun train.py", torch_image)
    ended_as(master, number, "ERROR", 240)
    trial = only_trial(master, number)
    (node,) = {line.node for line in master.logs(trial.id) if line.rank == 2}
    said = f"ended with exit code 1 in rank 2 on node {node}; its last lines: ValueError: no sample has 3 channels"
    assert said in trial.reason


@pytest.mark.parametrize(
    ("launcher", "module"), [("torchrun", "torch"), ("deepspeed", "deepspeed"), ("horovod", "horovod")]
)
def test_a_framework_that_the_image_lacks_is_named(slurm_master: MasterProcess, launcher: str, module: str) -> None:
    master = slurm_master.client()
    keys = {"entrypoint": f"python3 -m trainmaster.launchers.{launcher} train.py"}
    number = master.create_experiment(trainings.experiment(keys=keys), files(train__py="")).id
    ended_as(master, number, "ERROR")
    assert f"its last lines: {module} is not in this image: " in only_trial(master, number).reason


SUM = """
import os
from mpi4py import MPI

world = MPI.COMM_WORLD
print("sum", world.allreduce(world.rank + 1), "of", world.size, "by", os.environ.get("PMI_JOBID", "us"), flush=True)
"""


@pytest.mark.parametrize(
    ("launcher", "image", "workers", "by"),
    [
        ("script", "frameworks_image", 4, "us"),  # our PMI-1
        ("script --per-node --", "frameworks_image", 2, "Slurm"),  # which starts a task a node, with its own PMI
        # Open MPI's daemons. Its shared memory goes by the host's name, and here both nodes are on one.
        ("mpirun --mca btl self,tcp --", "openmpi_image", 4, "us"),
    ],
)
def test_programs_of_mpi_sum_up_over_two_nodes(
    slurm_master: MasterProcess, request: pytest.FixtureRequest, launcher: str, image: str, workers: int, by: str
) -> None:
    master = slurm_master.client()
    number = create(master, SUM, f"{launcher} train.py", request.getfixturevalue(image))
    ended_as(master, number, "COMPLETED")
    lines = [line for line in master.logs(only_trial(master, number).id) if "sum " in line.message]
    total = workers * (workers + 1) // 2
    assert sorted(line.rank for line in lines) == list(range(workers))  # type: ignore[type-var]
    assert len({line.node for line in lines}) == 2
    for line in lines:
        said, _, who = line.message.partition(" by ")
        assert f"sum {total} of {workers}" in said
        assert (who.strip() == "us") == (by == "us")


TUNED = """
import os
print({name: os.environ[name] for name in ("HOROVOD_FUSION_THRESHOLD", "HOROVOD_GLOO_TIMEOUT_SECONDS")})
"""


def test_options_of_horovodrun_have_their_effect(slurm_master: MasterProcess, horovod_image: Path) -> None:
    master = slurm_master.client()
    number = create(master, TUNED, "horovod --fusion-threshold-mb 2 -- train.py", horovod_image)
    ended_as(master, number, "COMPLETED")
    said = [line.message for line in master.logs(only_trial(master, number).id) if "FUSION" in line.message]
    assert len(said) == 4
    assert "'HOROVOD_FUSION_THRESHOLD': '2097152', 'HOROVOD_GLOO_TIMEOUT_SECONDS': '240'" in said[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--hosts a:1", "not for use in a job: --hosts: the scheduler decides which nodes a job has"),
        ("--mpi", "not for use in a job: --mpi: workers meet over Gloo"),
        ("--nonesuch 1", "the options for horovodrun are wrong: "),
    ],
)
def test_unsupported_horovodrun_options_are_refused(
    slurm_master: MasterProcess, horovod_image: Path, options: str, words: str
) -> None:
    master = slurm_master.client()
    keys = {
        "entrypoint": f"python3 -m trainmaster.launchers.horovod {options} -- train.py",
        "environment": {"image": str(horovod_image)},
    }
    number = master.create_experiment(trainings.experiment(keys=keys), files(train__py="")).id
    ended_as(master, number, "ERROR")
    assert words in only_trial(master, number).reason
