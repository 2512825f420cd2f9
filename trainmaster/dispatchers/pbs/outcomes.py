"""Maps PBS's states and exits to job states of the master; explains how a job ended, in words for its owner. Pure.

Sources of states: OpenPBS src/include/job.h (JOB_SUBSTATE_*, JOB_EXEC_*), src/resmom/mom_start.c (a script that a
signal ended has 256 plus the signal's number); pbs_job_attributes(7B) for the letters. A letter that is not known maps
to UNKNOWN.

PBS (OpenPBS 19 to 23.06, PBS Pro) also ends jobs on its own account: `ENDS`. A job that PBS started and gave up has a
negative Exit_status, which is PBS's own word (JOB_EXEC_*); one that was deleted has the substate 91 and a comment that
names whose request it was. The server, its hooks and the scheduler delete jobs as well, under names of their own. What
no row covers is a person's qdel, or the script's own end. Sources: OpenPBS
src/server/{req_jobobit,req_delete,req_shutdown,node_manager,svr_jobfunc}.c.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trainmaster.dispatchers.base import Canceller, JobState
from trainmaster.dispatchers.batch.messages import named_signal
from trainmaster.dispatchers.pbs.messages import explain_hold, explain_reason
from trainmaster.dispatchers.pbs.parse import PbsJob

TERMINATED = 91  # JOB_SUBSTATE_TERMINATED: deleted by a request
_SCHEDULERS = ("scheduler", "pbs_sched")
_SERVERS = ("pbs_server", "pbs_mom")


@dataclass(frozen=True)
class PbsEnd:
    """One way in which PBS ends jobs, and how it is recognised. Empty fields match anything."""

    way: str  # what happened, for readers of the table
    state: JobState  # what the master takes it for
    cause: str  # for the job's owner, the part of a sentence before " on n1"
    status: int | None = None  # Exit_status
    substates: tuple[int, ...] = ()
    by: tuple[str, ...] = ()  # whose request deleted it: accounts, in small letters
    comment: str = ""  # pattern
    unfinished: bool = False  # only jobs without an Exit_status

    def matches(self, job: PbsJob, by: str) -> bool:
        return (
            (self.status is None or job.exit_status == self.status)
            and (not self.substates or job.substate in self.substates)
            and (not self.by or account_of(by).lower() in self.by)
            and (not self.comment or re.search(self.comment, job.comment, re.IGNORECASE) is not None)
            and (not self.unfinished or (job.exit_status is None and job.substate != TERMINATED and not by))
        )


_I = JobState.INFRASTRUCTURE
_ROOM = "PBS took the job's resources for a job of higher priority"
_START = "PBS could not start the job's script"
_NODE = "the job was lost when PBS was restarted on its node"
_MEMORY = "The job used more memory than it had asked for"
_CPUS = "The job used more CPUs (ncpus) than it had asked for"

ENDS: tuple[PbsEnd, ...] = (
    PbsEnd("preemption by deletion, as the comment says", JobState.PREEMPTED, _ROOM, comment=r"\bpreempted\b"),
    PbsEnd("preemption by deletion (preempt_order D)", JobState.PREEMPTED, _ROOM, by=_SCHEDULERS),
    PbsEnd("JOB_EXEC_FAIL1: the node rejects the job before its files are there", _I, _START, -1),
    PbsEnd("JOB_EXEC_FAIL2: the node rejects the job after its files are there", _I, _START, -2),
    PbsEnd(
        *("JOB_EXEC_RETRY: the node could not start it now", _I),
        *("PBS could not start the job, and gave it up after several tries", -3),
    ),
    PbsEnd("JOB_EXEC_INITABT: pbs_mom was restarted", _I, _NODE, -4),
    PbsEnd("JOB_EXEC_INITRST: the same, with a checkpoint that stays", _I, _NODE, -5),
    PbsEnd("JOB_EXEC_INITRMG: the same, with a checkpoint that may move", _I, _NODE, -6),
    PbsEnd("JOB_EXEC_BADRESRT: a restart failed", _I, "the job could not be started again", -7),
    PbsEnd("-8, no longer given", _I, "the job could not be started", -8),
    PbsEnd("-9, no longer given", _I, "the job could not be started", -9),
    PbsEnd(
        *("JOB_EXEC_FAILUID: the account is unknown on the node", _I),
        *("the job's user is not known there, or PBS may not run jobs of theirs", -10),
    ),
    PbsEnd(
        *("JOB_EXEC_RERUN: a requeue of a job that may not be requeued deletes it", _I),
        *("PBS wanted to put the job back into its queue (qrerun), which it does not allow", -11),
    ),
    PbsEnd("JOB_EXEC_CHKP: checkpointed and ended", _I, "PBS made a checkpoint of the job and ended it", -12),
    PbsEnd(
        *("JOB_EXEC_FAIL_PASSWORD", _I, "the user's password could not be checked there", -13),
    ),
    PbsEnd("JOB_EXEC_RERUN_SIS_FAIL: a further node failed", _I, "a node of the job failed", -14),
    PbsEnd("JOB_EXEC_QUERST: the epilogue asks for a requeue", _I, "the site's epilogue put the job back", -15),
    PbsEnd("JOB_EXEC_FAILHOOK_RERUN: a hook rejects it", _I, "a site's hook refused the job", -16),
    PbsEnd("JOB_EXEC_FAILHOOK_DELETE: a hook rejects and deletes it", _I, "a site's hook refused the job", -17),
    PbsEnd("JOB_EXEC_HOOK_RERUN: a hook asks for a requeue", _I, "a site's hook put the job back", -18),
    PbsEnd("JOB_EXEC_HOOK_DELETE: a hook deletes it", _I, "a site's hook deleted the job", -19),
    PbsEnd(
        *("JOB_EXEC_RERUN_MS_FAIL: its first node is down (node_fail_requeue)", _I),
        *("the connection to a node of the job was lost", -20),
    ),
    PbsEnd(
        *("JOB_EXEC_FAIL_SECURITY", _I),
        *("the job's temporary folder was there already, or open to others", -21),
    ),
    PbsEnd("JOB_EXEC_HOOKERROR: a hook fails", _I, "a site's hook failed", -22),
    PbsEnd("JOB_EXEC_FAIL_KRB5", _I, "the job had no Kerberos ticket there", -23),
    PbsEnd("JOB_EXEC_KILL_NCPUS_BURST", JobState.FAILED, _CPUS, -24),
    PbsEnd("JOB_EXEC_KILL_NCPUS_SUM", JobState.FAILED, _CPUS, -25),
    PbsEnd("JOB_EXEC_KILL_VMEM", JobState.OUT_OF_MEMORY, _MEMORY, -26),
    PbsEnd("JOB_EXEC_KILL_MEM", JobState.OUT_OF_MEMORY, _MEMORY, -27),
    PbsEnd("JOB_EXEC_KILL_CPUT", JobState.WALLTIME, "The job used more CPU time (cput) than it had asked for", -28),
    PbsEnd("JOB_EXEC_KILL_WALLTIME", JobState.WALLTIME, "The job reached its time limit (walltime)", -29),
    PbsEnd("JOB_EXEC_JOINJOB", _I, "the nodes of the job could not be brought together", -30),
    PbsEnd(
        "the server or a node's daemon deletes it: a hook, a reservation's end",
        *(_I, "PBS itself deleted the job"),
        by=_SERVERS,
    ),
    PbsEnd(
        "Aborted by PBS Server (shutdown, initialization), a dependency on a job that failed, a vnode that vanished",
        *(_I, "PBS gave the job up before it ended by itself"),
        unfinished=True,
    ),
)  # fmt: skip
"""Tried in this order; the first that matches counts."""

BY_STATUS = {row.status: row for row in ENDS if row.status is not None}


def find_end(job: PbsJob) -> PbsEnd | None:
    """Return the way in which PBS itself ended an ended job; None when it did not."""
    by = deleted_by(job)
    return next((row for row in ENDS if row.matches(job, by)), None)


def account_of(owner: str) -> str:
    """Return the account of "account@host"; it may be user@site.org itself."""
    return owner.rpartition("@")[0] or owner


def deleted_by(job: PbsJob) -> str:
    """Return who deleted it, "alice@host"; empty when it was not deleted, or nobody is named."""
    match = re.search(r"\bterminated by (\S+)", job.comment)
    return match[1] if match else ""


_LETTERS = {
    "Q": JobState.QUEUED,
    "H": JobState.HELD,
    "W": JobState.QUEUED,  # waits for its requested start time
    "T": JobState.QUEUED,  # on its way to another queue or server
    "R": JobState.RUNNING,
    "B": JobState.RUNNING,  # an array of which something runs
    "S": JobState.SUSPENDED,
    "U": JobState.SUSPENDED,  # because a user works at the workstation
    "E": JobState.FINISHING,  # the script has ended, or is being ended
    # What becomes of it is known to another server only.
    "M": JobState.UNKNOWN,
}
_ENDED = frozenset("FCX")  # C is Torque's, X a part of an array
_STARTING = frozenset({41, 71, 72})  # handed to the node, provisioning, waiting for the other nodes
_ROOT = "root"  # administrators, and what PBS does by its own commands
SIGNALLED = 256


@dataclass(frozen=True)
class PbsExit:
    """How a script ended: an exit code, or the signal that ended it."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def of(cls, status: int | None) -> PbsExit:
        """From Exit_status; a negative one is PBS's own word, not the script's."""
        if status is None or status < 0:
            return cls()
        if status > SIGNALLED:
            return cls(signal=status - SIGNALLED)
        return cls(code=status)


