"""Argument vectors of Slurm's commands, and the administrator's options behind them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from trainmaster.dispatchers.base import JobSpec, Rejected, Setup, SlotType
from trainmaster.dispatchers.slurm import SlurmDispatcher, commands
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.resources import GpuDialect

PROGRAMS = commands.SlurmPrograms(sbatch="/opt/slurm/bin/sbatch")


def test_the_words_of_a_submit() -> None:
    job = commands.SbatchRequest(
        token="det-1",
        partition="gpu",
        folder=Path("/jobs/100%/det-1"),
        multi_node=True,
        grace=120,
        resources=["--nodes=2"],
        user_options={"time": "60", "exclusive": None},
        wckey="project",
        exclude=["n1", "n2"],
    )
    assert commands.submit(PROGRAMS, job) == [
        "/opt/slurm/bin/sbatch",
        "--parsable",
        "--job-name=det-1",
        "--partition=gpu",
        "--chdir=/jobs/100%/det-1",
        "--output=/jobs/100%%/det-1/output.txt",
        "--open-mode=append",
        "--export=ALL",
        "--no-requeue",
        "--dependency=singleton",
        "--signal=B:USR2@120",
        "--nodes=2",
        "--wckey=project",
        "--exclude=n1,n2",
        "--time=60",
        "--exclusive",
    ]


def test_many_jobs_are_cancelled_in_few_commands() -> None:
    found = commands.cancel(PROGRAMS, [str(number) for number in range(250)])
    assert [len(words) - 1 for words in found] == [100, 100, 50]
    assert commands.cancel(PROGRAMS, []) == []
    assert commands.signal(PROGRAMS, ["7"], "USR2") == [["scancel", "--batch", "--signal=USR2", "7"]]


def test_the_masters_section_with_all_its_keys_is_read() -> None:
    """The keys of Determined's `resource_manager` that concern others are passed over."""
    options = SlurmOptions.read(
        {
            "type": "slurm",
            "cluster_name": "default",
            "master_host": "login1",
            "partition_overrides": {"GPU": {"slot_type": "rocm", "slots_per_node": 4, "description": "big"}},
            "commands": {"sbatch": "/opt/slurm/bin/sbatch", "squeue": None},
            "job_project_source": "project",
            "slots_per_node": 8,
            "tres_supported": False,
        }
    )
    assert options.programs().sbatch == "/opt/slurm/bin/sbatch"
    assert options.slots_are("gpu", has_gpus=True) is SlotType.ROCM
    assert options.slots_are("cpu", has_gpus=False) is SlotType.CPU
    assert (options.node_size("gpu"), options.node_size("other")) == (4, 8)
    assert options.dialect("gpu") is GpuDialect.GRES


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"poll_interval": 0}, "poll_interval"),
        ({"submit_deadline": 5}, "submit_deadline"),
        ({"container_run_type": "aptainer"}, "container_run_type is wrong: There is no .* Did you mean 'apptainer'"),
        ({"partition_overrides": {"gpu": {"slot_type": "tpu"}}}, "partition_overrides.gpu.slot_type"),
    ],
)
def test_a_wrong_configuration_is_refused_in_words(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        SlurmDispatcher(Setup(name="x", prefix="det-", job_root=tmp_path, options=options))


def test_check_without_slurm_skips_only_partitions(tmp_path: Path) -> None:
    gone = {name: f"/nonexistent/{name}" for name in ("sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol")}
    setup = Setup(name="x", prefix="det-", job_root=tmp_path, options={"commands": gone})
    spec = JobSpec(
        "det-1", "1", "main", 1, SlotType.CUDA, options={"sbatch_args": ["--part=main"]}, user="somebody-else"
    )
    found = SlurmDispatcher(setup).check(spec)
    assert [any(words in text for text in found) for words in ("write it out", "somebody-else")] == [True, True]
    assert len(found) == 2


@pytest.mark.parametrize(
    ("slots", "slot_type", "said"),
    [
        (8, SlotType.CUDA, None),
        (
            6,
            SlotType.CUDA,
            "6 slots are not a multiple of slurm.slots_per_node: the job takes 2 x 4, 2 more than it asks for.",
        ),
        (1, SlotType.CUDA, None),  # gets the one
        (
            1,
            SlotType.CPU,
            "1 slot is not a multiple of slurm.slots_per_node: the job takes 1 x 4, 3 more than it asks for.",
        ),
        (0, SlotType.CUDA, None),
    ],
)
def test_remark_names_slots_beyond_request(tmp_path: Path, slots: int, slot_type: SlotType, said: str | None) -> None:
    dispatcher = SlurmDispatcher(Setup(name="x", prefix="det-", job_root=tmp_path))
    spec = JobSpec("det-1", "1", "main", slots, slot_type, slots_per_node=4)
    assert dispatcher.remarks(spec) == ([said] if said else [])
    assert dispatcher.remarks(replace(spec, single_node=True)) == []


@pytest.mark.parametrize(
    ("words", "trains", "said"),
    [
        ([], True, None),
        (["--time=2"], True, "120 s leaves no time to train"),
        (["--time=4:00:00 --time-min=1"], True, "60 s leaves no time to train"),
        (["--time=3"], True, None),
        (["--time=UNLIMITED"], True, None),
        (["--time=1"], False, None),  # a shell saves nothing
    ],
)
def test_too_short_time_limit_error_names_smallest_that_works(
    tmp_path: Path, words: list[str], trains: bool, said: str | None
) -> None:
    gone = {name: f"/nonexistent/{name}" for name in ("sbatch", "squeue", "scancel", "sinfo", "sacct", "scontrol")}
    options = {"commands": gone, "container_run_type": "none"}
    dispatcher = SlurmDispatcher(Setup(name="x", prefix="det-", job_root=tmp_path, options=options))
    spec = JobSpec("det-1", "1", "main", 1, SlotType.CUDA, options={"sbatch_args": words}, trains=trains)
    found = dispatcher.check(spec)
    if said is None:
        assert found == []
    else:
        (sentence,) = found
        assert said in sentence
        assert sentence.endswith("(walltime_grace). The smallest limit that works is --time=3.")
