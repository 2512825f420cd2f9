"""What a look at a scheduler leads to: which of several jobs counts, when a submit is made again, what is removed."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.support.attempts import Attempts
from trainmaster.dispatchers.base import Explanation, JobRef, JobState, Observation, Snapshot
from trainmaster.master.db.tables import User
from trainmaster.master.lifecycle.cancellation import Doubt, doubt
from trainmaster.master.services.allocations import endings, leases
from trainmaster.master.services.batches import single
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.scheduling import observations
from trainmaster.master.services.scheduling.observations import LEAVE_TIME, ORPHAN_GRACE, Memory, ObservedChanges
from trainmaster.master.services.views import attempts_view
from trainmaster.master.values.observed import ObservedJob

QUIET = 20.0


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Memory:
    """Of a name of its own: the tests share a database."""
    return Memory(request.node.name)


def seen(token: str, job_id: str = "1", state: JobState = JobState.QUEUED, **facts: Any) -> Observation:
    return Observation(token, job_id, state, state.value, **facts)


@dataclass(frozen=True)
class Seen:
    """What a look led to, once all of it was written down."""

    doubles: list[JobRef]
    orphans: list[JobRef]
    resubmit: list[str]


def compare(attempts: Attempts, cluster: Memory, *jobs: Observation, later: float = 0.0) -> ObservedChanges:
    """A look at the cluster, so many seconds from now."""
    return attempts.master.observations.take_snapshot(cluster, Snapshot(epoch(now()) + later, jobs), QUIET)


def look(attempts: Attempts, cluster: Memory, *jobs: Observation, later: float = 0.0) -> Seen:
    """The same, written down."""
    found, resubmit = compare(attempts, cluster, *jobs, later=later), []
    while found.backlog.updates:
        resubmit += attempts.master.observations.take(found.backlog)
    return Seen(found.doubles, found.orphans, resubmit)


def lease(attempts: Attempts, name: str, job_id: str, run_id: str = "run") -> None:
    request = leases.LeaseRequest(name, job_id, run_id, 0, 1, "n1", [0], ["127.0.0.1"])
    single(attempts.master.leases.lease([request], {}))


def ids(refs: Sequence[Any]) -> list[str]:
    return [ref.job_id for ref in refs]


# -- a submit whose outcome is not known -------------------------------------------------------------------------


def test_submit_is_repeated_only_after_two_looks_miss_job(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="UNKNOWN", native_id=None, submit_started_at=now())
    assert look(attempts, cluster, later=-60).resubmit == []  # older than the submit: it says nothing
    assert attempts.row(name).absent_since is None
    assert look(attempts, cluster, later=1).resubmit == []
    assert look(attempts, cluster, later=QUIET).resubmit == []
    assert attempts.row(name).submission == "UNKNOWN"
    assert look(attempts, cluster, later=QUIET + 1.5).resubmit == [name]
    assert attempts.row(name).submission == "NEW"
    assert attempts.master.submissions.due(cluster.name, 10) == [name]


@pytest.mark.parametrize("begins", ["HPC job waiting to be scheduled: ", ""])
def test_reason_of_waiting_job_is_logged_with_expected_prefix(attempts: Attempts, cluster: Memory, begins: str) -> None:
    name = attempts.attempt(dispatcher=cluster.name, native_id="7")
    job = seen(name, "7", explanation="Waits behind others.")
    changes = attempts.master.observations.take_snapshot(cluster, Snapshot(epoch(now()), [job]), QUIET, begins)
    attempts.master.observations.take(changes.backlog)
    assert f"{begins}Waits behind others." in attempts.log(name)
    assert attempts.row(name).explanation == "Waits behind others."


def test_look_that_shows_job_clears_its_absence(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="UNKNOWN", native_id=None, submit_started_at=now())
    look(attempts, cluster, later=1)
    look(attempts, cluster, seen(name, "7"), later=QUIET - 1)
    row = attempts.row(name)
    assert (row.submission, row.native_id, row.absent_since) == ("SUBMITTED", "7", None)
    assert look(attempts, cluster, later=3 * QUIET).resubmit == []
    assert attempts.row(name).submission == "SUBMITTED"


def test_a_call_that_is_under_way_is_waited_for(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="SUBMITTING", native_id=None, submit_started_at=now())
    for later in (1, 2 * QUIET, 4 * QUIET):
        assert look(attempts, cluster, later=later).resubmit == []
    assert attempts.row(name).submission == "SUBMITTING"


def test_submit_interrupted_by_master_death_is_looked_for(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="SUBMITTING", native_id=None, submit_started_at=now())
    attempts.master.submissions.recover(cluster.name)
    assert attempts.row(name).submission == "UNKNOWN"
    assert attempts.master.submissions.due(cluster.name, 10) == []
    assert look(attempts, cluster, later=1).resubmit == []
    look(attempts, cluster, seen(name, "7"), later=2)
    assert attempts.row(name).native_id == "7"


def test_a_job_that_shows_up_late_is_taken_and_no_other_is_made(attempts: Attempts, cluster: Memory) -> None:
    """Its submit was given up and is about to be made again."""
    name = attempts.attempt(dispatcher=cluster.name, submission="NEW", native_id=None)
    assert attempts.master.submissions.due(cluster.name, 10) == [name]
    look(attempts, cluster, seen(name, "7", JobState.FAILED, never=True))  # how a refused one is remembered
    assert attempts.master.submissions.due(cluster.name, 10) == [name]
    found = look(attempts, cluster, seen(name, "8"))
    assert (found.doubles, found.orphans) == ([], [])
    assert attempts.master.submissions.due(cluster.name, 10) == []
    assert attempts.row(name).native_id == "8"


def test_answer_to_second_submit_does_not_replace_known_job(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="UNKNOWN", native_id=None, submit_started_at=now())
    look(attempts, cluster, seen(name, "7"), later=1)
    attempts.master.submissions.submitted(name, JobRef(name, "8"))
    assert attempts.row(name).native_id == "7"
    assert ids(look(attempts, cluster, seen(name, "7"), seen(name, "8"), later=2).doubles) == ["8"]


def test_attempt_to_be_killed_is_killed_once_its_job_is_found(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(
        dispatcher=cluster.name, submission="UNKNOWN", native_id=None, submit_started_at=now(), kill_at=now()
    )
    assert attempts.master.endings.to_kill(cluster.name) == []
    look(attempts, cluster, seen(name, "7"), later=1)
    assert [ref.job_id for _, ref in attempts.master.endings.to_kill(cluster.name) if ref] == ["7"]


def test_killed_unsubmitted_attempt_is_not_resubmitted(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(
        dispatcher=cluster.name, submission="UNKNOWN", native_id=None, submit_started_at=now(), kill_at=now()
    )
    look(attempts, cluster, later=1)
    assert look(attempts, cluster, later=QUIET + 2).resubmit == []
    assert attempts.row(name).submission == "NEW"  # from where it is withdrawn
    assert attempts.master.submissions.due(cluster.name, 10) == []


def test_request_to_end_job_is_repeated_while_job_exists(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, kill_at=now())
    asked = attempts.master.endings.to_kill(cluster.name)
    assert [ref.job_id for _, ref in asked if ref] == ["1"]
    assert attempts.master.endings.to_kill(cluster.name) == []
    attempts.change(name, kill_sent_at=now() - dt.timedelta(seconds=endings.RESEND_KILL + 1))
    assert len(attempts.master.endings.to_kill(cluster.name)) == 1


# -- several jobs under one token --------------------------------------------------------------------------------


def test_of_two_jobs_the_older_counts_and_the_other_is_removed(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="UNKNOWN", native_id=None)
    jobs = [seen(name, "9", submitted_at=100.0), seen(name, "10", submitted_at=200.0)]
    for listed in itertools.permutations(jobs):
        found = look(attempts, cluster, *listed)
        assert (ids(found.doubles), attempts.row(name).native_id) == (["10"], "9")


def test_of_two_jobs_of_one_second_the_lower_number_counts(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, submission="UNKNOWN", native_id=None)
    assert ids(look(attempts, cluster, seen(name, "10"), seen(name, "9")).doubles) == ["10"]


def test_job_with_lease_counts_over_job_known_before(attempts: Attempts, cluster: Memory) -> None:
    """The first submit came through after all, began first, and only the second one's number had been seen."""
    name = attempts.attempt(dispatcher=cluster.name, native_id="8")
    lease(attempts, name, "7")
    found = look(attempts, cluster, seen(name, "7", JobState.RUNNING), seen(name, "8"))
    assert ids(found.doubles) == ["8"]
    # From now on it is the one that is ended, and asked about.
    with pytest.raises(Conflict, match="is a double"):
        lease(attempts, name, "8", "another")
    attempts.change(name, kill_at=now())
    assert [ref.job_id for _, ref in attempts.master.endings.to_kill(cluster.name) if ref] == ["7"]
    look(attempts, cluster, seen(name, "7", JobState.FAILED), seen(name, "8", JobState.CANCELLED))
    assert attempts.row(name).observed_state == "FAILED"
    assert [one.ref.job_id for one in endings.unclear(attempts.master.endings.ending(cluster.name))] == ["7"]


