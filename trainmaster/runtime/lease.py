"""Leases the allocation from the master, so that a duplicate of a job does no harm."""

from __future__ import annotations

from typing import List

from trainmaster.runtime.errors import CallFailed, CallRejected, HeldElsewhere, NoLease, NotAdmitted, NotLeased
from trainmaster.runtime.facts import Facts
from trainmaster.runtime.job import JobDescription, Work, parse_work
from trainmaster.runtime.master import MasterCalls

_TIMEOUT = 120.0  # seconds for each wait on the network


def take_lease(master: MasterCalls, job: JobDescription, facts: Facts, addresses: List[str]) -> Work:
    """Lease the allocation for this job and get its work. Waits `job.lease_patience` seconds for a master that is
    away.

    Raises HeldElsewhere, NotAdmitted, NoLease, NotLeased; BadJobFolder when the answer makes no sense.
    """
    body = {
        "job_id": facts.job_id,
        "run_id": facts.run_id,
        "node_rank": facts.node_rank,
        "num_nodes": facts.num_nodes,
        "node_name": facts.node_name,
        "slot_ids": list(facts.slot_ids),
        "addresses": addresses,
        "image_digest": facts.image_digest,
        "fetches_context": True,
    }
    path = "/api/x1/allocations/%s/lease" % job.allocation_id
    try:
        return parse_work(master.call_with_retry("POST", path, body, patience=job.lease_patience, timeout=_TIMEOUT))
    except CallRejected as error:
        if error.http_status == 409:
            raise HeldElsewhere(
                "another job, or an earlier run of this one, holds allocation %s, or it has ended" % job.allocation_id
            ) from error
        if error.http_status in (401, 403):
            raise NotAdmitted(
                "the session token of allocation %s was refused: %s" % (job.allocation_id, error)
            ) from error
        raise NotLeased("the lease of allocation %s was refused: %s" % (job.allocation_id, error)) from error
    except CallFailed as error:
        raise NoLease("no lease within %d s: %s" % (job.lease_patience, error)) from error
