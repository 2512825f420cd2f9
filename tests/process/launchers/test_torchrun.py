"""torchrun's argument vector; and the real torchrun with a real torch, on one node and on two."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.launchers.conftest import find_python
from tests.process.runtime.test_whole_job import archive
from trainmaster.launchers.place import Place
from trainmaster.launchers.torchrun import build_command


def test_the_command() -> None:
    place = Place(
        addresses=("10.0.0.1", "10.0.0.2"), slots=(2, 4), rank=1, torch_port=23456, worker_ports=((1, 2), (1, 2, 3, 4))
    )
    command = build_command(place, ["--max_restarts", "2"], ["/py", "-u", "train.py", "-x"])
    assert command == [
        *(sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "2", "--nproc_per_node", "4", "--node_rank", "1", "--max_restarts", "0"),
        *("--master_addr", "10.0.0.1", "--master_port", "23456"),
        *("--max_restarts", "2"),
        *("--no_python", sys.executable, "-m", "trainmaster.launchers.wrap_rank", "RANK", "--"),
        *("/py", "-u", "train.py", "-x"),
    ]


TORCH = find_python("torch", "TRAINMASTER_TORCH_PYTHON", "torch-venv")
# scripts/test makes an environment with PyTorch and names it; plain pytest has none, nor a machine without PyPI.
needs_torch = pytest.mark.skipif(TORCH is None, reason="no Python with torch: set TRAINMASTER_TORCH_PYTHON")

DDP = """
import sys
import torch
import torch.distributed as dist
from determined import core

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
with core.DistributedContext.from_torch_distributed() as distributed, core.init(distributed=distributed) as ctx:
    assert distributed.allgather(rank) == list(range(size))
    assert distributed.allgather_local(distributed.local_rank) == list(range(distributed.local_size))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 4):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 2) * (rank + 1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        ctx.train.report_training_metrics(step, {"loss": loss, "total": total})
        assert not ctx.preempt.should_preempt()
    weights = model.module.weight.detach().tolist()
    assert distributed.allgather(weights) == [weights] * size
    uuid = None
    with ctx.checkpoint.store_path({"steps_completed": 3}, shard=True) as (path, uuid):
        torch.save(model.state_dict(), path / ("rank%d.pt" % rank))
print("rank", rank, "of", size, "sum", total.item())
dist.destroy_process_group()
"""


def trained(job: Any, master: Any, nodes: Any, size: Any, store: Any) -> None:
    for node in nodes:
        output, _ = node.communicate(timeout=300)
        lines = [line for stream in master.streams for line in master.lines(stream)]
        assert node.returncode == 0, output + "\n".join(lines)
    spoken = {
        record["rank"]: record["line"]
        for stream in master.streams
        for record in master.streams[stream]
        if str(record.get("line")).startswith("rank ")
    }
    assert spoken == {rank: f"rank {rank} of {size} sum {sum(range(size))}.0" for rank in range(size)}
    assert [(m["steps_completed"], m["metrics"]["total"]) for m in master.kinds("metrics")] == [
        (step, [float(sum(range(size)))]) for step in (1, 2, 3)
    ]
    (checkpoint,) = master.kinds("checkpoint")
    names = {f"rank{rank}.pt" for rank in range(size)}
    assert set(checkpoint["resources"]) == names | {"metadata.json"}
    assert names < set(os.listdir(store / checkpoint["uuid"]))


@needs_torch
@pytest.mark.slow
def test_two_ranks_on_one_node(stage: Any, tmp_path: Path) -> None:
    job, master = stage(
        f"{TORCH} -m determined.launch.torch_distributed train.py",
        context=archive(**{"train.py": DDP}),
        work={"checkpoint_storage": {"type": "directory", "container_path": str(tmp_path / "store")}},
    )
    trained(job, master, [job.start()], 2, tmp_path / "store")


@needs_torch
@pytest.mark.slow
def test_four_ranks_on_two_nodes(stage: Any, tmp_path: Path) -> None:
    job, master = stage(
        [str(TORCH), "-m", "trainmaster.launchers.torchrun", str(TORCH), "train.py"],
        context=archive(**{"train.py": DDP}),
        slots=4,
        work={
            "num_nodes": 2,
            "checkpoint_storage": {"type": "shared_fs", "host_path": str(tmp_path / "store")},
        },
    )
    (tmp_path / "store").mkdir()
    nodes = [job.start(node_rank=rank, num_nodes=2) for rank in (0, 1)]
    trained(job, master, nodes, 4, tmp_path / "store")


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("death", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_dead_rank_ends_all_and_its_status_counts(stage: Any, death: str, status: int) -> None:
    script = f"""
import os, sys, time
if os.environ["RANK"] == "1":
    print("rank 1 is about to die", flush=True)
    {death}
time.sleep(600)
"""
    job, master = stage(f"{TORCH} -m trainmaster.launchers.torchrun train.py", context=archive(**{"train.py": script}))
    code, output = job.run(seconds=300)
    assert code == status, output + "\n".join(master.lines())
    record = job.exit_record()
    assert (record["exit_code"], record["failed_rank"]) == (status, 1)
    assert "rank 1 is about to" in record["evidence"]
