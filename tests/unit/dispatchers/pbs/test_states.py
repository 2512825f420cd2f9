"""Letters, exit statuses and comments as states, and their sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pbs.recorded import MARK, recorded
from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.pbs.messages import explain_reason
from trainmaster.dispatchers.pbs.outcomes import PbsExit, describe_end, map_state
from trainmaster.dispatchers.pbs.parse import PbsJob, dsv_records, job, json_records


def a_job(state: str, **more: object) -> PbsJob:
    return PbsJob("1.s", "det-x", "alice", state, "workq", **more)  # type: ignore[arg-type]


def test_recorded_jobs_get_their_final_states() -> None:
    records, _ = json_records(recorded("qstat-final.out"))
    ended = {one.name: one for record in records if (one := job(record, "ngpus"))}
    states = {name: map_state(one) for name, one in ended.items()}
    assert states["tm-ok"] is JobState.COMPLETED
    assert states["tm-fail"] is JobState.FAILED
    assert states["tm-wall"] is JobState.WALLTIME
    assert states["tm-kill"] is JobState.CANCELLED
    assert states["tm-delq"] is JobState.CANCELLED
    assert describe_end(states["tm-kill"], ended["tm-kill"]) == "The job was cancelled by alice@pbshost."
    assert describe_end(states["tm-fail"], ended["tm-fail"]) == "The job ended with status 3 on pbshost."
    assert "time limit" in describe_end(states["tm-wall"], ended["tm-wall"])


@pytest.mark.parametrize(
    ("letter", "expected"),
    [
        ("Q", JobState.QUEUED),
        ("H", JobState.HELD),
        ("W", JobState.QUEUED),
        ("T", JobState.QUEUED),
        ("R", JobState.RUNNING),
        ("B", JobState.RUNNING),
        ("S", JobState.SUSPENDED),
        ("U", JobState.SUSPENDED),
        ("E", JobState.FINISHING),
        ("M", JobState.UNKNOWN),
        ("?", JobState.UNKNOWN),
        ("TRANSMOGRIFYING", JobState.UNKNOWN),
        ("Frozen", JobState.UNKNOWN),
        ("", JobState.UNKNOWN),
    ],
)
def test_letters(letter: str, expected: JobState) -> None:
    assert map_state(a_job(letter)) is expected


def test_a_job_that_is_handed_to_its_node_is_starting() -> None:
    assert map_state(a_job("R", substate=41)) is JobState.STARTING
    assert map_state(a_job("R", substate=42)) is JobState.RUNNING


@pytest.mark.parametrize(
    ("status", "state", "exit", "words"),
    [
        (0, JobState.COMPLETED, PbsExit(code=0), "status 0"),
        (3, JobState.FAILED, PbsExit(code=3), "status 3"),
        (127, JobState.FAILED, PbsExit(code=127), "not found"),
        (143, JobState.FAILED, PbsExit(code=143), "status 143"),
        (265, JobState.FAILED, PbsExit(signal=9), "SIGKILL"),
        (271, JobState.FAILED, PbsExit(signal=15), "SIGTERM"),
        (-1, JobState.INFRASTRUCTURE, PbsExit(), "could not start"),
        (-4, JobState.INFRASTRUCTURE, PbsExit(), "restarted"),
        (-10, JobState.INFRASTRUCTURE, PbsExit(), "user is not known"),
        (-25, JobState.FAILED, PbsExit(), "CPUs"),
        (-26, JobState.OUT_OF_MEMORY, PbsExit(), "memory"),
        (-27, JobState.OUT_OF_MEMORY, PbsExit(), "memory"),
        (-28, JobState.WALLTIME, PbsExit(), "cput"),
        (-29, JobState.WALLTIME, PbsExit(), "time limit"),
        (-30, JobState.INFRASTRUCTURE, PbsExit(), "brought together"),
        (-99, JobState.INFRASTRUCTURE, PbsExit(), "-99"),
        (None, JobState.INFRASTRUCTURE, PbsExit(), "gave the job up"),
    ],
)
def test_exit_statuses(status: int | None, state: JobState, exit: PbsExit, words: str) -> None:
    ended = a_job("F", exit_status=status, substate=92, nodes=("n1",))
    assert map_state(ended) is state
    assert PbsExit.of(status) == exit
    assert words in describe_end(state, ended)


def test_a_deleted_job_is_cancelled_whatever_its_status() -> None:
    told = "Job run at Sat Nov 21 at 08:31 on (n1:ncpus=1) and terminated by alice@host"
    for status in (0, 5, 143, 271, 265):
        assert map_state(a_job("F", exit_status=status, substate=91, comment=told)) is JobState.CANCELLED
    # A plain SIGTERM of somebody's is no deletion.
    assert map_state(a_job("F", exit_status=271, substate=93, comment="and failed")) is JobState.FAILED


def test_a_suspended_job_says_for_whom() -> None:
    assert "higher priority" in describe_end(JobState.SUSPENDED, a_job("S", substate=45))
    assert describe_end(JobState.SUSPENDED, a_job("S", substate=43)) == "PBS has suspended the job."


def test_a_job_that_was_never_started_and_was_deleted() -> None:
    gone = a_job("F", substate=91)
    assert map_state(gone) is JobState.CANCELLED
    assert describe_end(JobState.CANCELLED, gone) == "The job was cancelled (qdel)."


def test_the_scheduler_that_makes_room_preempts() -> None:
    told = "Job run at Sat Nov 21 at 08:31 on (n1:ncpus=1) and terminated by Scheduler@host"
    assert map_state(a_job("F", exit_status=271, substate=91, comment=told)) is JobState.PREEMPTED


@given(st.text(max_size=3), st.one_of(st.none(), st.integers(-400, 400)), st.text(max_size=60))
def test_every_job_has_a_state_and_words(letter: str, status: int | None, comment: str) -> None:
    one = a_job(letter, exit_status=status, comment=comment)
    assert isinstance(describe_end(map_state(one), one), str)


# -- waiting


def test_reasons_of_real_jobs() -> None:
    records, _ = dsv_records(recorded("live-dsv.out"), MARK)
    waiting = {one.name: one for record in records if (one := job(record, "ngpus"))}
    words = {name: describe_end(map_state(one), one) for name, one in waiting.items()}
    assert words["det-never"] == "It asks for 99 of ncpus, and what it may use has 8 in all."
    assert words["det-3hosts"] == "There are not enough nodes of the kind that it asks for."
    assert words["det-held"] == "Held by its owner; `qrls 61.tmpbs0` lets it go on."
    assert words["det-later"] == "Waits for the start time that was asked for (-a)."


@pytest.mark.parametrize(
    ("comment", "words", "never"),
    [
        (
            "Not Running: Insufficient amount of resource: ngpus (R: 2 A: 0 T: 4)",
            "Waits for resources: it needs 2 of ngpus, 0 are free.",
            False,
        ),
        (
            "Can Never Run: Insufficient amount of resource: mem (R: 900gb A: 48210mb T: 48210mb)",
            "It asks for 900gb of mem, and what it may use has 48210mb in all.",
            True,
        ),
        ("Can Never Run: Insufficient amount of queue resource: ncpus (R: 9 A: 4 T: 4)", "its queue has 4", True),
        ("Not Running: Not enough free nodes available", "Waits until enough nodes are free.", False),
        ("Not Running: Queue not started.", "queue is stopped", False),
        ("Not Running: User has reached queue gpu running job limit.", "limit of its queue", False),
        ("Not Running: Queue gpu per-user limit reached on resource ngpus", "limit for its user", False),
        ("Not Running: Job would conflict with reservation or top job", "higher priority", False),
        ("Not Running: would exceed user alice's limit on resource ngpus in queue gpu", "limit on ngpus", False),
        ("Not Running: Host set host=n1 has too few free resources", "belong together", False),
        ("Not Running: Node is in an ineligible state: offline", "down, offline or busy", False),
        ("Not Running: a hook of this site thinks otherwise", "PBS says: Not Running: a hook", False),
        ("", "", False),
    ],
)
def test_reasons(comment: str, words: str, never: bool) -> None:
    reason = explain_reason(comment)
    assert words in reason.sentence
    assert reason.never is never


def test_hold_says_who_can_release_it_and_how() -> None:
    records, _ = dsv_records(recorded("held-dsv.out"), MARK)
    held = {one.name: one for record in records if (one := job(record, "ngpus"))}
    assert {map_state(one) for one in held.values()} == {JobState.HELD}
    words = {name: describe_end(JobState.HELD, one) for name, one in held.items()}
    assert words["det-own"] == "Held by its owner; `qrls 1.tmpbs0` lets it go on."
    assert words["det-operator"] == "Held by root; `qrls -h o 2.tmpbs0` by an operator of PBS lets it go on."
    assert words["det-both"] == "Held by alice; `qrls -h us 3.tmpbs0` by a manager of PBS lets it go on."
    assert words["det-prologue"].startswith("Held by PBS after 21 attempts to start it: an administrator")
    assert words["det-folder"].startswith(
        "Held by PBS: where it makes the job's temporary folder on tmpbs1, pbs.6.tmpbs0"
    )
    assert "has to remove it (from /var/tmp" in words["det-folder"]
    assert words["det-folder"].endswith("`qrls -h s 6.tmpbs0` by a manager of PBS lets it go on.")


@pytest.mark.parametrize(
    ("holds", "comment", "words"),
    [
        ("p", "", "needs its owner's password"),
        ("s", "job held, provisioning failed to start", "could not be set up"),
        ("s", "Job held by 'check_budget' hook on Sun Nov 22 01:54:31 2026", "hook check_budget"),
        ("o", "", "Held by an administrator"),
        ("", "", "Held by its owner"),
        ("u", "ask the help desk", "PBS says: ask the help desk."),
    ],
)
def test_holds(holds: str, comment: str, words: str) -> None:
    assert words in describe_end(JobState.HELD, a_job("H", holds=holds, comment=comment))


def test_waiting_job_says_how_often_its_start_failed() -> None:
    back = a_job("Q", run_count=2, exit_status=-10, comment="Job run at Sun Nov 22 at 01:54 on (n1:ncpus=1)")
    assert describe_end(JobState.QUEUED, back) == (
        "PBS has tried 2 times to start it; the last time it failed because the job's user is not known there, or PBS "
        "may not run jobs of theirs."
    )
    told = a_job("Q", run_count=1, exit_status=-3, comment="Not Running: Not enough free nodes available")
    assert describe_end(JobState.QUEUED, told) == ("Waits until enough nodes are free. PBS has tried once to start it.")
    assert describe_end(JobState.QUEUED, a_job("Q")) == ""
