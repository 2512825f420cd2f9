"""What the scheduler says, in its words and ours."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from trainmaster.runtime.cgroup import oom_kills
from trainmaster.runtime.errors import BadJobFolder
from trainmaster.runtime.facts import parse_devices, read_facts
from trainmaster.runtime.job import JobDescription, parse_work, read_job, read_token
from trainmaster.runtime.logs import parse_line
from trainmaster.runtime.ports import ReservedPorts
from trainmaster.runtime.preempt import signal_reason
from trainmaster.runtime.rendezvous import choose_address, interface_address

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_NODEID": "1",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURMD_NODENAME": "n7",
    "SLURM_JOB_END_TIME": "1893456000",
}


def job(**changes: Any) -> Any:
    fields = {
        "folder": "/job",
        "allocation_id": "a",
        "task_id": "t",
        "token": "tok",
        "cluster_id": "c",
        "master_url": "http://m",
        "master_url_file": None,
        "scheduler": "slurm",
        "resources_type": "slurm-job",
        "pool": "p",
        "slots": 3,
        "slot_type": "cpu",
    }
    return JobDescription(**{**fields, **changes})


def test_slurms_words() -> None:
    facts = read_facts(SLURM, job())
    assert (facts.job_id, facts.node_rank, facts.num_nodes, facts.node_name) == ("4711", 1, 2, "n7")
    assert facts.end_time == 1893456000.0
    assert facts.slot_ids == (0,)
    assert read_facts({**SLURM, "SLURM_NODEID": "0"}, job()).slot_ids == (0, 1)


def test_trainmaster_variables_override_schedulers() -> None:
    ours = {"TRAINMASTER_JOB_ID": "9", "TRAINMASTER_NODE_RANK": "0", "TRAINMASTER_SLOT_IDS": "[4, 6]"}
    facts = read_facts({**SLURM, **ours, "TRAINMASTER_END_TIME": "12.5"}, job(slot_type="cuda"))
    assert (facts.job_id, facts.node_rank, facts.slot_ids, facts.end_time) == ("9", 0, (4, 6), 12.5)


@pytest.mark.parametrize(
    ("environ", "slot_type", "slots"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "cuda", (0, 1)),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "cpu", (0,)),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "cuda", (0,)),
        ({"SLURM_STEP_GPUS": "2,3"}, "cuda", (2, 3)),
        ({"SLURM_JOB_GPUS": "0-2,5"}, "cuda", (0, 1, 2, 5)),
        ({"ROCR_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"}, "rocm", (1,)),
    ],
)
def test_devices(environ: Any, slot_type: str, slots: Any) -> None:
    assert read_facts({**SLURM, **environ}, job(slot_type=slot_type)).slot_ids == slots


def test_devices_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    facts = read_facts({**SLURM, "CUDA_VISIBLE_DEVICES": "GPU-aa,MIG-bb"}, job(slot_type="cuda"))
    assert facts.slot_ids == (0, 1)
    assert facts.device_uuids == ("GPU-aa", "MIG-bb")
    assert parse_devices("gpu:0,1") == ["0", "1"]
    assert parse_devices("0,-1,2") == ["0"]


def test_a_job_without_slots_gets_none() -> None:
    assert read_facts({**SLURM, "CUDA_VISIBLE_DEVICES": "0"}, job(slots=0, slot_type="cuda")).slot_ids == ()


@pytest.mark.parametrize("end", ["0", "4294967294", "99999999999"])
def test_an_unlimited_job_has_no_end(end: str) -> None:
    assert read_facts({**SLURM, "SLURM_JOB_END_TIME": end}, job()).end_time is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SLURM_JOB_ID": ""}, "SLURM_JOB_ID"),
        ({"SLURM_NODEID": "x"}, "SLURM_NODEID must be a whole number"),
        ({"SLURM_NODEID": "2"}, "does not fit 2 nodes"),
        ({"TRAINMASTER_SLOT_IDS": "0,1"}, "JSON list"),
        ({"SLURM_JOB_END_TIME": "soon"}, "seconds since the epoch"),
    ],
)
def test_nonsense_is_a_sentence(changes: Any, words: str) -> None:
    with pytest.raises(BadJobFolder, match=words):
        read_facts({**SLURM, **changes}, job())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is missing"),
        ("{", "cannot be read"),
        ('{"version": 2}', "version 1 is wanted"),
        ('{"version": 1}', "allocation_id must be a string"),
    ],
)
def test_a_bad_job_folder_is_a_sentence(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "job.json").write_text(content)
    with pytest.raises(BadJobFolder, match=words):
        read_job(str(tmp_path))
    with pytest.raises(BadJobFolder, match="token"):
        read_token(str(tmp_path))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([], "not a JSON object"),
        ({"entrypoint": " "}, "entrypoint"),
        ({"entrypoint": ["a", 1]}, "entrypoint"),
        ({"entrypoint": "a", "environment": {"A=B": "c"}}, "environment"),
        ({"entrypoint": "a", "environment": {"A": 1}}, "environment"),
        ({"entrypoint": "a", "trial": {"id": "x"}}, "trial: id must be a number"),
    ],
)
def test_a_lease_that_makes_no_sense_is_a_sentence(answer: Any, words: str) -> None:
    with pytest.raises(BadJobFolder, match=words):
        parse_work(answer)


@pytest.mark.parametrize(
    ("line", "parsed"),
    [
        ("plain", (None, "INFO", "plain")),
        ("[rank=12] ERROR: bad", (12, "ERROR", "ERROR: bad")),
        ("[WARNING] x", (None, "WARNING", "[WARNING] x")),
        ("2024-01-02 03:04:05,678 - DEBUG - x", (None, "DEBUG", "2024-01-02 03:04:05,678 - DEBUG - x")),
        ("WARN foo", (None, "WARNING", "WARN foo")),
        ("no ERRORs here", (None, "INFO", "no ERRORs here")),
        ("the INFO desk is closed, an ERROR", (None, "INFO", "the INFO desk is closed, an ERROR")),
        ("INFORMATION", (None, "INFO", "INFORMATION")),
        ("", (None, "INFO", "")),
    ],
)
def test_lines_tell_their_rank_and_level(line: str, parsed: Any) -> None:
    assert parse_line(line) == parsed


def test_why_sigusr2_came() -> None:
    assert signal_reason(None, 120, 0) == "scheduler"
    assert signal_reason(1000.0, 120, 800) == "walltime"
    assert signal_reason(1000.0, 120, 100) == "scheduler"


def test_addresses() -> None:
    assert choose_address("nonesuch9, lo", "http://192.0.2.1") == ("127.0.0.1", "lo")
    address, _ = choose_address("", "http://127.0.0.1:8080")
    assert address.count(".") == 3
    assert interface_address("lo") == "127.0.0.1"
    assert interface_address("nonesuch9") is None


def test_a_jobs_ports_are_its_own_while_it_runs() -> None:
    mine, others = ReservedPorts(5), ReservedPorts(300)
    assert len({*mine.numbers, *others.numbers}) == 305
    assert all(10000 <= port < 65536 for port in mine.numbers)
    port = mine.numbers[0]
    for family, here in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with socket.socket(family) as stranger:  # who looks for a free one
            assert stranger.connect_ex((here, port)) != 0
            with pytest.raises(OSError, match="in use"):
                stranger.bind((here, port))
        with socket.socket(family) as trainer:
            trainer.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trainer.bind((here, port))
            trainer.listen()
    mine.close()
    others.close()
    with socket.socket(socket.AF_INET) as stranger:
        stranger.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.events": "oom 1\noom_kill 2\n"}, 2),
        # In a container's own namespace the path is not visible, the mount's root is our group.
        ({"proc/self/cgroup": "0::/hidden\n", "sys/fs/cgroup/memory.events": "oom_kill 3\n"}, 3),
        (
            {
                "proc/self/cgroup": "9:name=systemd:/\n4:memory:/slurm/job\n0::/\n",
                "sys/fs/cgroup/memory/slurm/job/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
            },
            4,
        ),
        ({"proc/self/cgroup": "4:memory:/x\n"}, None),
        ({}, None),
    ],
)
def test_the_kernels_count_of_memory_kills(tmp_path: Path, files: Any, count: int | None) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert oom_kills(str(tmp_path)) == count
