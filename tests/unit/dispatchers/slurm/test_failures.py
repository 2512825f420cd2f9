"""Slurm's error messages, mapped to dispatcher errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.slurm.recorded import recorded
from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Rejected, Transient, Unreachable
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.slurm.messages import WORDS, explain_reason, submit_failure


def outcome(stderr: str, code: int = 1, **more: Any) -> CommandResult:
    return CommandResult(("/usr/bin/sbatch",), code, "", stderr, 1.0, **more)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("partition", Rejected, "invalid partition specified: nowhere"),
        ("gpus", Rejected, "Requested node configuration is not available"),
        ("memory", Rejected, "Memory specification can not be satisfied"),
        ("feature", Rejected, "Invalid feature specification"),
        ("license", Rejected, "Invalid license specification"),
        ("node", Rejected, "Invalid node name specified"),
        ("cpus", Rejected, "CPU count per node can not be satisfied"),
        ("reservation", Rejected, "Requested reservation is invalid"),
        ("time", Rejected, "Invalid --time specification"),
        ("account", Rejected, "Invalid account"),
        ("qos", Rejected, "Invalid qos"),
        ("maxwall", Rejected, "more time than its quality of service (QOS) allows (QOSMaxWallDurationPerJobLimit)"),
        ("limit", Transient, "may have no more jobs in the queue until some of them end (AssocMaxSubmitJobLimit)"),
        ("timeout", Ambiguous, "Socket timed out"),
        ("down", Unreachable, "Unable to contact slurm controller"),
    ],
)
def test_recorded_submits(name: str, kind: type[DispatcherError], words: str) -> None:
    error = submit_failure(outcome(recorded(f"sbatch-{name}.err")), "det-1")
    assert type(error) is kind
    assert words in str(error)
    assert error.token == "det-1"


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", Ambiguous),
        ("sbatch: error: Batch job submission failed: Connection reset by peer", Ambiguous),
        (
            "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Job violates accounting/QOS policy (x)",
            Transient,
        ),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", Transient),
        ("slurm_submit_batch_job: Rate limit exceeded, please retry momentarily", Transient),
        ("sbatch: error: Invalid account or account/partition combination specified", Rejected),
        ("sbatch: error: Batch job submission failed: Protocol authentication error", Unreachable),
    ],
)
def test_other_submits(stderr: str, kind: type[DispatcherError]) -> None:
    assert type(submit_failure(outcome(stderr), "t")) is kind


def test_interrupted_submit_is_ambiguous_not_failed() -> None:
    assert isinstance(submit_failure(outcome("", -1, timed_out=True), "t"), Ambiguous)
    assert isinstance(submit_failure(outcome("", -9), "t"), Ambiguous)
    assert isinstance(submit_failure(outcome("", 0), "t"), Ambiguous)
    assert isinstance(submit_failure(outcome("", 1), "t"), Ambiguous)
    # A site's own script around sbatch, of which the kernel ended the latter for want of memory.
    assert isinstance(submit_failure(outcome("/site/sbatch: line 7: 4711 Killed  sbatch.real", 137), "t"), Ambiguous)
    assert isinstance(submit_failure(outcome("env: 'sbatch': No such file", 127, not_found=True), "t"), Unreachable)


def test_queries() -> None:
    assert isinstance(WORDS.query_failure(outcome(recorded("squeue-down.err"))), Unreachable)
    assert isinstance(WORDS.query_failure(outcome(recorded("squeue-timeout.err"))), Unreachable)
    assert isinstance(WORDS.query_failure(outcome(recorded("sacct-down.err"))), Unreachable)
    assert isinstance(WORDS.query_failure(outcome(recorded("sacct-timeout.err"))), Transient)
    # Commands for several clusters end with 0 whatever happened.
    assert isinstance(WORDS.query_failure(outcome("Socket timed out on send/recv operation", 0)), Unreachable)
    assert isinstance(WORDS.query_failure(outcome(recorded("scancel-down.err"), 8)), Unreachable)
    assert isinstance(WORDS.query_failure(outcome("squeue: error: odd", 1)), Transient)
    assert WORDS.query_failure(outcome("", 0)) is None


@pytest.mark.parametrize(
    ("word", "never", "words"),
    [
        ("Priority", False, "higher priority"),
        ("(Resources)", False, "resources"),
        ("PartitionNodeLimit", True, "more nodes"),
        ("QOSMaxGRESPerUser", False, "QOSMaxGRESPerUser"),
        ("QOSMaxCpuPerJobLimit", True, "QOSMaxCpuPerJobLimit"),
        ("AssocGrpCpuLimit", False, "account"),
        ("DependencyNeverSatisfied", True, "depends"),
        ("SomethingOf2031", False, "Slurm says: SomethingOf2031."),
        ("None", False, ""),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", False, "down, drained"),
    ],
)
def test_reasons_in_words(word: str, never: bool, words: str) -> None:
    reason = explain_reason(word)
    assert reason.never is never
    assert words in reason.sentence
    assert bool(words) == bool(reason.sentence)
