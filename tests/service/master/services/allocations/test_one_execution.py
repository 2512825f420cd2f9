"""Whatever becomes of a submit and in whatever order news comes: one job of an attempt works, and no other is left.

The database and what the master does to it are real; the cluster, the answers that get lost on the way and the time are
the test's own.
"""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from dataclasses import dataclass, replace
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.support.attempts import Attempts
from trainmaster.dispatchers.base import JobRef, JobState, Observation, Snapshot
from trainmaster.master.db.tables import Allocation
from trainmaster.master.lifecycle.states import SubmissionState
from trainmaster.master.services.allocations import endings, leases
from trainmaster.master.services.batches import single
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.scheduling import observations, submission

QUIET = 20.0
CLUSTER = "one execution"
BEGAN = dt.datetime(2026, 11, 21, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Job:
    """As its scheduler has it. `works`: it got the lease."""

    job_id: str
    submitted_at: float
    state: JobState = JobState.QUEUED
    works: bool = False


class OneExecution(RuleBasedStateMachine):
    """One attempt, handed to a scheduler that neither refuses nor holds back a second job of a name."""

    def __init__(self, attempts: Attempts) -> None:
        super().__init__()
        self.store, self.attempts, self.memory = attempts.store, attempts, observations.Memory(CLUSTER)
        self.time = BEGAN
        self.patches = ExitStack()
        for module in (submission, observations, leases, endings, log_store):
            self.patches.enter_context(mock.patch.object(module, "now", self.now))
        self.name = attempts.attempt(dispatcher=CLUSTER, submission="NEW", native_id=None, not_before=self.time)
        self.jobs: dict[str, Job] = {}
        self.calling = False  # a submit is under way
        self.on_the_way = 0  # requests that may still reach the scheduler, whoever waits for their answer
        self.listing: tuple[float, list[Job]] | None = None
        self.backlog: observations.PendingUpdates | None = None
        self.doomed: list[str] = []  # jobs that the master has decided to remove
        self.killed = False

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.attempts.change(self.name, ended_at=self.time)
            self.patches.close()

    def now(self) -> dt.datetime:
        return self.time

    @property
    def row(self) -> Allocation:
        return self.attempts.row(self.name)

    def working(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.works and job.state is JobState.RUNNING]

    # -- the master's submits -----------------------------------------------------------------------------------

    @precondition(lambda self: not self.calling)
    @rule()
    def submit(self) -> None:
        for name in self.attempts.master.submissions.due(CLUSTER, 1):
            self.attempts.change(name, submission=SubmissionState.SUBMITTING.value, submit_started_at=self.time)
            self.calling = True
            self.on_the_way += 1

    @precondition(lambda self: self.on_the_way)
    @rule()
    def a_request_arrives(self) -> None:
        self.on_the_way -= 1
        number = str(len(self.jobs) + 1)
        self.jobs[number] = Job(number, self.time.timestamp())

    @precondition(lambda self: self.calling and self.jobs and not self.on_the_way)
    @rule()
    def the_answer_comes(self) -> None:
        self.calling = False
        self.attempts.master.submissions.submitted(self.name, JobRef(self.name, max(self.jobs, key=int)))

    @precondition(lambda self: self.calling)
    @rule()
    def the_answer_gets_lost(self) -> None:
        self.calling = False
        self.attempts.master.submissions.perhaps_submitted(self.name, "no answer")

    @precondition(lambda self: self.calling)
    @rule()
    def the_master_dies_and_is_started_again(self) -> None:
        self.calling = False
        self.doomed = []
        self.attempts.master.submissions.recover(CLUSTER)

    @precondition(lambda self: self.calling and self.on_the_way)
    @rule()
    def the_scheduler_declines_for_now(self) -> None:
        self.calling = False
        self.on_the_way -= 1
        self.attempts.master.submissions.not_submitted(self.name, 15.0, "it is full")

    # -- the cluster --------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def a_job_starts(self, data: st.DataObject) -> None:
        waiting = [job for job in self.jobs.values() if job.state is JobState.QUEUED]
        if waiting:
            self.start(data.draw(st.sampled_from(waiting)))

    def start(self, job: Job) -> None:
        request = leases.LeaseRequest(self.name, job.job_id, f"run{job.job_id}", 0, 1, "n1", [0], [])
        try:
            single(self.attempts.master.leases.lease([request], {}))
        except Conflict:
            self.jobs[job.job_id] = replace(job, state=JobState.COMPLETED)
            return
        assert not self.working(), "two jobs work on one attempt"
        self.jobs[job.job_id] = replace(job, state=JobState.RUNNING, works=True)

    @rule(seconds=st.sampled_from([0.5, 5.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.time += dt.timedelta(seconds=seconds)

    # -- looks --------------------------------------------------------------------------------------------------

    @rule()
    def the_cluster_is_listed(self) -> None:
        self.listing = self.time.timestamp(), list(self.jobs.values())

    @precondition(lambda self: self.listing is not None)
    @rule()
    def the_listing_is_taken_in(self) -> None:
        assert self.listing is not None
        taken_at, jobs = self.listing
        self.listing = None
        seen = [Observation(self.name, j.job_id, j.state, j.state.value, submitted_at=j.submitted_at) for j in jobs]
        found = self.attempts.master.observations.take_snapshot(self.memory, Snapshot(taken_at, seen), QUIET)
        self.doomed += [ref.job_id for ref in (*found.doubles, *found.orphans)]
        self.backlog = found.backlog

    @precondition(lambda self: self.backlog is not None)
    @rule()
    def its_news_are_written_down(self) -> None:
        assert self.backlog is not None
        self.attempts.master.observations.take(self.backlog)
        self.backlog = None

    @precondition(lambda self: self.doomed)
    @rule()
    def what_is_not_wanted_is_removed(self) -> None:
        for number in self.doomed:
            job = self.jobs[number]
            assert not (job.works and job.state is JobState.RUNNING), "the job that works was taken for a double"
            if not job.state.terminal:
                self.jobs[number] = replace(job, state=JobState.CANCELLED)
        self.doomed = []

    @rule()
    def a_look(self) -> None:
        self.the_cluster_is_listed()
        self.the_listing_is_taken_in()
        self.its_news_are_written_down()

    @precondition(lambda self: not self.calling and not self.jobs)
    @rule()
    def a_submit_is_given_up_while_its_request_is_still_on_the_way(self) -> None:
        self.submit()
        if self.calling:
            self.the_answer_gets_lost()
            for _ in range(2):
                self.time_passes(30.0)
                self.a_look()

    # -- its owner ----------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.killed)
    @rule()
    def its_owner_kills_it(self) -> None:
        self.killed = True
        self.attempts.change(self.name, kill_at=self.time)

    @rule()
    def what_must_end_is_ended(self) -> None:
        for _, ref in self.attempts.master.endings.to_kill(CLUSTER):
            if ref is not None and not self.jobs[ref.job_id].state.terminal:
                self.jobs[ref.job_id] = replace(self.jobs[ref.job_id], state=JobState.CANCELLED)

    # -- in the end ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Nothing goes wrong any more."""
        for _ in range(6):
            self.submit()
            while self.on_the_way:
                self.a_request_arrives()
            if self.calling:
                self.the_answer_comes()
            self.time_passes(60.0)
            for _ in range(2):
                self.the_cluster_is_listed()
                self.the_listing_is_taken_in()
                self.what_is_not_wanted_is_removed()
                self.time_passes(QUIET)
            self.what_must_end_is_ended()
            for job in [job for job in self.jobs.values() if job.state is JobState.QUEUED]:
                self.start(job)
        live = [job for job in self.jobs.values() if not job.state.terminal]
        if self.killed:
            assert live == [], "a job outlives its trial"
        else:
            assert [job.works for job in live] == [True], f"{live} in the end"
            assert self.row.native_id == live[0].job_id, "another job than the one that works would be ended"


@pytest.mark.slow
def test_one_job_of_an_attempt_works_and_no_other_is_left(attempts: Attempts) -> None:
    run_state_machine_as_test(
        lambda: OneExecution(attempts),  # type: ignore[arg-type]
        settings=settings(
            max_examples=60, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_double_that_starts_before_its_removal_does_not_work(attempts: Attempts) -> None:
    world = OneExecution(attempts)
    world.a_submit_is_given_up_while_its_request_is_still_on_the_way()
    world.submit()
    world.a_request_arrives()
    world.a_request_arrives()
    world.a_look()
    assert world.doomed == ["2"]
    world.start(world.jobs["2"])  # it gets no lease
    world.what_is_not_wanted_is_removed()
    world.teardown()
    assert [job.job_id for job in world.working()] == ["1"]


def test_a_job_that_has_begun_since_the_look_is_no_double(attempts: Attempts) -> None:
    world = OneExecution(attempts)
    world.a_submit_is_given_up_while_its_request_is_still_on_the_way()
    world.submit()
    world.a_request_arrives()
    world.a_request_arrives()
    world.the_cluster_is_listed()
    world.start(world.jobs["2"])
    world.the_listing_is_taken_in()
    assert world.doomed == ["1"]
    world.teardown()
    assert [job.job_id for job in world.working()] == ["2"]
