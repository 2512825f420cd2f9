"""The sequence of one node of one job. Everything it does is in the modules it names.

read the job folder -> lease -> reporting -> context -> rendezvous -> environment -> the user's process
-> exit record -> deliver what is left -> leave with the user's status
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from trainmaster.runtime.context import unpack_context
from trainmaster.runtime.environment import child_environment, write_info
from trainmaster.runtime.errors import AskedToLeave, Away, BadJobFolder, HeldElsewhere, Rejected, RuntimeFault
from trainmaster.runtime.exit_record import ExitRecord, write_exit_record
from trainmaster.runtime.facts import Facts, read_facts
from trainmaster.runtime.job import Job, Work, read_job, read_token
from trainmaster.runtime.lease import context_of, take_lease
from trainmaster.runtime.master import Master
from trainmaster.runtime.preempt import Preemption, PreemptWatch
from trainmaster.runtime.rendezvous import choose_address, meet
from trainmaster.runtime.reporting import Reporting, print_notice
from trainmaster.runtime.signals import Signals
from trainmaster.runtime.supervise import Outcome, Supervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Sequence

_TMP = "/tmp"  # noqa: S108 - only private folders are made in it
_LONGEST_RUN_DIR = 80  # characters; a Unix socket's whole path may have 107


def main(arguments: Sequence[str]) -> int:
    """Run one node of the job in folder `arguments[0]`; returns the status to leave with."""
    if len(arguments) != 1:
        print_notice("usage: python3 runtime.zip JOB_FOLDER")
        return 64
    started = time.time()
    signals = Signals()
    signals.install()
    job: Optional[Job] = None
    facts: Optional[Facts] = None
    try:
        job = read_job(Path(arguments[0]).absolute())
        token = read_token(job.folder)
        node_folder = _RunDir()
        facts = read_facts({**os.environ, **job.environment}, job)
        master = Master(
            job.master_url,
            token,
            url_file=job.master_url_file,
            url_owner=job.master_url_owner,
            environ={**os.environ, **job.environment},
        )
        address, interface = choose_address(_rendezvous_interfaces(job), master.url)
        work = take_lease(master, job, facts, [address])
    except HeldElsewhere:
        return HeldElsewhere.status
    except RuntimeFault as fault:
        return _leave_without_lease(fault, job, facts, started)
    with node_folder as run_dir:
        node = _Node(job, facts, work, master, token, signals, run_dir, started)
        status = node.run(address, interface)
        signals.leave()
        return status


def _rendezvous_interfaces(job: Job) -> str:
    name = "DET_SLURM_RENDEZVOUS_IFACE"
    return job.environment.get(name) or os.environ.get(name, "")


def _leave_without_lease(fault: RuntimeFault, job: Optional[Job], facts: Optional[Facts], started: float) -> int:
    print_notice(str(fault))
    asked = fault if isinstance(fault, AskedToLeave) else None
    status = 128 + asked.signum if asked is not None and asked.signum is not None else fault.status
    if job is not None and facts is not None:
        record = ExitRecord(
            allocation_id=job.allocation_id,
            job_id=facts.job_id,
            node_rank=facts.node_rank,
            node_name=facts.node_name,
            exit_code=status,
            signal=None,
            oom=False,
            preempted=asked.reason if asked is not None else None,
            preempt_acked=False,
            began=False,
            message=str(fault),
            started_at=started,
            ended_at=time.time(),
            spool={},
        )
        try:
            write_exit_record(job.folder, record, replace=False)
        except OSError as error:
            print_notice("no exit record could be left: %s" % error)
    return status


class _RunDir:
    """A private folder on the node's own disk, gone afterwards.

    A container that has one for us names it in TRAINMASTER_NODE_DIR (Determined's harness wants
    /run/determined); otherwise we make one. Raises BadJobFolder when the named one is not there or not empty.
    """

    def __init__(self) -> None:
        given = os.environ.get("TRAINMASTER_NODE_DIR")
        self._given = Path(given) if given else None
        # It is emptied in the end: never one in which somebody else keeps something.
        if self._given is not None and (not self._given.is_dir() or any(self._given.iterdir())):
            raise BadJobFolder("TRAINMASTER_NODE_DIR must name an empty folder, %s is none" % self._given)

    def __enter__(self) -> Path:
        if self._given is not None:
            self._given.chmod(0o700)
            return self._given
        parent = os.environ.get("TMPDIR") or _TMP
        if len(parent) > _LONGEST_RUN_DIR or not os.access(parent, os.W_OK):
            parent = _TMP
        # A name that nobody can guess, and not taken if there is one: what tempfile does, which would have to be read.
        self._made = Path(parent) / ("tm-" + os.urandom(8).hex())
        self._made.mkdir(mode=0o700)
        return self._made

    def __exit__(self, *exception: object) -> None:
        if self._given is None:
            shutil.rmtree(str(self._made), ignore_errors=True)
            return
        for path in self._given.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(str(path), ignore_errors=True)
            else:
                path.unlink()


class _Node:
    """What the steps after the lease share."""

    def __init__(
        self,
        job: Job,
        facts: Facts,
        work: Work,
        master: Master,
        token: str,
        signals: Signals,
        run_dir: Path,
        started: float,
    ) -> None:
        self._job = job
        self._facts = facts
        self._work = work
        self._master = master
        self._token = token
        self._signals = signals
        self._run_dir = run_dir
        self._started = started
        self._gone = False
        self._reporting = Reporting(
            job,
            facts,
            master,
            run_dir,
            on_preempt=self._master_wants_us_gone,
            on_gone=self._allocation_is_gone,
        )
        self._preemption = Preemption(run_dir, self._reporting.say, self._reporting.tell_preempt)
        self._watch = PreemptWatch(master, job.allocation_id, self._preemption)

    def run(self, address: str, interface: Optional[str]) -> int:
        self._reporting.start()
        try:
            outcome = self._train(address, interface)
        except AskedToLeave as asked:
            # Nothing was begun, nothing is lost: this is preemption that was obeyed at once.
            self._preemption.request_here(asked.reason)
            outcome = Outcome(0, message=str(asked))
        except RuntimeFault as fault:
            outcome = Outcome(fault.status, message=str(fault))
        self._signals.as_events()
        self._watch.stop()
        self._reporting.say(outcome.message, "INFO" if outcome.exit_code == 0 else "ERROR")
        self._end(outcome)
        return outcome.exit_code

    def _train(self, address: str, interface: Optional[str]) -> Outcome:
        job, facts, work = self._job, self._facts, self._work
        if work.preempt is not None:
            raise AskedToLeave(work.preempt)
        self._watch.start()
        # Ranks import core from the node's own disk, not from the file system that all jobs share.
        package = self._run_dir / "trainmaster.zip"
        shutil.copyfile(str(job.folder / "runtime.zip"), str(package))
        workdir = self._run_dir / "workdir"
        workdir.mkdir()
        unpack_context(context_of(self._master, job, work), workdir)
        # It is needed no more.
        self._work = work = work.replaced(context="")
        meeting = meet(
            self._master,
            job.allocation_id,
            rank=facts.node_rank,
            num_nodes=facts.num_nodes,
            address=address,
            slots=len(facts.slot_ids),
            patience=job.rendezvous_patience,
            say=self._reporting.say,
        )
        environment = child_environment(
            job,
            work,
            facts,
            meeting,
            run_dir=self._run_dir,
            package=package,
            master_url=self._master.url,
            session_token=self._token,
            interface=interface,
            inherited=os.environ,
        )
        if facts.node_rank == 0 and (work.config.get("environment") or {}).get("proxy_ports"):
            self._announce(address)
        write_info(job, work, facts, meeting, run_dir=self._run_dir, environment=environment)
        if self._preemption.reason is not None:
            raise AskedToLeave(self._preemption.reason)
        self._signals.as_events()
        supervisor = Supervisor(
            job,
            facts.end_time,
            self._preemption,
            self._reporting,
            self._signals.events,
            self._token,
            "training" if work.trial is not None else "program",
        )
        # The administrators' first, then the user's own, as Determined names it.
        hooks = [*sorted((job.folder / "hooks").glob("*.sh")), *workdir.glob("startup-hook.sh")]
        return supervisor.run(work.entrypoint, environment, workdir, hooks)

    def _announce(self, address: str) -> None:
        """Where the ports are that the configuration has passed on. A master that is away learns it from no other."""
        from trainmaster.runtime.announce import address_for, announce  # few jobs have any

        where = address_for(self._master.url, address)
        try:
            announce(self._master, self._job.allocation_id, where, self._job.lease_patience)
        except (Away, Rejected) as error:
            self._reporting.say("the ports of this job cannot be reached through the master: %s" % error, "WARNING")

    def _end(self, outcome: Outcome) -> None:
        acked = self._preemption.acked or (outcome.exit_code == 0 and not self._was_started())
        record = ExitRecord(
            allocation_id=self._job.allocation_id,
            job_id=self._facts.job_id,
            node_rank=self._facts.node_rank,
            node_name=self._facts.node_name,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            oom=outcome.oom,
            preempted=self._preemption.reason,
            preempt_acked=acked and self._preemption.reason is not None,
            began=self._was_started(),
            message=outcome.message,
            started_at=self._started,
            ended_at=time.time(),
            spool=self._reporting.settle(),
        )
        on_disk = True
        try:
            write_exit_record(self._job.folder, record)
        except OSError as error:
            on_disk = False
            print_notice("the exit record could not be left in the job folder: %s" % error)
        self._reporting.deliver(record, on_disk=on_disk, hurry=self._gone)
        self._reporting.close()

    def _was_started(self) -> bool:
        return (self._run_dir / "info").exists()

    def _master_wants_us_gone(self, reason: str) -> None:
        self._preemption.request_by_master(reason)

    def _allocation_is_gone(self) -> None:
        if not self._gone:
            self._gone = True
            self._signals.events.put(("gone",))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
