"""Errors of failed commands, from messages of a real PBS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.pbs.recorded import outcome
from trainmaster.dispatchers.base import Ambiguous, Rejected, Transient, Unreachable
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.pbs.messages import WORDS, no_history, submit_failure


def said(stderr: str, status: int = 1, program: str = "qsub", **more: Any) -> CommandResult:
    return CommandResult((program,), status, "", stderr, 1.0, **more)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qsub-bad-queue", "Unknown queue"),
        ("qsub-bad-resource", "Unknown resource: nosuch"),
        ("qsub-bad-walltime", "Illegal attribute or resource value"),
        ("qsub-over-max", "Job violates queue and/or server resource limits"),
        ("qsub-over-walltime", "resource limits"),
        ("qsub-select-and-nodes", 'cannot be used with "select"'),
        ("qsub-bad-name", "illegal -N value"),
    ],
)
def test_refused_submit_is_rejected_in_words_of_pbs(name: str, words: str) -> None:
    error = submit_failure(outcome(name), "det-1")
    assert type(error) is Rejected
    assert words in str(error)
    assert "usage" not in str(error)
    assert error.token == "det-1"


def test_access_denied_from_host_is_rejected_not_unreachable() -> None:
    error = submit_failure(said("qsub: Access from host not allowed, or unknown host\n", 160), "det-1")
    assert type(error) is Rejected
    assert "acl_hosts" in str(error)
    assert type(submit_failure(said("qsub: Unknown Host\n", 1), "det-1")) is Unreachable


def test_a_server_that_is_down_is_unreachable() -> None:
    for name in ("qsub-server-down",):
        assert type(submit_failure(outcome(name), "det-1")) is Unreachable
    for name in ("qstat-server-down", "qdel-server-down"):
        error = WORDS.query_failure(outcome(name))
        assert type(error) is Unreachable
        assert "Connection refused" in str(error)


def test_a_queue_that_is_closed_may_open() -> None:
    assert type(submit_failure(outcome("qsub-disabled-queue"), "det-1")) is Transient


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("qsub: Maximum number of jobs already in queue gpu", Transient),
        ("qsub: would exceed complex's per-user limit of jobs in 'Q' state", Transient),
        ("qsub: Job rejected by all possible destinations", Rejected),
        ("qsub: Unauthorized Request", Rejected),
        ("qsub: Bad UID for job execution", Rejected),
        ("qsub: request rejected as filter could not be applied: a site's hook says no", Rejected),
        ("qsub: End of File", Ambiguous),
        ("qsub: Communication failure.", Ambiguous),
        ("qsub: Batch protocol error", Ambiguous),
        ("Connection timed out", Ambiguous),
        ("", Ambiguous),
        ("qsub: cannot connect to server pbs (errno=15010)", Unreachable),
        ("qsub: Invalid credential", Unreachable),
        ("Unknown Host.", Unreachable),
    ],
)
def test_submits(text: str, kind: type) -> None:
    assert type(submit_failure(said(text), "det-1")) is kind


def test_interrupted_submit_is_ambiguous_missing_command_is_not() -> None:
    assert type(submit_failure(said("", -1, timed_out=True), "det-1")) is Ambiguous
    assert type(submit_failure(said("", -9), "det-1")) is Ambiguous
    assert type(submit_failure(said("", 0), "det-1")) is Ambiguous
    assert type(submit_failure(said("", 127, not_found=True), "det-1")) is Unreachable
    assert type(WORDS.query_failure(said("", -1, timed_out=True))) is Unreachable
    assert type(WORDS.query_failure(said("", 127, not_found=True))) is Unreachable


def test_an_order_about_ended_jobs_went_well() -> None:
    for name in ("qdel-finished", "qdel-unknown", "qstat-unknown", "qstat-many"):
        assert WORDS.only_about_ended_jobs(outcome(name))
    assert not WORDS.only_about_ended_jobs(outcome("qdel-server-down"))
    assert not WORDS.only_about_ended_jobs(
        said("qdel: Unknown Job Id 1.s\nqdel: Unauthorized Request 2.s", 159, "qdel")
    )
    assert not WORDS.only_about_ended_jobs(said("", 1))
    assert WORDS.only_about_ended_jobs(said("qsig: Request invalid for state of job 1.s", 168, "qsig"))
    assert WORDS.only_about_ended_jobs(said("Welcome to Site!\nqdel: Unknown Job Id 1.s\nBye", 153, "qdel"))
    assert not WORDS.only_about_ended_jobs(said("Welcome to Site!\nqdel: Unauthorized Request 2.s", 159, "qdel"))
    assert not WORDS.only_about_ended_jobs(said("Welcome to Site!", 1, "qdel"))


def test_good_answers_are_no_errors() -> None:
    assert WORDS.query_failure(outcome("live-dsv", "qstat")) is None
    assert WORDS.query_failure(said("a warning of the site\n", 0, "qstat")) is None


def test_other_failures_name_the_program() -> None:
    error = WORDS.query_failure(
        replace(said("qstat: odd", 7), argv=("/usr/bin/env", "TZ=UTC0", "/opt/pbs/bin/qstat", "-f"))
    )
    assert type(error) is Transient
    assert str(error) == "qstat failed with status 7: odd."


def test_a_server_without_history() -> None:
    assert no_history(outcome("no-history-qselect"))
    assert no_history(outcome("no-history-qstat"))
    assert not no_history(outcome("qstat-unknown"))
