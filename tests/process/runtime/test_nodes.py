"""Jobs of several nodes; here all of them are this machine."""

from __future__ import annotations

import json
from typing import Any

from tests.process.runtime.test_whole_job import archive

MEET = """
import json, os
from trainmaster import core

info = core.get_cluster_info()
rank = info.container_rank
with core.DistributedContext(
    rank=rank, size=2, local_rank=0, local_size=1, cross_rank=rank, cross_size=2
) as distributed, core.init(distributed=distributed) as ctx:
    assert distributed.allgather(rank) == [0, 1]
    assert distributed.gather_local("x") == ["x"]
    assert distributed.broadcast("from %d" % rank) == "from 0"
    ctx.train.report_training_metrics(1, {"loss": float(rank)})
    print(json.dumps({"addrs": info.container_addrs, "counts": info.container_slot_counts, "slots": info.slot_ids}))
    while not ctx.preempt.should_preempt():
        pass
    print("left", rank)
"""


def test_two_nodes_meet_and_leave_together(stage: Any) -> None:
    job, master = stage(
        "python3 train.py",
        context=archive(**{"train.py": MEET}),
        work={"num_nodes": 2},
        slots=3,
        environment={"DET_SLURM_RENDEZVOUS_IFACE": "nonesuch0,lo"},
    )
    nodes = [job.start(node_rank=rank, num_nodes=2) for rank in (0, 1)]
    told = [
        master.wait(lambda name=name: [json.loads(x) for x in master.lines(name) if x.startswith("{")])[0]
        for name in ("log-0", "log-1")
    ]
    assert [node["addrs"] for node in told] == [["127.0.0.1", "127.0.0.1"]] * 2
    assert [node["counts"] for node in told] == [[2, 1]] * 2
    assert [node["slots"] for node in told] == [[0, 1], [0]]
    master.ask_to_leave("test")
    for node in nodes:
        output, _ = node.communicate(timeout=60)
        assert node.returncode == 0, output
    assert "left 1" in master.lines("log-1")
    assert [record["metrics"]["loss"] for record in master.kinds("metrics")] == [0.0]
    assert sorted(lease["node_rank"] for lease in master.leases) == [0, 1]
    assert {rank: record["preempt_acked"] for rank, record in master.exits.items()} == {0: True, 1: False}
    assert sorted(set(job.exit_record(1)["spool"])) == ["log-1"]


def test_a_slow_peer_is_waited_for(stage: Any) -> None:
    job, master = stage("echo together", work={"num_nodes": 2})
    first = job.start(node_rank=0, num_nodes=2)
    # The first node's question is answered 408 after 1 s and asked again.
    master.wait(lambda: len([r for r in master.requests if "all_gather" in r]) >= 2)
    second = job.start(node_rank=1, num_nodes=2)
    for node in (first, second):
        output, _ = node.communicate(timeout=60)
        assert node.returncode == 0, output
    assert master.lines("log-0")[0] == master.lines("log-1")[0] == "together"
    assert len(master._gathered) == 2


def test_a_peer_that_never_comes_ends_the_wait(stage: Any) -> None:
    job, _ = stage("echo never", work={"num_nodes": 2}, rendezvous_patience=0.5)
    status, output = job.run(num_nodes=2)
    assert status == 75
    assert "not all of 2 nodes came" in output
    assert "not all of 2 nodes came" in job.exit_record()["message"]
