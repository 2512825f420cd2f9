"""Every way in which Slurm ends jobs on its own account, with the words that it shows: squeue's fields and the lines
that its daemons print into a job's output."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.support.pages import ROOT
from trainmaster.dispatchers.base import Canceller, JobState
from trainmaster.dispatchers.slurm.dispatcher import _Facts
from trainmaster.dispatchers.slurm.outcomes import (
    BY_NOBODY,
    ENDS,
    SlurmEnd,
    SlurmExit,
    canceller,
    describe_end,
    find_end,
    map_state,
    state_words,
)
from trainmaster.dispatchers.slurm.parse import SlurmController


@dataclass(frozen=True)
class Shown:
    """What Slurm shows of an ended job. The statuses are wait(2)'s, as `squeue -O exit_code` prints them."""

    state: str
    reason: str = ""
    exit: str = "0"
    derived: str = "0"
    nodes: tuple[str, ...] = ("n1",)
    output: str = ""

    def row(self) -> SlurmEnd | None:
        exits = {"exit": SlurmExit.parse(self.exit), "derived": SlurmExit.parse(self.derived)}
        word = state_words(self.state)[-1]
        return find_end(word, reason=self.reason, placed=bool(self.nodes), output=self.output, **exits)


BY_ROOT = "CANCELLED by 0"
NODE_FAILURE = (
    "slurmstepd-n1: error: *** JOB 85 ON n1 CANCELLED AT 2026-11-23T21:03:40 DUE TO NODE FAILURE, SEE SLURMCTLD LOG "
    "FOR DETAILS ***"
)
OOM_STEP = (
    "slurmstepd-n2: error: Detected 1 oom_kill event in StepId=41.0. Some of the step tasks have been OOM Killed."
)
MEMORY = "The job used more memory than it had asked for on n1 and was ended; ask for more with --mem."
BY_ROWS: dict[str, tuple[list[Shown], JobState, str]] = {
    "a partition is removed, or gone after a reconfiguration, and the job ran in it": (
        [Shown("NODE_FAIL", "PartitionDown", "1"), Shown("NF", "PartitionDown", "256")],
        *(JobState.INFRASTRUCTURE, "The job's partition was removed on n1."),
    ),
    "a partition is removed, and the job waited for it": (
        [Shown("CANCELLED", "Priority", "1", nodes=()), Shown("CA", "None", "0:1", nodes=())],
        *(JobState.INFRASTRUCTURE, "The job's partition was removed."),
    ),
    "a node fails, is set down, or lost its GPUs in a reconfiguration": (
        [Shown("NODE_FAIL", "NodeDown"), Shown("NODE_FAIL", "NodeDown", "1"), Shown("NODE_FAIL", "NodeDown", "15")],
        *(JobState.INFRASTRUCTURE, "A node of the job failed on n1."),
    ),
    "slurmd was restarted and no longer has the job (Batch JobId missing from batch node)": (
        [Shown("NODE_FAIL", "None", "1"), Shown("NODE_FAIL", "", "0:1")],
        *(JobState.INFRASTRUCTURE, "Slurm lost the job on n1: its script no longer ran there."),
    ),
    "a node does not answer, for another reason": (
        [Shown("NODE_FAIL"), Shown("NODE_FAIL", "None", "9")],
        *(JobState.INFRASTRUCTURE, "A node of the job failed on n1."),
    ),
    "a node is lost while the job is being ended": (
        [Shown("CANCELLED", "None", "15", output=f"epoch 3\n{NODE_FAILURE}\n"), Shown("FAILED", output=NODE_FAILURE)],
        *(JobState.INFRASTRUCTURE, "A node of the job failed on n1."),
    ),
    "a node does not boot or resume": (
        [Shown("BOOT_FAIL", "JobLaunchFailure", "256"), Shown("BF"), Shown("RECONFIG_FAIL", "ReqNodeNotAvail")],
        *(JobState.INFRASTRUCTURE, "A node of the job did not start on n1."),
    ),
    "a prolog fails on a further node, and the job may not be requeued": (
        [Shown("CANCELLED by 0", "None", "0:15", output="slurmstepd-n1: error: Prolog failure on node n2")],
        *(JobState.INFRASTRUCTURE, "The site's prolog failed on n1."),
    ),
    "a launch is refused, the prolog fails, or the user's profile cannot be read, and the job is requeued and held": (
        [
            Shown("PENDING", "launch failed requeued held", nodes=()),
            Shown("PENDING", "launch_failed_requeued_held", nodes=()),
            Shown("REQUEUE_HOLD", "launch failure limit exceeded requeued held", nodes=()),
            Shown("PENDING", "user env retrieval failed requeued held", nodes=()),
        ],
        *(JobState.INFRASTRUCTURE, "Slurm could not start the job, put it back into its queue and holds it there."),
    ),
    "the script's output cannot be opened, its folder is missing, its user is unknown": (
        [Shown("FAILED", "JobLaunchFailure", "53"), Shown("FAILED", "RaisedSignal:53(Real-time_signal_19)", "0:53")],
        JobState.INFRASTRUCTURE,
        "Slurm could not start the job's script on n1: the job folder or its output file cannot be written there, or "
        "the user does not exist on that node.",
    ),
    "slurmd refuses the launch (Killing non-startable batch job), or a SPANK plugin fails": (
        [Shown("LAUNCH_FAILED", "NonZeroExitCode", "256")],
        *(JobState.INFRASTRUCTURE, "Slurm did not start the job's script on n1; the log of slurmd there says why."),
    ),
    "the user's profile cannot be read (--get-user-env)": (
        [Shown("GETENV_FAILED")],
        *(JobState.INFRASTRUCTURE, "Slurm could not read the environment of the job's user on n1."),
    ),
    "the state folder lost the job's script (Script for JobId lost), or slurmctld failed itself": (
        [Shown("FAILED", "SystemFailure", "256", nodes=()), Shown("FAILED", "SystemFailure", "1:0")],
        *(JobState.INFRASTRUCTURE, "Slurm lost the job's script or its own record of it."),
    ),
    "a cold start of slurmctld forgets what ran, and slurmdbd closes the record; any other end without a request": (
        [Shown(BY_NOBODY, "None")],
        *(JobState.INFRASTRUCTURE, "Slurm ended the job, and nobody had asked for that."),
    ),
    "a dependency can never be satisfied (kill_invalid_depend)": (
        [Shown("CANCELLED", "DependencyNeverSatisfied", nodes=())],
        *(JobState.INFRASTRUCTURE, "Slurm removed the job because what it waited for can no longer happen."),
    ),
    "memory runs out": (
        [Shown("OUT_OF_MEMORY", "OutOfMemory", "0:125"), Shown("OOM")],
        *(JobState.OUT_OF_MEMORY, MEMORY),
    ),
    "memory runs out in the script": (
        [Shown("FAILED", "", "253"), Shown("FAILED", "", "0:125")],
        *(JobState.OUT_OF_MEMORY, MEMORY),
    ),
    "memory runs out in a step": (
        [Shown("FAILED", "NonZeroExitCode", "256", "0:125")],
        *(JobState.OUT_OF_MEMORY, MEMORY),
    ),
    "memory runs out in one of several tasks": (
        [
            Shown("FAILED", "NonZeroExitCode", "35072", "35072", ("n1", "n2"), OOM_STEP),
            Shown("FAILED", "NonZeroExitCode", "256", "256", ("n1", "n2"), "srun: error: n2: task 1: Out Of Memory\n"),
        ],
        *(JobState.OUT_OF_MEMORY, MEMORY.replace("n1", "n1, n2")),
    ),
    "the deadline passes before the job can end": (
        [Shown("DEADLINE", "DeadLine", "256", nodes=()), Shown("DL")],
        *(JobState.WALLTIME, "The job's deadline has passed (--deadline)."),
    ),
    "the time limit, the end of a reservation, or a limit of minutes of an account or QOS is reached": (
        [Shown("TIMEOUT", "TimeLimit", "15"), Shown("TO"), Shown("TIMEOUT", "InactiveLimit")],
        *(JobState.WALLTIME, "The job reached its time limit."),
    ),
    "a job of higher priority takes the resources (cancel, or requeue where that is refused)": (
        [Shown("PREEMPTED", "None", "15"), Shown("PR")],
        *(JobState.PREEMPTED, "Slurm took the job's resources for a job of higher priority."),
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ENDS, ids=lambda row: row.way)
def test_each_way_is_known_by_slurms_own_words(row: SlurmEnd) -> None:
    cases, state, sentence = BY_ROWS[row.way]
    assert row.state is state
    for shown in cases:
        assert shown.row() is row
        exit, derived = SlurmExit.parse(shown.exit), SlurmExit.parse(shown.derived)
        facts = {"reason": shown.reason, "exit": exit, "derived": derived}
        if not shown.output and shown.state != BY_NOBODY:
            assert map_state(shown.state, placed=bool(shown.nodes), **facts) is state
        words = describe_end(state, shown.state, nodes=shown.nodes, output=shown.output, **facts)  # type: ignore[arg-type]
        one = sentence if shown.nodes or "on n1" not in sentence else sentence.replace(" on n1", "")
        assert words == one


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        # A person's, or to be told from one only by what happened around it:
        (Shown("CANCELLED", "None", "15"), JobState.CANCELLED),  # scancel of a job that ran
        (Shown("CANCELLED by 1000", "None", "0:15"), JobState.CANCELLED),
        (Shown("CANCELLED", "Priority", nodes=()), JobState.CANCELLED),  # of one that waited
        (Shown("CANCELLED", "ReqNodeNotAvail, UnavailableNodes:n1", nodes=()), JobState.CANCELLED),
        (Shown("CANCELLED", "None"), JobState.CANCELLED),  # "Could not launch job and not able to requeue it"
        (Shown("CANCELLED", "Prolog"), JobState.CANCELLED),  # PrologSlurmctld failed, or scancel meanwhile
        (Shown("CANCELLED", "None", "1"), JobState.CANCELLED),  # it ran, and SIGHUP ended it
        # Slurm ends nothing here:
        (Shown("PENDING", "InvalidAccount", nodes=()), JobState.QUEUED),  # account or QOS removed
        (Shown("PENDING", "InvalidQOS", nodes=()), JobState.QUEUED),
        (Shown("PENDING", "Licenses", nodes=()), JobState.QUEUED),  # licences removed
        (Shown("PENDING", "JobHeldAdmin", nodes=()), JobState.HELD),  # "slurm_cred_create failure, holding job."
        (Shown("RESV_DEL_HOLD", "ReservationDeleted", nodes=()), JobState.HELD),
        (Shown("REVOKED", "None", nodes=()), JobState.UNKNOWN),  # a sibling of the federation has it
        (Shown("COMPLETED", "None"), JobState.COMPLETED),  # the epilog failed: only the node is drained
        (Shown("FAILED", "NonZeroExitCode", "256"), JobState.FAILED),  # a step limit: the script's own status
    ],
)
def test_other_slurm_ends_map_to_job_states(shown: Shown, state: JobState) -> None:
    assert shown.row() is None
    exit, derived = SlurmExit.parse(shown.exit), SlurmExit.parse(shown.derived)
    found = map_state(shown.state, reason=shown.reason, exit=exit, derived=derived, placed=bool(shown.nodes))
    assert found is state


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        ("CANCELLED by 1000", Canceller.PERSON),
        ("CANCELLED by 0", Canceller.UNKNOWN),
        ("CANCELLED by 64030", Canceller.UNKNOWN),
        ("CANCELLED", Canceller.UNKNOWN),
    ],
)
def test_accounting_names_user_unless_account_is_slurms_own(raw: str, found: Canceller) -> None:
    config = {"BOOT_TIME": "1795242711", "SlurmUser": "slurm(64030)", "SlurmdUser": "root(0)"}
    controller = SlurmController.of(config)
    assert controller == SlurmController(1795242711.0, frozenset({0, 64030}))
    assert canceller(raw, controller.accounts) is found
    assert SlurmController.of({}) == SlurmController(None, frozenset({0}))


def test_accounting_knows_whether_anybody_asked_for_the_end() -> None:
    row = {"reason": "None", "exit": "0:15", "derived": "0:0", "nodes": "n1"}
    told = {state: _Facts.of_accounting({**row, "state": state}).explanation() for state in ("CANCELLED", BY_ROOT)}
    assert (told["CANCELLED"].state, told[BY_ROOT].state) == (JobState.INFRASTRUCTURE, JobState.CANCELLED)
    assert told["CANCELLED"].text == "Slurm ended the job, and nobody had asked for that."
    assert told[BY_ROOT].text == "The job was cancelled by uid 0 (root)."


def test_the_page_for_readers_has_each_way() -> None:
    page = (ROOT / "docs" / "architecture" / "who-ended-a-job.md").read_text()
    assert [row.way for row in ENDS if f"| {row.way} |" not in page] == []
