"""The output of every release of Slurm is parsed alike."""

from __future__ import annotations

import pytest

from tests.support.slurm.recorded import MARK, RELEASES, recorded
from trainmaster.dispatchers.base import Ambiguous, DispatcherError, JobState, Rejected, Unreachable
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.slurm import parse
from trainmaster.dispatchers.slurm.messages import WORDS, explain_reason, submit_failure
from trainmaster.dispatchers.slurm.outcomes import SlurmExit, describe_end, map_state

NEWER = RELEASES[1:]
IMPOSSIBLE = {
    "24.11": (JobState.FAILED, "BadConstraints"),  # accepted, and found to be impossible when it was its turn
    "26.05": (JobState.QUEUED, "PartitionConfig"),
}


def queue(release: str, name: str = "squeue.out") -> dict[str, parse.QueueLine]:
    jobs, odd = parse.queue(recorded(name, release), MARK)
    assert odd == []
    return {job.name: job for job in jobs if job.name.startswith(("rec-", "odd"))}


@pytest.mark.parametrize("release", NEWER)
def test_jobs(release: str) -> None:
    jobs = queue(release)
    said = {
        name: (map_state(job.state, reason=job.reason, exit=job.exit, derived=job.derived), job.reason)
        for name, job in jobs.items()
    }
    expected = {
        "rec-done": (JobState.COMPLETED, ""),
        "rec-status": (JobState.FAILED, "NonZeroExitCode"),
        "rec-killed": (JobState.FAILED, "NonZeroExitCode"),
        "rec-launch": (JobState.INFRASTRUCTURE, "RaisedSignal:53(Real-time signal 19)"),
        "rec-cancelled": (JobState.CANCELLED, ""),
        "rec-running": (JobState.RUNNING, ""),
        "rec-requeued": (JobState.QUEUED, "BeginTime"),
        "rec-requeue-held": (JobState.HELD, "job requeued in held state"),
        "rec-too-many-nodes": IMPOSSIBLE[release],
        "rec-too-long": (JobState.QUEUED, "PartitionTimeLimit"),
        "rec-begin": (JobState.QUEUED, "BeginTime"),
        "rec-held": (JobState.HELD, "JobHeldUser"),
        "odd\nname\x1f|x": (JobState.HELD, "JobHeldUser"),
    }
    assert said == expected
    assert jobs["rec-status"].exit == SlurmExit(code=3)
    assert jobs["rec-launch"].exit == SlurmExit(signal=53)
    assert (jobs["rec-requeued"].restarts, jobs["rec-requeue-held"].restarts, jobs["rec-running"].restarts) == (1, 1, 0)
    assert explain_reason(jobs["rec-too-many-nodes"].reason).never
    running = jobs["rec-running"]
    assert len(running.nodes) == 2
    assert running.submitted_at is not None
    assert running.started_at is not None
    assert running.ends_at == running.started_at + 3600
    assert running.preempted_at is None


@pytest.mark.parametrize("release", NEWER)
def test_owners_and_sizes(release: str) -> None:
    running = queue(release, "squeue-all.out")["rec-running"]
    assert (running.user, running.partition, running.num_nodes, running.cpus, running.gpus) == (
        "tmalice",
        "main",
        2,
        2,
        2,
    )


@pytest.mark.parametrize("release", NEWER)
def test_nodes(release: str) -> None:
    nodes, odd = parse.nodes(recorded("sinfo.out", release), MARK)
    assert odd == []
    assert {node.partition for node in nodes} == {"main", "short", "small"}
    main = [node for node in nodes if node.partition == "main"]
    assert len(main) == 2
    assert all(node.is_default and node.up and node.state == "mixed" for node in main)
    assert all((node.gpus_total, node.gpus_used, node.cpus_total, node.memory_mb) == (2, 1, 4, 8000) for node in main)
    assert all((node.max_walltime, node.default_walltime) == (86400, 3600) for node in main)


@pytest.mark.parametrize("release", NEWER)
def test_controller_records_of_jobs_and_config_are_parsed(release: str) -> None:
    job = parse.key_values(recorded("job-launch.out", release))
    assert (job["JobState"], job["Reason"], job["ExitCode"]) == (
        "FAILED",
        "RaisedSignal:53(Real-time_signal_19)",
        "0:53",
    )
    state = map_state(job["JobState"], exit=SlurmExit.parse(job["ExitCode"]))
    assert "could not start the job's script" in describe_end(
        state, job["JobState"], exit=SlurmExit.parse(job["ExitCode"])
    )
    cancelled = parse.key_values(recorded("job-cancelled.out", release))
    assert (cancelled["JobState"], cancelled["JobName"]) == ("CANCELLED", "rec-cancelled")
    config = parse.configuration(recorded("config.out", release))
    assert config["MinJobAge"] == "300 sec"
    assert config["MessageTimeout"] == "10 sec"
    assert config["AccountingStorageType"] in ("", "(null)", "accounting_storage/none")


@pytest.mark.parametrize("release", NEWER)
@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("partition", Rejected, "nowhere"),
        ("gpus", Rejected, "Requested node configuration is not available"),
        ("memory", Rejected, "Memory specification can not be satisfied"),
        ("feature", Rejected, "Invalid feature specification"),
        ("license", Rejected, "Invalid license specification"),
        ("node", Rejected, "Invalid node name specified"),
        ("reservation", Rejected, "Requested reservation is invalid"),
        ("time", Rejected, "time specification"),
        ("timeout", Ambiguous, "Socket timed out"),
        ("down", Unreachable, "Unable to contact slurm controller"),
    ],
)
def test_refusals(release: str, name: str, kind: type[DispatcherError], words: str) -> None:
    error = submit_failure(outcome("sbatch", recorded(f"sbatch-{name}.err", release)), "det-1")
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize("release", NEWER)
@pytest.mark.parametrize("name", ["squeue-down", "squeue-timeout", "scancel-down", "scancel-timeout"])
def test_controller_outage_counts_as_unreachable(release: str, name: str) -> None:
    assert isinstance(
        WORDS.query_failure(outcome(name.partition("-")[0], recorded(f"{name}.err", release))), Unreachable
    )


def outcome(program: str, stderr: str) -> CommandResult:
    return CommandResult((f"/usr/bin/{program}",), 1, "", stderr, 1.0)


def test_gpus_in_two_dialects_at_once_are_refused_from_26_05_on() -> None:
    """Why resources.py never mixes them; Slurm ends with a "fatal" here, which is the user's fault all the same."""
    error = submit_failure(outcome("sbatch", recorded("sbatch-both-gpus.err", "26.05")), "det-1")
    assert isinstance(error, Rejected)
    assert "mutually exclusive" in str(error)