def test_a_double_that_has_ended_is_left_alone(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name)
    assert look(attempts, cluster, seen(name), seen(name, "2", JobState.CANCELLED)).doubles == []
    assert attempts.row(name).observed_state == "QUEUED"


@pytest.mark.parametrize(
    ("facts", "number"), [({"exit_code": 137}, 9), ({"exit_signal": 15}, 15), ({"exit_code": 1}, None), ({}, None)]
)
def test_the_signal_that_ended_a_jobs_script_is_known(
    attempts: Attempts, cluster: Memory, facts: dict[str, Any], number: int | None
) -> None:
    listed, asked = (attempts.attempt(dispatcher=cluster.name) for _ in range(2))
    look(attempts, cluster, seen(listed, state=JobState.FAILED, **facts), seen(asked, "2"))
    look(attempts, cluster)
    attempts.master.endings.note_explanation(asked, Explanation("It ended.", JobState.FAILED, **facts))
    for name in (listed, asked):
        assert endings.attempt_of(attempts.row(name)).reported_signal == number


# -- jobs that nobody wants --------------------------------------------------------------------------------------


def test_a_job_that_no_row_knows_is_removed_after_a_while(attempts: Attempts, cluster: Memory) -> None:
    began = epoch(now())
    job = seen("det-of-an-older-database", "5", submitted_at=began)
    assert look(attempts, cluster, job).orphans == []
    assert look(attempts, cluster, job, later=ORPHAN_GRACE - 5).orphans == []
    assert ids(look(attempts, cluster, job, later=ORPHAN_GRACE + 5).orphans) == ["5"]
    for state in (JobState.FINISHING, JobState.COMPLETED):
        ended = seen("det-of-an-older-database", "5", state, submitted_at=began)
        assert look(attempts, cluster, ended, later=ORPHAN_GRACE + 5).orphans == []


