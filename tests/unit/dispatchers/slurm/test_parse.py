"""Parsers on recorded outputs and on generated ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.slurm.recorded import MARK, recorded
from trainmaster.dispatchers.base import JobSpec, PoolNode, SlotType
from trainmaster.dispatchers.slurm import parse
from trainmaster.dispatchers.slurm.commands import end_mark
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.outcomes import SlurmExit
from trainmaster.dispatchers.slurm.pools import partitions
from trainmaster.dispatchers.slurm.resources import GpuDialect, plan


def by_name(text: str) -> dict[str, parse.QueueLine]:
    jobs, odd = parse.queue(text, MARK)
    assert odd == []
    return {job.name: job for job in jobs}


def records(text: str) -> list[str]:
    end = end_mark(MARK) + "\n"
    return [part + end for part in text.split(end)[:-1]]


def test_squeue_of_a_real_cluster() -> None:
    jobs = by_name(recorded("squeue.out"))
    assert len(jobs) == 15
    done = jobs["rec-done"]
    assert (done.job_id, done.state, done.exit, done.nodes) == ("130", "COMPLETED", SlurmExit(0), ("n1",))
    assert (done.submitted_at, done.started_at, done.ends_at) == (1795242767, 1795242768, 1795242768)
    assert jobs["rec-status"].exit == SlurmExit(code=3)
    assert jobs["rec-killed"].exit == SlurmExit(signal=9)
    assert jobs["rec-launch"].exit == SlurmExit(signal=53)
    assert jobs["rec-oom"].exit == SlurmExit(signal=125)
    assert (jobs["rec-oom-in-step"].exit, jobs["rec-oom-in-step"].derived) == (SlurmExit(code=1), SlurmExit(signal=125))
    assert jobs["rec-running"].nodes == ("n2", "n3")
    assert jobs["rec-too-many-nodes"].reason == "PartitionNodeLimit"
    assert jobs["rec-held"].started_at is None
    assert jobs["odd\nname\x1f|x"].state == "PENDING"


def test_a_banner_and_odd_lines_do_not_hide_jobs() -> None:
    text = recorded("squeue.out")
    lines = records(text)
    noisy = (
        "Welcome to the cluster!\nMaintenance on Monday\n"
        + "".join(lines[:3])
        + "slurm: warning\n"
        + "".join(lines[3:])
    )
    jobs, odd = parse.queue(noisy, MARK)
    assert [job.job_id for job in jobs] == [job.job_id for job in parse.queue(text, MARK)[0]]
    assert odd == ["Welcome to the cluster!", "Maintenance on Monday", "slurm: warning"]


def test_a_record_that_is_cut_costs_only_itself() -> None:
    lines = records(recorded("squeue.out"))
    cut = lines[0][: len(lines[0]) // 2] + end_mark(MARK) + "\n"
    jobs, odd = parse.queue(cut + "".join(lines[1:3]), MARK)
    assert len(jobs) == 2
    assert len(odd) == 1


@given(st.text(max_size=200))
def test_any_output_is_read_without_an_error(text: str) -> None:
    parse.queue(text, MARK)
    parse.nodes(text, MARK)
    parse.key_values(text)
    parse.configuration(text)
    parse.accounting(text, "det-a")
    parse.submitted_id(text)
    parse.expand_hosts(text)
    parse.gpus(text)
    parse.duration(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_job_name_survives(name: str) -> None:
    fields = ["7", "RUNNING", "None", "0", "0", "1", "2", "3", "N/A", "0", "n1", "c", name]
    jobs, odd = parse.queue((MARK.join(fields) + end_mark(MARK) + "\n") * 2, MARK)
    assert [job.name for job in jobs] == [name, name]
    assert odd == []


def test_sinfo_of_a_real_cluster() -> None:
    nodes, odd = parse.nodes(recorded("sinfo.out"), MARK)
    assert odd == []
    assert {node.partition for node in nodes} == {"main", "short", "small"}
    main = {node.node: node for node in nodes if node.partition == "main"}
    assert sorted(main) == ["n1", "n2", "n3", "n4"]
    assert all(node.is_default and node.gpus_total == 2 and node.cpus_total == 4 for node in main.values())
    assert main["n2"].gpus_used == 2
    assert main["n1"].max_walltime == 86400
    assert main["n1"].default_walltime == 3600
    assert next(node for node in nodes if node.partition == "short").max_walltime == 120
    assert main["n4"].state == "down"


def test_the_nodes_of_a_partition_are_its_members() -> None:
    """Down ones too; a node that drains goes on with what it has."""
    nodes, _ = parse.nodes(recorded("sinfo.out"), MARK)
    main = partitions(nodes, SlurmOptions())["main"].pool(SlurmOptions())
    members = {member.name: member for member in main.members}
    assert members["n2"] == PoolNode("n2", 2, 2)
    assert members["n4"] == PoolNode("n4", 2, 0, enabled=False)
    draining = [replace(node, state="draining") for node in nodes if node.node == "n2"]
    (member,) = partitions(draining, SlurmOptions())["main"].pool(SlurmOptions()).members
    assert (member.enabled, member.draining, member.slots_used) == (False, True, 2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("123\n", ("123", "")),
        ("123;cluster2\n", ("123", "cluster2")),
        ("Your project has 12 hours left\n42\n", ("42", "")),
        ("sbatch: lua: 2 notes\n17;c\n\n", ("17", "c")),
        ("Submitted batch job 5\n", None),
        ("", None),
    ],
)
def test_the_job_id_is_found_among_a_sites_own_words(text: str, found: tuple[str, str] | None) -> None:
    assert parse.submitted_id(text) == found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("2:00", 120), ("1:00:00", 3600), ("1-00:00:00", 86400), ("infinite", None), ("n/a", None)],
)
def test_durations(text: str, seconds: int | None) -> None:
    assert parse.duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],gpu4", ["n08", "n09", "n10", "n12", "gpu4"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
        ("(null)", []),
        ("None assigned", []),
        ("odd[a-b]", ["odd[a-b]"]),
    ],
)
def test_host_lists(text: str, hosts: list[str]) -> None:
    assert list(parse.expand_hosts(text)) == hosts


@pytest.mark.parametrize(
    ("text", "count", "types"),
    [
        ("gpu:2", 2, ()),
        ("gpu:a100:4(S:0-1)", 4, ("a100",)),
        ("gpu:a100:4(S:0-1),gpu:v100:2,shard:8", 6, ("a100", "v100")),
        ("gpu:(null):0(IDX:N/A)", 0, ()),
        ("gpu:a100:3(IDX:0-1,3)", 3, ("a100",)),
        ("gpu:2080ti:4(S:0-1)", 4, ("2080ti",)),
        ("gpu:3090:8", 8, ("3090",)),
        ("gpu:1g.5gb:7,gpu:a100_3g.20gb:2", 9, ("1g.5gb", "a100_3g.20gb")),
        ("gpu:nvidia_h100_80gb_hbm3_1g.10gb+me:7(S:0)", 7, ("nvidia_h100_80gb_hbm3_1g.10gb+me",)),
        ("craynetwork:4,gpu:4(S:0-1),gpu:mi250:8(S:0)", 12, ("mi250",)),
        ("gpu", 1, ()),
        ("gpu:tesla", 1, ("tesla",)),
        ("gpu:a100:no_consume:2", 2, ("a100",)),
        ("gpu:2080ti:0(IDX:N/A)", 0, ("2080ti",)),
        ("GPU:2", 2, ()),
        ("gpumem:5,gpu_shares:8,mps:100", 0, ()),
        ("(null)", 0, ()),
    ],
)
def test_gpus(text: str, count: int, types: tuple[str, ...]) -> None:
    assert parse.gpus(text) == (count, types)


@pytest.mark.parametrize("text", ["gpu:a100:lots", "gpu:", "gpu:a100:4(S:0),gpu:v100:two"])
def test_text_about_gpus_without_a_number_is_kept(text: str) -> None:
    assert parse.read_gpus(text).unread == (text.rpartition(",")[2],)


def sinfo_line(gres: str, *, partition: str = "gpu", node: str = "g1", used: str = "gpu:0", state: str = "idle") -> str:
    fields = (partition, node, state, "0/8/0/8", gres, used, "infinite", "n/a", "up", "64000", "NO")
    return "".join(f"{field}{MARK}" for field in fields) + "\n"


def test_nodes_that_take_no_jobs_are_not_counted_as_free() -> None:
    away = ("drained", "draining", "drained*", "down", "down*", "idle*", "fail", "failing", "inval", "future")
    states = ("idle", "mixed", *away)
    text = "".join(sinfo_line("gpu:4", node=f"g{number}", state=state) for number, state in enumerate(states))
    pool = partitions(parse.nodes(text, MARK)[0], SlurmOptions())["gpu"].pool(SlurmOptions())
    assert (pool.nodes, pool.slots_total) == (2, 8)
    assert [member.enabled for member in pool.members] == [True, True, *(False for _ in away)]


def test_a_nodes_gpus_are_never_taken_for_none() -> None:
    text = sinfo_line("gpu:a100:lots") + sinfo_line("(null)", partition="cpu", node="c1")
    found = partitions(parse.nodes(text, MARK)[0], SlurmOptions())
    gpu, cpu = (found[name].pool(SlurmOptions()) for name in ("gpu", "cpu"))
    assert (gpu.slot_type, cpu.slot_type) == (SlotType.CUDA, SlotType.CPU)
    (problem,) = gpu.problems
    assert "node g1 in partition gpu cannot be counted: sinfo prints 'gpu:a100:lots'" in problem.text
    assert cpu.problems == ()
    spec = JobSpec("det-1", "1", "gpu", 4, SlotType.CUDA)
    request = plan(4, SlotType.CUDA, GpuDialect.TRES, node_size=found["gpu"].node_size() or None)
    assert found["gpu"].complaints(spec, None, request, None) == []  # Slurm knows better


def test_node_with_mixed_gpus_counts_each_kind() -> None:
    (node,) = parse.nodes(sinfo_line("gpu:2080ti:4(S:0-1),gpu:3090:2(S:1)"), MARK)[0]
    partition = partitions([node], SlurmOptions())["gpu"]
    assert (partition.node_size(), partition.node_size("2080ti"), partition.node_size("3090")) == (6, 4, 2)
    assert partition.pool(SlurmOptions()).accelerator == "2080ti, 3090"
    request = plan(3, SlotType.CUDA, GpuDialect.TRES, slots_per_node=3)
    spec = JobSpec("det-1", "1", "gpu", 3, SlotType.CUDA)
    assert partition.complaints(spec, "2080ti", request, None) == []
    (complaint, _) = partition.complaints(spec, "3090", request, None)
    assert complaint == "Pool gpu has no node with 3 GPUs; its largest has 2."


def test_scontrol_of_real_jobs() -> None:
    job = parse.key_values(recorded("job-oomstep.out"))
    assert (job["JobState"], job["ExitCode"], job["DerivedExitCode"]) == ("FAILED", "1:0", "0:125")
    assert job["JobName"] == "rec-oom-in-step"
    config = parse.configuration(recorded("config.out"))
    assert config["MinJobAge"] == "30 sec"
    assert config["AccountingStorageType"] == "accounting_storage/none"


def test_accounting_takes_newest_run_of_job_with_token() -> None:
    text = (
        "12|FAILED|1:0|0:0|None|n9|somebody|else's\n12|PREEMPTED|0:0|0:0|None|n1|det-a\n"
        "12|CANCELLED by 1000|0:15|0:0|None|n[1-2]|det-a\n12|COMPLETED|0:0|0:0|None|n3|det-b\n"
    )
    assert parse.accounting(text, "det-a") == {
        "job_id": "12",
        "state": "CANCELLED by 1000",
        "exit": "0:15",
        "derived": "0:0",
        "reason": "None",
        "nodes": "n[1-2]",
    }
    assert parse.accounting(text, "det-c") is None
    assert parse.accounting("", "det-a") is None


def test_accounting_of_real_jobs() -> None:
    text = recorded("sacct-ended.out")
    rows = {line.rpartition("|")[2]: line.split("|")[1] for line in text.splitlines()}
    assert {parse.accounting(text, name)["state"] for name in rows} == set(rows.values())  # type: ignore[index]
    assert set(rows.values()) >= {"TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "FAILED", "COMPLETED", "REQUEUED"}


def test_everybodys_jobs_with_their_owners_and_sizes() -> None:
    jobs, odd = parse.queue(recorded("squeue-all.out"), MARK)
    assert odd == []
    sizes = {job.name: (job.user, job.partition, job.num_nodes, job.cpus, job.gpus) for job in jobs}
    assert sizes == {
        "array": ("tmbob", "main", 1, 1, 0),
        "held theirs": ("tmbob", "main", 2, 2, 4),
        "theirs": ("tmbob", "main", 1, 1, 1),
        "rec-hers": ("tmalice", "main", 1, 3, 0),
        "rec-forged": ("tmbob", "main", 1, 1, 2),
    }


@pytest.mark.parametrize(
    ("allocated", "per_job", "per_node", "gpus"),
    [
        ("cpu=4,node=2,gres/gpu=4,gres/gpu:a100=4", "N/A", "gres:gpu:a100:2", 4),
        ("cpu=4,mem=1G,node=1,gres/gpu:a100=1,gres/gpu:h100=2", "N/A", "N/A", 3),
        ("cpu=4,node=2,gres/gpu=4,gres/gpu:1g.5gb=1", "N/A", "N/A", 4),
        ("cpu=4,node=2", "N/A", "gres/gpu:2080ti=2", 4),
        ("cpu=4,node=2", "gres/gpu:3", "N/A", 3),
        ("cpu=4,node=2", "", "gres/gpu:a100:2,gres/shard:8", 4),
        ("", "", "", 0),
    ],
)
def test_gpus_of_a_job(allocated: str, per_job: str, per_node: str, gpus: int) -> None:
    assert parse.job_gpus(allocated, per_job, per_node, nodes=2) == gpus


HEADING = MARK.join(["JOBID", "STATE", *["X"] * 9]) + end_mark(MARK) + "\n"


@pytest.mark.parametrize("banner", ["", "Welcome to the cluster!\n"])
@pytest.mark.parametrize("jobs", [0, 3])
def test_an_answer_with_its_heading_is_whole(banner: str, jobs: int) -> None:
    text = banner + HEADING + "".join(records(recorded("squeue.out"))[:jobs]) + banner
    assert parse.cut_queue(text, MARK) == ""
    assert len(parse.queue(text, MARK)[0]) == jobs


def test_queue_answer_cut_within_line_is_noticed() -> None:
    whole = records(recorded("squeue.out"))[:3]
    text, last = HEADING + "".join(whole[:2]), whole[2]
    in_the_number = len(last.partition(MARK)[0])
    missed = [at for at in range(len(last) - 1) if not parse.cut_queue(text + last[:at], MARK)]
    # What begins as a number only may be a banner; the job that is missing tells then (SlurmDispatcher.observe).
    assert [at for at in missed if at > in_the_number + len(MARK)] == []


@pytest.mark.parametrize("text", ["", "\n", "Welcome to the cluster!\n", HEADING.replace("0123456789abcdef", "feed")])
def test_an_answer_without_its_heading_is_none(text: str) -> None:
    assert parse.cut_queue(text, MARK) == "its answer has no heading"
    assert parse.cut_nodes(text, MARK) == "its answer has no heading"


def test_nodes_under_their_heading() -> None:
    heading = MARK.join(["PARTITION", *["X"] * 9]) + MARK + "\n"
    text = heading + recorded("sinfo.out")
    assert parse.cut_nodes(text, MARK) == ""
    assert parse.nodes(text, MARK) == parse.nodes(recorded("sinfo.out"), MARK)
    assert parse.cut_nodes(text[:-20], MARK) == "its last line is truncated"


def test_a_partition_that_gives_whole_nodes_is_exclusive() -> None:
    text = sinfo_line("gpu:4") + sinfo_line("gpu:4", partition="whole").replace(
        f"{MARK}NO{MARK}", f"{MARK}EXCLUSIVE{MARK}"
    )
    found = partitions(parse.nodes(text, MARK)[0], SlurmOptions())
    assert {name: one.pool(SlurmOptions()).exclusive for name, one in found.items()} == {"gpu": False, "whole": True}
