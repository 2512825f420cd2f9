"""Runs one node of one job, from its job folder to its exit status.

read the job folder -> lease -> the work (`node`) -> leave with the user's status
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from typing import Optional, Sequence

from trainmaster.runtime.errors import AskedToLeave, HeldElsewhere, RuntimeFault
from trainmaster.runtime.exit_record import ExitRecord, make_durable, write_exit_record
from trainmaster.runtime.facts import Facts, read_facts
from trainmaster.runtime.job import JobDescription, read_job, read_token, with_certificate
from trainmaster.runtime.lease import take_lease
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.notice import print_notice
from trainmaster.runtime.rendezvous import choose_address
from trainmaster.runtime.run_dir import RunDir
from trainmaster.runtime.signals import Signals


def main(arguments: Sequence[str]) -> int:
    """Run one node of the job in folder `arguments[0]`; returns the status to leave with."""
    if len(arguments) != 1:
        print_notice("usage: python3 runtime.zip JOB_FOLDER")
        return 64
    started = time.time()
    signals = Signals()
    signals.install()
    job: Optional[JobDescription] = None
    facts: Optional[Facts] = None
    try:
        job = read_job(os.path.abspath(arguments[0]))
        token = read_token(job.folder)
        node_folder = RunDir()
        environ = {**with_certificate(job.folder, os.environ), **job.environment}
        facts = read_facts(environ, job)
        master = MasterCalls(
            job.master_url,
            token,
            url_file=job.master_url_file,
            url_owner=job.master_url_owner,
            environ=environ,
        )
        address, interface = choose_address(_rendezvous_interfaces(job), master.url)
        # Imports are most of what a job's start costs: modules that only the work needs are imported meanwhile.
        importing = threading.Thread(target=_import_node, name="import-node", daemon=True)
        importing.start()
        work = take_lease(master, job, facts, [address])
        importing.join()  # Python 3.8 does not wait for a module in a zip that another thread reads
        from trainmaster.runtime.node import NodeRun
    except HeldElsewhere:
        return HeldElsewhere.status
    except RuntimeFault as fault:
        return _leave_without_node(fault, job, facts, started)
    gc.freeze()  # what was read stays: the first collection need not go through it
    gc.enable()
    try:
        with node_folder as run_dir:
            node = NodeRun(job, facts, work, master, token, signals, run_dir, started)
            status = node.run(address, interface)
            signals.leave()
            return status
    except OSError as error:  # its disk is full, most likely: not even a folder can be made
        return _leave_without_node(RuntimeFault("this node cannot do the work: %s" % error), job, facts, started)


def _import_node() -> None:
    import trainmaster.runtime.node  # noqa: F401


def _rendezvous_interfaces(job: JobDescription) -> str:
    name = "DET_SLURM_RENDEZVOUS_IFACE"
    return job.environment.get(name) or os.environ.get(name, "")


def _leave_without_node(
    fault: RuntimeFault, job: Optional[JobDescription], facts: Optional[Facts], started: float
) -> int:
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
            make_durable(job.folder, facts.node_rank)  # the master does not know of this end
        except OSError as error:
            print_notice("no exit record could be left: %s" % error)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