def test_a_job_has_time_to_leave_after_its_attempt_has_ended(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, state="TERMINATED", ended_at=now())
    job = seen(name, state=JobState.RUNNING, submitted_at=epoch(now()) - 10_000)
    assert look(attempts, cluster, job, later=LEAVE_TIME - 5).orphans == []
    assert ids(look(attempts, cluster, job, later=LEAVE_TIME + 5).orphans) == ["1"]


def test_another_users_job_under_known_token_is_not_ended(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name, run_as="alice")
    with attempts.store.transaction() as session:
        session.get_one(User, 1).agent_user = "alice"
    jobs = [
        seen(name, "6", JobState.RUNNING, user="mallory"),
        seen("det-unheard-of", "7", JobState.RUNNING, user="mallory", submitted_at=1.0),
        seen("det-unheard-of", "8", JobState.RUNNING, user="alice", submitted_at=1.0),
    ]
    found = look(attempts, cluster, *jobs)
    assert (ids(found.doubles), ids(found.orphans)) == ([], ["8"])
    row = attempts.row(name)
    assert (row.observed_state, row.absent_since is None) == ("", False)


# -- states ------------------------------------------------------------------------------------------------------


def test_older_job_state_does_not_replace_newer_one(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name)
    course = [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.FINISHING, JobState.COMPLETED]
    for at, state in enumerate(course):
        for older in (*reversed(course[: at + 1]), JobState.UNKNOWN):
            look(attempts, cluster, seen(name, state=state))
            look(attempts, cluster, seen(name, state=older))
            assert attempts.row(name).observed_state == state.value


