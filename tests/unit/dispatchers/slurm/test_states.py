"""All of Slurm's state words, and unknown ones."""

from __future__ import annotations

import pytest

from tests.support.slurm.recorded import MARK, recorded
from trainmaster.dispatchers.base import JobState
from trainmaster.dispatchers.slurm import parse
from trainmaster.dispatchers.slurm.outcomes import SlurmExit, describe_end, map_state

WORDS = {
    JobState.QUEUED: "PENDING PD REQUEUED RQ REQUEUE_FED RF EXPEDITING",
    JobState.HELD: "REQUEUE_HOLD RH SPECIAL_EXIT SE RESV_DEL_HOLD RD",
    JobState.STARTING: "CONFIGURING CF POWER_UP_NODE",
    JobState.RUNNING: "RUNNING R SIGNALING SI RESIZING RS",
    JobState.SUSPENDED: "SUSPENDED S STOPPED ST",
    JobState.FINISHING: "COMPLETING CG STAGE_OUT SO",
    JobState.COMPLETED: "COMPLETED CD",
    JobState.FAILED: "FAILED F",
    JobState.CANCELLED: "CANCELLED CA",
    JobState.WALLTIME: "TIMEOUT TO DEADLINE DL",
    JobState.OUT_OF_MEMORY: "OUT_OF_MEMORY OOM",
    JobState.PREEMPTED: "PREEMPTED PR",
    JobState.INFRASTRUCTURE: "NODE_FAIL NF BOOT_FAIL BF LAUNCH_FAILED RECONFIG_FAIL GETENV_FAILED",
    JobState.UNKNOWN: "REVOKED RV UPDATE_DB NEW_WORD_OF_2031 ?",
}


@pytest.mark.parametrize(("word", "state"), [(word, state) for state, words in WORDS.items() for word in words.split()])
def test_every_word(word: str, state: JobState) -> None:
    assert map_state(word) is state
    assert map_state(word.lower()) is state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("CANCELLED by 1000", JobState.CANCELLED),
        ("CANCELLED+", JobState.CANCELLED),
        ("RUNNING,COMPLETING", JobState.FINISHING),
        ("FAILED,UPDATE_DB", JobState.FAILED),
        ("PENDING,REQUEUE_HOLD", JobState.HELD),
        ("", JobState.UNKNOWN),
    ],
)
def test_decorated_words(text: str, state: JobState) -> None:
    assert map_state(text) is state


def test_a_pending_job_that_a_person_holds() -> None:
    assert map_state("PENDING", reason="JobHeldAdmin") is JobState.HELD
    assert map_state("PENDING", reason="Priority") is JobState.QUEUED


def test_failed_is_not_always_the_users_fault() -> None:
    assert map_state("FAILED", exit=SlurmExit(signal=53)) is JobState.INFRASTRUCTURE
    assert map_state("FAILED", exit=SlurmExit(signal=9), reason="JobLaunchFailure") is JobState.FAILED
    assert map_state("FAILED", exit=SlurmExit(code=1), derived=SlurmExit(signal=125)) is JobState.OUT_OF_MEMORY
    assert map_state("COMPLETED", exit=SlurmExit(), derived=SlurmExit(signal=125)) is JobState.COMPLETED


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0", SlurmExit(0)),
        ("768", SlurmExit(code=3)),
        ("11264", SlurmExit(code=44)),
        ("9", SlurmExit(signal=9)),
        ("253", SlurmExit(signal=125)),
        ("4021", SlurmExit(signal=53)),
        ("3:0", SlurmExit(code=3)),
        ("0:15", SlurmExit(signal=15)),
        ("300:0", SlurmExit(code=44)),
        ("", None),
        ("N/A", None),
    ],
)
def test_exit_statuses(text: str, found: SlurmExit | None) -> None:
    assert SlurmExit.parse(text) == found


def test_the_words_of_recorded_jobs() -> None:
    jobs, _ = parse.queue(recorded("squeue.out"), MARK)
    said = {}
    for job in jobs:
        state = map_state(job.state, reason=job.reason, exit=job.exit, derived=job.derived)
        words = describe_end(state, job.state, reason=job.reason, exit=job.exit, derived=job.derived, nodes=job.nodes)
        said[job.name] = (state.value, words)
    del said["odd\nname\x1f|x"]
    memory = "and was ended; ask for more with --mem."
    assert said == {
        "rec-done": ("COMPLETED", "The job ended with status 0."),
        "rec-status": ("FAILED", "The job ended with status 3 on n1."),
        "rec-killed": ("FAILED", "The job was ended by signal 9 (SIGKILL) on n1."),
        "rec-oom": ("OUT_OF_MEMORY", f"The job used more memory than it had asked for on n1 {memory}"),
        "rec-oom-in-step": ("OUT_OF_MEMORY", f"The job used more memory than it had asked for on n2, n3 {memory}"),
        "rec-launch": (
            "INFRASTRUCTURE",
            "Slurm could not start the job's script on n2: the job folder or its output file cannot be written "
            "there, or the user does not exist on that node.",
        ),
        "rec-refused": (
            "FAILED",
            "Slurm refused the job. No node of its partition can ever satisfy what it asks for.",
        ),
        "rec-node-fail": ("INFRASTRUCTURE", "A node of the job failed on n4."),
        "rec-cancelled": ("CANCELLED", "The job was cancelled (scancel)."),
        "rec-running": ("RUNNING", ""),
        "rec-too-many-nodes": ("QUEUED", "It asks for more nodes than its partition has or allows."),
        "rec-too-long": ("QUEUED", "It asks for more time than its partition allows."),
        "rec-begin": ("QUEUED", "Waits for the start time that was asked for."),
        "rec-held": ("HELD", "Held by its owner: `scontrol release` lets it go on."),
    } | {"rec-running": said["rec-running"]}


def test_end_names_uid_that_cancelled_job() -> None:
    assert describe_end(JobState.CANCELLED, "CANCELLED by 0") == "The job was cancelled by uid 0 (root)."
    assert describe_end(JobState.CANCELLED, "CANCELLED by 4000000") == "The job was cancelled by uid 4000000."
