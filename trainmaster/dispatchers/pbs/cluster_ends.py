"""The ways in which PBS (OpenPBS 19 to 23.06, PBS Pro) ends jobs on its own account, and what it shows of each. Pure.

A job that PBS started and gave up has a negative Exit_status, which is PBS's own word (JOB_EXEC_*); one that was
deleted has the substate 91 and a comment that names whose request it was. The server, its hooks and the scheduler
delete jobs as well, under names of their own. The rows are tried in their order; what none of them covers is a person's
qdel, or the script's own end.

Sources: OpenPBS src/include/job.h, src/server/{req_jobobit,req_delete,req_shutdown,node_manager,svr_jobfunc}.c.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainmaster.dispatchers.base import JobState
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


def find(job: PbsJob) -> PbsEnd | None:
    """Return the way in which PBS itself ended an ended job; None when it did not."""
    by = deleted_by(job)
    return next((row for row in ENDS if row.matches(job, by)), None)


def account_of(owner: str) -> str:
    """Return the account of "account@host"; it may be user@site.org itself."""
    return owner.rpartition("@")[0] or owner


def deleted_by(job: PbsJob) -> str:
    """Return who deleted it, "alice@host"; empty when it was not deleted, or nobody is named."""
    found = re.search(r"\bterminated by (\S+)", job.comment)
    return found[1] if found else ""
