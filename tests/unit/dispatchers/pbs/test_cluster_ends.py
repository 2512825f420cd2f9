"""Every way in which PBS ends jobs on its own account, with the words that it shows."""

from __future__ import annotations

import pytest

from tests.support.pages import ROOT
from trainmaster.dispatchers.base import Canceller, JobState
from trainmaster.dispatchers.pbs.outcomes import ENDS, PbsEnd, canceller, describe_end, find_end, map_state
from trainmaster.dispatchers.pbs.parse import PbsJob

RAN = "Job run at Sat Nov 21 at 08:31 on (n1:ncpus=1)"


def ended(**facts: object) -> PbsJob:
    return PbsJob("1.s", "det-x", "alice", "F", "workq", **{"comment": f"{RAN} and failed", "substate": 93, **facts})  # type: ignore[arg-type]


def by(who: str, **facts: object) -> PbsJob:
    return ended(substate=91, comment=f"{RAN} and terminated by {who}", exit_status=271, **facts)


CASES: dict[str, list[PbsJob]] = {
    "preemption by deletion, as the comment says": [ended(exit_status=271, comment="Job preempted by job 7.s")],
    "preemption by deletion (preempt_order D)": [by("Scheduler@host"), by("pbs_sched@host.site")],
    "the server or a node's daemon deletes it: a hook, a reservation's end": [
        *(by("pbs_server@host"), by("PBS_Server@host"), by("pbs_mom@n1")),
    ],
    "Aborted by PBS Server (shutdown, initialization), a dependency on a job that failed, a vnode that vanished": [
        ended(),  # "Aborted by PBS Server  on Server shutdown" is only in its log
        ended(comment="", substate=92),  # "Job deleted as result of dependency on job 6.s"
        ended(comment="Not Running: PBS Error: Execution server rejected request", substate=93),
    ],
}
SAID = {
    -1: "PBS could not start the job's script on n1.",
    -3: "PBS could not start the job, and gave it up after several tries on n1.",
    -4: "The job was lost when PBS was restarted on its node on n1.",
    -10: "The job's user is not known there, or PBS may not run jobs of theirs on n1.",
    -11: "PBS wanted to put the job back into its queue (qrerun), which it does not allow on n1.",
    -19: "A site's hook deleted the job on n1.",
    -20: "The connection to a node of the job was lost on n1.",
    -24: "The job used more CPUs (ncpus) than it had asked for on n1 and was ended.",
    -26: "The job used more memory than it had asked for on n1 and was ended; ask for more with -l select=mem=SIZE.",
    -28: "The job used more CPU time (cput) than it had asked for and was ended.",
    -29: "The job reached its time limit (walltime).",
}


@pytest.mark.parametrize("row", ENDS, ids=lambda row: row.way)
def test_each_way_is_known_by_pbs_own_words(row: PbsEnd) -> None:
    cases = CASES.get(row.way) or [ended(exit_status=row.status, nodes=("n1",))]
    for job in cases:
        assert find_end(job) is row
        assert map_state(job) is row.state
        assert row.cause.lower() in describe_end(row.state, job).lower()
        if job.exit_status in SAID:
            assert describe_end(row.state, job).replace(" (PBS says: and failed)", "") == SAID[job.exit_status]


def test_the_table_has_every_status_of_pbs() -> None:
    assert {row.status for row in ENDS if row.status is not None} == set(range(-30, 0))


@pytest.mark.parametrize(
    ("job", "state", "who"),
    [
        (by("alice@host"), JobState.CANCELLED, Canceller.PERSON),
        (by("operator@login.site"), JobState.CANCELLED, Canceller.PERSON),
        (by("root@server"), JobState.CANCELLED, Canceller.UNKNOWN),
        (ended(substate=91, comment=f"{RAN} and terminated", exit_status=271), JobState.CANCELLED, Canceller.UNKNOWN),
        (ended(substate=91, comment=""), JobState.CANCELLED, Canceller.UNKNOWN),  # it waited, or the server forgot who
        (ended(exit_status=271), JobState.FAILED, Canceller.UNKNOWN),  # a SIGTERM of somebody's is no deletion
        (ended(exit_status=265), JobState.FAILED, Canceller.UNKNOWN),
    ],
)
def test_deletion_sets_state_and_canceller(job: PbsJob, state: JobState, who: Canceller) -> None:
    assert find_end(job) is None
    assert map_state(job) is state
    assert canceller(job) is who


def test_the_page_for_readers_has_each_way() -> None:
    page = (ROOT / "docs" / "architecture" / "who-ended-a-job.md").read_text()
    assert [row.way for row in ENDS if f"| {row.way} |" not in page] == []