def map_state(job: PbsJob) -> JobState:
    """Return the state behind PBS's letter, its finer number and, for an ended job, its exit status."""
    letter = job.state.upper()  # the whole word: TRANSMOGRIFYING is no T
    if letter in _ENDED:
        return _ended(job)
    state = _LETTERS.get(letter, JobState.UNKNOWN)
    if state is JobState.RUNNING and job.substate in _STARTING:
        return JobState.STARTING
    return state


def _ended(job: PbsJob) -> JobState:
    status = job.exit_status
    if own := find_end(job):
        return own.state
    if status is not None and status < 0:
        return JobState.INFRASTRUCTURE
    if job.substate == TERMINATED or deleted_by(job):
        return JobState.CANCELLED
    return JobState.COMPLETED if status == 0 else JobState.FAILED


def canceller(job: PbsJob) -> Canceller:
    """Who cancelled a job; the server's own names are not among those that get here (`ENDS`)."""
    account = account_of(deleted_by(job))
    return Canceller.PERSON if account not in ("", _ROOT) else Canceller.UNKNOWN


def preempted(job: PbsJob) -> bool:
    """Whether the scheduler deleted it in favour of another job (preempt_order D)."""
    own = find_end(job)
    return own is not None and own.state is JobState.PREEMPTED


