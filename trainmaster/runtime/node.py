"""Runs the work of one node once it has the lease.

reporting -> context -> rendezvous -> environment -> the user's process -> exit record -> deliver what is left
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, List, Optional

from trainmaster.runtime.context import bring_context
from trainmaster.runtime.devices import DeviceCheck, check_slots
from trainmaster.runtime.environment import child_environment, write_info
from trainmaster.runtime.errors import AskedToLeave, CallFailed, CallRejected, RuntimeFault
from trainmaster.runtime.exit_record import ExitRecord
from trainmaster.runtime.facts import Facts
from trainmaster.runtime.job import RUNTIME, JobDescription, Work
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.ports import ReservedPorts
from trainmaster.runtime.preempt import Preemption, PreemptWatch
from trainmaster.runtime.rendezvous import PORTS, gather_nodes
from trainmaster.runtime.reporting import Reporting
from trainmaster.runtime.signals import Signals
from trainmaster.runtime.supervise import ProcessEnd, Supervisor

if TYPE_CHECKING:
    from trainmaster.runtime.node_data import NodeData


class NodeRun:
    """State that the steps after the lease share."""

    def __init__(
        self,
        job: JobDescription,
        facts: Facts,
        work: Work,
        master: MasterCalls,
        token: str,
        signals: Signals,
        run_dir: str,
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
        self._data: Optional[NodeData] = None
        self._ports = ReservedPorts(PORTS + max(1, len(facts.slot_ids)))
        self._reporting = Reporting(
            job,
            facts,
            master,
            run_dir,
            on_preempt=self._on_preempt,
            on_gone=self._on_gone,
        )
        self._preemption = Preemption(run_dir, self._reporting.log, self._reporting.report_preempt)
        self._watch = PreemptWatch(master, job.allocation_id, self._preemption)

    def run(self, address: str, interface: Optional[str]) -> int:
        self._reporting.start()
        try:
            outcome = self._with_fault(self._train(address, interface))
        except AskedToLeave as asked:
            # Nothing was begun, nothing is lost: this is preemption that was obeyed at once.
            self._preemption.request_here(asked.reason)
            outcome = ProcessEnd(0, message=str(asked))
        except RuntimeFault as fault:
            outcome = ProcessEnd(fault.status, message=str(fault))
        except OSError as error:  # its disk is full, most likely
            outcome = ProcessEnd(RuntimeFault.status, message="this node cannot do the work: %s" % error)
        self._signals.as_events()
        if self._data is not None:
            self._data.end()
        self._watch.stop()
        self._reporting.log(outcome.message, "INFO" if outcome.exit_code == 0 else "ERROR")
        self._end(outcome)
        return outcome.exit_code

    def _train(self, address: str, interface: Optional[str]) -> ProcessEnd:
        job, facts, work = self._job, self._facts, self._work
        if work.preempt is not None:
            raise AskedToLeave(work.preempt)
        self._watch.start()
        devices = DeviceCheck(job, facts, {**os.environ, **job.environment})
        devices.start()
        # Ranks import core from the node's own disk, not from the file system that all jobs share.
        package = os.path.join(self._run_dir, "trainmaster.zip")
        _copy(os.path.join(job.folder, RUNTIME), package)
        workdir = os.path.join(self._run_dir, "workdir")
        os.makedirs(workdir, exist_ok=True)  # it is there already where something is mounted in it
        bring_context(self._master, job, work, workdir)
        self._work = work = work.replaced(files=None)  # they are needed no more
        if self._job.node_data or isinstance(work.config.get("data"), (list, tuple)):
            self._bring_data(package)
        warning = devices.result()
        if warning is not None:
            self._reporting.log(warning, "WARNING")
        rendezvous = gather_nodes(
            self._master,
            job.allocation_id,
            rank=facts.node_rank,
            num_nodes=facts.num_nodes,
            address=address,
            slots=len(facts.slot_ids),
            ports=self._ports.numbers,
            patience=job.rendezvous_patience if self._data is None else self._data.patience,
            log=self._reporting.log,
        )
        check_slots(job, facts, rendezvous)
        self._ports.check()
        environment = child_environment(
            job,
            work,
            facts,
            rendezvous,
            run_dir=self._run_dir,
            package=package,
            master_url=self._master.url,
            session_token=self._token,
            interface=interface,
            inherited=os.environ,
        )
        if self._data is not None:
            environment["TRAINMASTER_DATA"] = self._data.links
        if facts.node_rank == 0 and (work.config.get("environment") or {}).get("proxy_ports"):
            self._announce(address)
        write_info(job, work, facts, rendezvous, run_dir=self._run_dir, environment=environment)
        if self._preemption.reason is not None:
            raise AskedToLeave(self._preemption.reason)
        self._signals.as_events()
        supervisor = Supervisor(
            job,
            facts.end_time,
            self._preemption,
            self._reporting,
            self._signals.events,
            [secret for secret in (self._token, work.owner_token) if secret],
            "training" if work.trial is not None else "program",
            self._data.pids if self._data is not None else (),
        )
        # The administrators' first, then the user's own, as Determined names it.
        hooks = _scripts(os.path.join(job.folder, "hooks"))
        chosen = work.config.get("environment") or {}
        if any(chosen.get(key) for key in ("modules", "conda", "venv", "setup")):
            from trainmaster.runtime.interpreter import write_script  # few jobs have any

            hooks.append(write_script(chosen, self._run_dir))
        own_hook = os.path.join(workdir, "startup-hook.sh")
        if os.path.exists(own_hook):
            hooks.append(own_hook)
        outcome = supervisor.run(work.entrypoint, environment, workdir, hooks)
        if outcome.exit_code and "ModuleNotFoundError: " in outcome.evidence:
            from trainmaster.runtime.interpreter import origin

            sentence = origin(chosen, work.entrypoint, environment)
            self._reporting.log(sentence, "ERROR")
            outcome = outcome.replaced(evidence="%s. %s" % (outcome.evidence.rstrip("."), sentence.rstrip(".")))
        return outcome

    def _bring_data(self, package: str) -> None:
        """Copy data to the node's own disk. Raises NoData, AskedToLeave."""
        from trainmaster.runtime.node_data import NodeData, wanted  # few jobs have any

        if not wanted(self._work):
            return
        self._data = NodeData(
            self._job,
            self._work,
            self._master,
            self._run_dir,
            package,
            self._reporting.log,
            lambda: self._preemption.reason,
        )
        if not self._data.bring():
            raise AskedToLeave(self._preemption.reason or "master")

    def _with_fault(self, outcome: ProcessEnd) -> ProcessEnd:
        """Add the cause where the user's process failed on a node whose ports another account has taken."""
        fault = self._ports.stolen() if outcome.exit_code and self._preemption.reason is None else ""
        return outcome.replaced(fault=fault, message="%s: %s" % (outcome.message, fault)) if fault else outcome

    def _announce(self, address: str) -> None:
        """Report the address of the ports that the configuration wants proxied. A master that is away is warned
        about, not waited for beyond `lease_patience`."""
        from trainmaster.runtime.announce import address_for, announce  # few jobs have any

        where = address_for(self._master.url, address)
        try:
            announce(self._master, self._job.allocation_id, where, self._job.lease_patience)
        except (CallFailed, CallRejected) as error:
            self._reporting.log("the ports of this job cannot be reached through the master: %s" % error, "WARNING")

    def _end(self, outcome: ProcessEnd) -> None:
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
            failed_rank=outcome.failed_rank,
            failed_at=outcome.failed_at,
            spool=self._reporting.finish(),
            evidence=outcome.evidence,
            fault=outcome.fault,
        )
        self._reporting.deliver(record, hurry=self._gone)
        self._reporting.close()

    def _was_started(self) -> bool:
        return os.path.exists(os.path.join(self._run_dir, "info"))

    def _on_preempt(self, reason: str) -> None:
        self._preemption.request_by_master(reason)

    def _on_gone(self) -> None:
        if not self._gone:
            self._gone = True
            self._signals.events.put(("gone",))


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as read, open(target, "wb") as written:
        written.write(read.read())


def _scripts(folder: str) -> List[str]:
    """List the scripts in a folder, which need not exist, in the order of their names."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if name.endswith(".sh")]
