"""Jobs on a real cluster: several nodes, signals, and the number of queries."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.cluster.cluster import Cluster
from tests.support.dispatcher_site import Bench, wait
from trainmaster.dispatchers.base import JobState, Signal, SlotType
from trainmaster.dispatchers.conformance import programs

pytestmark = pytest.mark.slurm

ON_EACH_NODE = """
import json, os, signal, sys, time
folder, rank, told = sys.argv[1], os.environ["SLURM_NODEID"], []
signal.signal(signal.SIGUSR2, lambda number, frame: told.append("SIGUSR2"))
open(folder + "/ready-" + rank, "w").close()
deadline = time.time() + 120
while not told and time.time() < deadline:
    time.sleep(0.02)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # it may come twice, and Python takes its handlers away at the end
with open(folder + "/exit/" + rank + ".json", "w") as record:
    json.dump({"told": told[:1], "environment": dict(os.environ)}, record)
"""


def test_a_job_on_two_nodes_runs_and_is_signalled_on_both(bench: Bench) -> None:
    ref = bench.submit(ON_EACH_NODE, slots=4)
    bench.ready(ref, files=2)
    seen = bench.seen(ref.token)[0]
    assert seen.state is JobState.RUNNING
    assert len(seen.nodes) == 2
    assert seen.started_at is not None
    assert seen.ends_at is not None
    assert seen.ends_at == pytest.approx(seen.started_at + 3600, abs=2)
    bench.dispatcher.signal([ref], Signal.PREEMPT)
    assert bench.ended(ref).state is JobState.COMPLETED
    records = {rank: json.loads(text) for rank, text in bench.dispatcher.collect(ref.token).exits.items()}
    assert sorted(records) == [0, 1]
    for record in records.values():
        assert record["told"] == ["SIGUSR2"]
        assert record["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"
        assert record["environment"]["SLURM_JOB_NUM_NODES"] == "2"
        assert float(record["environment"]["TRAINMASTER_END_TIME"]) == pytest.approx(time.time() + 3600, abs=60)
    assert {record["environment"]["SLURMD_NODENAME"] for record in records.values()} == set(seen.nodes)


def test_a_job_that_waits_has_the_start_that_backfill_expects(bench: Bench) -> None:
    first = [bench.submit("import time\ntime.sleep(300)\n", slots=2, pool="small") for _ in range(2)]
    last = bench.submit(programs.TELLS, slots=2, pool="small")
    wait(lambda: any(bench.seen(ref.token)[0].state is JobState.RUNNING for ref in first), "a job that runs")
    wait(lambda: bench.seen(last.token)[0].expected_start, "an estimate", 120)
    seen = bench.seen(last.token)[0]
    assert (seen.state, seen.started_at) == (JobState.QUEUED, None)
    runs = [one for ref in first if (one := bench.seen(ref.token)[0]).state is JobState.RUNNING]
    assert seen.expected_start is not None
    assert seen.expected_start >= min(one.ends_at or 0 for one in runs)
    assert all(one.expected_start is None for one in runs)


def test_one_failing_node_ends_the_whole_job(bench: Bench) -> None:
    program = "import os, sys, time\nif os.environ['SLURM_NODEID'] == '1': sys.exit(7)\ntime.sleep(300)\n"
    end = bench.ended(bench.submit(program, slots=4))
    assert end.state is JobState.FAILED
    # srun reports the highest status, which may be that of a node that it told to leave.
    assert end.exit_code not in (None, 0)


@pytest.mark.parametrize(
    ("slots", "pool", "nodes", "gpus"), [(1, "main", 1, "0"), (2, "main", 1, "0,1"), (2, "small", 1, "0,1")]
)
def test_gpus_are_given(bench: Bench, slots: int, pool: str, nodes: int, gpus: str) -> None:
    ref = bench.submit(programs.TELLS, slots=slots, pool=pool)
    assert len(bench.ended(ref).nodes) == nodes
    wait(lambda: bench.dispatcher.collect(ref.token).exits, "the record")
    environment = json.loads(bench.dispatcher.collect(ref.token).exits[0])["environment"]
    assert len(environment["CUDA_VISIBLE_DEVICES"].split(",")) == slots
    assert environment["CUDA_VISIBLE_DEVICES"] == gpus or slots == 1


def test_the_users_options_reach_slurm(bench: Bench, slurm_cluster: Cluster) -> None:
    options = ("--time=0:30:00", "-c 2", "--nice=3", "-J 'my own name'", "--mail-type=NONE")
    ref = bench.submit(programs.WAITS, options=options, labels=("project",))
    bench.ready(ref)
    shown = slurm_cluster.command("scontrol", "show", "job", ref.job_id)
    for words in ("TimeLimit=00:30:00", "CPUs/Task=2", "Nice=3", "Comment=my own name", f"JobName={ref.token}"):
        assert words in shown
    assert "Requeue=0" in shown


def test_pools_are_the_partitions_with_live_slots(bench: Bench) -> None:
    ref = bench.submit(programs.WAITS, slots=2)
    bench.ready(ref)
    pools = {pool.name: pool for pool in bench.dispatcher.pools()}
    assert {"main", "short", "small"} <= set(pools)
    main = pools["main"]
    assert main.is_default
    assert main.slot_type is SlotType.CUDA
    assert (main.slots_total, main.nodes, main.slots_per_node) == (8, 4, 2)
    assert main.slots_used >= 2
    assert pools["short"].max_walltime == 120
    assert pools["small"].slots_total == 2


def test_check_knows_the_partitions_limits(bench: Bench) -> None:
    check = bench.dispatcher.check
    assert check(bench.spec(pool="short", options=("--time=1",))) == []
    assert any("120 s" in text for text in check(bench.spec(pool="short", options=("--time=10",))))
    assert any("largest has 2" in text for text in check(bench.spec(slots=3, slots_per_node=3)))
    assert any("largest has 2" in text for text in check(bench.spec(slots=4, single_node=True)))
    assert any("has 1" in text for text in check(bench.spec(slots=4, pool="small")))
    assert any("type 'a100'" in text for text in check(bench.spec(options={"gpu_type": "a100"})))


def test_observing_costs_two_messages_however_many_jobs(bench: Bench, slurm_cluster: Cluster) -> None:
    for _ in range(10):  # of jobs that do not run meanwhile: they would ask, too
        bench.submit(programs.ENDS_WELL, slots=0, options=("--begin=now+1hour",))
    slurm_cluster.reset_rpc_counts()
    bench.dispatcher.observe()
    counts = slurm_cluster.rpc_counts()
    asked = {name: count for name, count in counts.items() if "JOB" in name or "PARTITION" in name}
    assert sum(asked.values()) <= 2, counts


def test_probe_tells_how_this_cluster_is_set_up(bench: Bench) -> None:
    found = bench.dispatcher.probe()
    assert found.scheduler == "slurm"
    assert found.version[:2].isdigit()
    assert found.accounting is False
    assert found.quiet_period == 10.0  # twice the MessageTimeout of the test cluster
    assert found.poll_interval == 10.0