_MAKES_ROOM = 45  # JOB_SUBSTATE_SCHSUSP
_AGAIN = -3  # carries no reason


def describe_end(state: JobState, job: PbsJob) -> str:
    """Return a sentence on a job in `state`."""
    where = f" on {', '.join(job.nodes)}" if job.nodes else ""
    exit = PbsExit.of(job.exit_status)
    match state:
        case JobState.QUEUED | JobState.HELD:
            return _waiting(state, job)
        case JobState.SUSPENDED if job.substate == _MAKES_ROOM:
            return "PBS has suspended the job to run another one of higher priority; it continues afterwards."
        case JobState.SUSPENDED:
            return "PBS has suspended the job."
        case JobState.CANCELLED:
            return _cancelled(job)
        case JobState.OUT_OF_MEMORY:
            return f"{_own(job)}{where} and was ended; ask for more with -l select=mem=SIZE."
        case JobState.WALLTIME if job.exit_status == -28:
            return f"{_own(job)} and was ended."
        case JobState.WALLTIME | JobState.PREEMPTED:
            return f"{_own(job)}."
        case JobState.INFRASTRUCTURE:
            return _infrastructure(job, where)
        case JobState.COMPLETED:
            return "The job ended with status 0."
        case JobState.FAILED if job.exit_status in (-24, -25):
            return f"{_own(job)}{where} and was ended."
        case JobState.FAILED if exit.signal == int(signal.SIGKILL):
            return (
                f"The job was ended by {named_signal(exit.signal)}{where}: it may have used more memory than it had "
                "asked for, or someone ended it."
            )
        case JobState.FAILED if exit.signal:
            return f"The job was ended by {named_signal(exit.signal)}{where}."
        case JobState.FAILED if exit.code == 127:
            return (
                f"The job ended with status 127{where}: a command was not found. When it left no output at all, its "
                "job folder is not visible there."
            )
        case JobState.FAILED:
            return f"The job ended with status {exit.code}{where}."
        case JobState.UNKNOWN if job.state == "M":
            return "The job was moved to another PBS server, which trainmaster does not query."
        case _:
            return ""