def test_explained_end_is_not_replaced_by_queue_listing(attempts: Attempts, cluster: Memory) -> None:
    """squeue lists a job for minutes after its end, and calls much FAILED of which accounting, or what the job left,
    tells the reason."""
    name = attempts.attempt(dispatcher=cluster.name)
    said = seen(name, state=JobState.FAILED, explanation="The job ended with status 1.", exit_code=1)
    look(attempts, cluster, said)
    told = Explanation("Slurm did not start it.", JobState.INFRASTRUCTURE, exit_code=1)
    attempts.master.endings.note_explanation(name, told)
    assert compare(attempts, cluster, said).backlog.updates == []
    look(attempts, cluster)  # left out by one listing, and there again
    look(attempts, cluster, said)
    row = attempts.row(name)
    assert (row.observed_state, row.absent_since) == ("INFRASTRUCTURE", None)
    assert (row.observed or ObservedJob()).text == "Slurm did not start it."


@pytest.mark.parametrize("skew", [-600.0, 0.0, 600.0])  # seconds by which the scheduler's clock is ahead of ours
def test_cancellation_doubts_ignore_clock_skew_of_scheduler(attempts: Attempts, cluster: Memory, skew: float) -> None:
    submitted = now() - dt.timedelta(seconds=30)
    theirs = epoch(submitted) + skew
    names = [attempts.attempt(dispatcher=cluster.name, native_id=str(n), submit_started_at=submitted) for n in range(3)]
    began, again, restarted = names
    jobs = [seen(name, str(n), JobState.RUNNING, submitted_at=theirs) for n, name in enumerate(names)]
    for n, name in enumerate(names):
        lease(attempts, name, str(n))
    look(attempts, cluster, *jobs)
    look(attempts, cluster, *jobs, later=60)  # nothing has changed: only the memory of the cluster knows of this look
    look(attempts, cluster, *jobs[:2], replace(jobs[2], state=JobState.FINISHING), later=70)
    start = {began: theirs + 10, again: theirs + 100, restarted: theirs + 10}
    ended = [replace(job, state=JobState.CANCELLED, started_at=start[job.token]) for job in jobs]
    took = Snapshot(epoch(now()) + 80, ended, controller_started_at=theirs + 30 + 65)
    found = attempts.master.observations.take_snapshot(cluster, took, QUIET)
    attempts.master.observations.take(found.backlog)
    doubts = {name: doubt(endings.attempt_of(attempts.row(name)).cancellation) for name in names}
    # The controller was started between the last two looks at which they lived: the third was being ended at the later.
    assert doubts == {began: None, again: Doubt.STARTED_AGAIN, restarted: Doubt.CONTROLLER_RESTARTED}


def test_unknown_job_state_is_neither_end_nor_absence(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name)
    look(attempts, cluster, seen(name, state=JobState.RUNNING))
    look(attempts, cluster)
    assert attempts.row(name).absent_since is not None
    look(attempts, cluster, seen(name, state=JobState.UNKNOWN))
    row = attempts.row(name)
    assert (row.observed_state, row.absent_since, row.ended_at) == ("RUNNING", None, None)


def test_jobs_of_another_cluster_are_not_missed(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=f"{cluster.name}-other")
    look(attempts, cluster)
    assert attempts.row(name).absent_since is None


def test_why_a_job_can_never_start_is_forgotten_when_it_can(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name)
    look(attempts, cluster, seen(name, reason="PartitionNodeLimit", never=True, explanation="Too many nodes."))
    first = (attempts.row(name).observed or ObservedJob()).never_since
    look(attempts, cluster, seen(name, reason="PartitionTimeLimit", never=True, explanation="Too long."))
    assert (attempts.row(name).observed or ObservedJob()).never_since == first
    look(attempts, cluster, seen(name, reason="Priority"))
    assert (attempts.row(name).observed or ObservedJob()).never_since is None
    assert [text for text in attempts.log(name) if text.startswith("Too ")] == ["Too many nodes.", "Too long."]


# -- thousands of jobs -------------------------------------------------------------------------------------------


def test_many_observations_are_stored_in_parts_urgent_first(
    attempts: Attempts, cluster: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "TAKEN_AT_ONCE", 2)
    number = attempts.experiment()
    names = sorted(attempts.attempt(number, dispatcher=cluster.name, native_id=str(n)) for n in range(5))
    look(attempts, cluster, *(seen(name, str(n), reason="Priority") for n, name in enumerate(names)))
    over = names[4]
    jobs = [seen(name, str(n), reason="Resources") for n, name in enumerate(names[:4])]
    backlog = compare(attempts, cluster, *jobs, seen(over, "4", JobState.FAILED)).backlog
    assert [name for name, _ in backlog.updates] == [over, *names[:4]]
    attempts.master.observations.take(backlog)
    assert [attempts.row(name).observed_state for name in names] == ["QUEUED"] * 4 + ["FAILED"]
    told = [(attempts.row(name).observed or ObservedJob()).reason for name in names]
    assert told == ["Resources", "Priority", "Priority", "Priority", ""]
    sizes = []
    while backlog.updates:
        sizes.append(len(backlog.updates))
        assert attempts.master.observations.take(backlog) == []
    assert sizes == [3, 1]
    assert [(attempts.row(name).observed or ObservedJob()).reason for name in names[:4]] == ["Resources"] * 4
    assert compare(attempts, cluster, *jobs, seen(over, "4", JobState.FAILED)).backlog.updates == []


# -- a job that is put back into the queue -----------------------------------------------------------------------


@pytest.mark.parametrize(("then", "becomes"), [(JobState.HELD, "HELD"), (JobState.QUEUED, "PREEMPTED")])
def test_where_a_requeued_job_goes_is_judged_when_it_has_left(
    attempts: Attempts, cluster: Memory, then: JobState, becomes: str
) -> None:
    """Its runtime has said how it ended before the scheduler is done with it."""
    name = attempts.attempt(dispatcher=cluster.name, native_id="1")
    lease(attempts, name, "1")
    look(attempts, cluster, seen(name, state=JobState.RUNNING), later=1)
    attempts.change(name, exits={"0": {"node_rank": 0, "exit_code": 0, "preempted": {"reason": "scheduler"}}})
    look(attempts, cluster, seen(name, state=JobState.FINISHING, restarts=1), later=2)
    assert attempts.row(name).observed_state == "FINISHING"
    look(attempts, cluster, seen(name, state=then, restarts=1), later=3)
    assert attempts.row(name).observed_state == becomes


# -- expected starts ----------------------------------------------------------------------------------------------


def test_expected_start_is_updated_and_first_estimate_kept(attempts: Attempts, cluster: Memory) -> None:
    name = attempts.attempt(dispatcher=cluster.name)
    at = epoch(now()) + 3600

    def stored(expected: float | None, state: JobState = JobState.QUEUED) -> tuple[float | None, float | None]:
        look(attempts, cluster, seen(name, state=state, expected_start=expected))
        found = attempts.row(name).observed or ObservedJob()
        return found.expected_start, found.estimated

    assert stored(None) == (None, None)
    assert stored(at) == (at, at)
    assert stored(at + 30) == (at, at)  # a scheduler revises all of them by seconds
    assert stored(at + 1000) == (at + 1000, at)
    assert stored(None) == (None, at)
    assert stored(None, JobState.RUNNING) == (None, at)


def test_expected_start_error_is_median_over_begun_jobs(attempts: Attempts, cluster: Memory) -> None:
    began = now()
    for early in (10, 40, 500):
        observed = {"estimated": epoch(began) - early}
        attempts.attempt(dispatcher=cluster.name, pool=cluster.name, observed=observed, leased_at=began)
    attempts.attempt(dispatcher=cluster.name, pool=cluster.name, leased_at=began)  # none was expected
    with attempts.store.transaction() as session:
        assert attempts_view.expected_error(session, cluster.name) == 40
        assert attempts_view.expected_error(session, "another pool") is None