def _waiting(state: JobState, job: PbsJob) -> str:
    if state is JobState.HELD:
        return explain_hold(job)
    if job.state == "W":
        return "Waits for the start time that was asked for (-a)."
    return f"{explain_reason(job.comment).sentence} {_tried(job)}".strip()


def _tried(job: PbsJob) -> str:
    """Return the outcome of earlier attempts to start a job that waits again."""
    if not job.run_count or job.exit_status is None or job.exit_status >= 0:
        return ""
    tried = f"PBS has tried {'once' if job.run_count == 1 else f'{job.run_count} times'} to start it"
    if job.exit_status == _AGAIN:
        return f"{tried}."
    return f"{tried}; the last time it failed because {_cause_of(job.exit_status)}."


def _cancelled(job: PbsJob) -> str:
    who = deleted_by(job)
    return f"The job was cancelled by {who}." if who else "The job was cancelled (qdel)."


def _infrastructure(job: PbsJob, where: str) -> str:
    reason = _own(job) or f"PBS ended the job with a status of its own, {job.exit_status}"
    return f"{reason[0].upper()}{reason[1:]}{where}{_comment(job)}."


def _own(job: PbsJob) -> str:
    """Return why PBS itself ended the job, as part of a sentence; empty when no row of its table says so."""
    end = find_end(job)
    return end.cause if end else ""


def _cause_of(status: int) -> str:
    return BY_STATUS[status].cause if status in BY_STATUS else f"of {status}"


def _comment(job: PbsJob) -> str:
    comment = re.sub(r"^Job run at .*? on \(.*?\)(\+\(.*?\))*( and failed)?", "", job.comment).strip(" .")
    return f" (PBS says: {comment})" if comment else ""


class RecentlyEnded:
    """Cache of jobs that ended lately; how a job ended does not change any more. Not thread-safe."""

    def __init__(self, ours: Callable[[PbsJob], bool]) -> None:
        self._ours = ours
        self._known: dict[str, PbsJob | None] = {}

    def unknown(self, listed: Iterable[str]) -> list[str]:
        """Return listed ids whose end is not known yet; forget jobs that are no longer listed."""
        ids = dict.fromkeys(listed)
        self._known = {job_id: job for job_id, job in self._known.items() if job_id in ids}
        return [job_id for job_id in ids if job_id not in self._known or not _settled(self._known[job_id])]

    def learn(self, asked: Sequence[str], jobs: Iterable[PbsJob]) -> None:
        """Store the answers for the ids in `asked`; of other users' jobs only that they exist. An id without an answer
        is queried again."""
        ended = {job.job_id: job for job in jobs}
        for job_id in asked:
            if (job := ended.get(job_id)) is not None:
                self._known[job_id] = job if self._ours(job) else None

    @property
    def jobs(self) -> list[PbsJob]:
        """Ours."""
        return [job for job in self._known.values() if job is not None]


def _settled(job: PbsJob | None) -> bool:
    """Whether the state is final. An unknown state may be an error in the output; a job that was moved to another
    server (M) stays so."""
    return job is None or job.state == "M" or map_state(job).terminal
