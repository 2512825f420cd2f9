"""Group commits of the calls that all jobs make frequently: tokens, leases, preemption polls, reports and exits."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter

from trainmaster.master.admission.group_commit import GroupCommit
from trainmaster.master.admission.token_buckets import TokenBuckets
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.allocations.leases import LeaseRequest
from trainmaster.master.services.clusters.clusters import Clusters
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.exits import AckedRecords, ExitReport
from trainmaster.master.services.ingest.records import ReportAnswer
from trainmaster.master.services.master import Master
from trainmaster.master.values.stored import Json

THREADS = 8  # for calls that are taken in by themselves
BURST = 5.0  # seconds' worth of bytes that may come at once
LONGEST_WAIT = 20.0  # seconds that an answer is held back: less than the runtime's retries
MOST_KNOWN = 50_000  # jobs: more than may be connected, or each call would push out the token of the next
LOOKS = 500  # tokens, or preemption polls, that one query answers
MOST_LOOKS = 100_000  # without an answer: all jobs ask at once when the master or the database was away
POOLS_FRESH = 3600.0  # seconds for which the pools of clusters are taken to be as they were


class JobCalls:
    """The group commits of one master. Belongs to the event loop."""

    def __init__(self, master: Master) -> None:
        alone, seconds = ThreadPoolExecutor(THREADS, "job-calls"), float(master.settings.limits.statement)
        of_attempt = attrgetter("allocation_id")
        self.tokens: GroupCommit[str, Caller] = GroupCommit(
            lambda tokens, /, *, wait: master.identities.authenticate_jobs(tokens),  # noqa: ARG005
            *(str, alone, seconds, 1),
            together=LOOKS,
            pending=MOST_LOOKS,
        )
        self.leases: GroupCommit[LeaseRequest, Json] = GroupCommit(
            lambda requests, /, *, wait: master.leases.lease(requests, _slot_types(master.clusters), wait=wait),
            *(of_attempt, alone, seconds),
        )
        self.reports: GroupCommit[ReportCall, ReportAnswer] = GroupCommit(
            master.report_calls.take_reports, of_attempt, alone, seconds
        )
        self.exits: GroupCommit[ExitReport, AckedRecords] = GroupCommit(
            master.exits.take_exits, of_attempt, alone, seconds
        )
        self.preemptions: GroupCommit[str, str | None] = GroupCommit(
            lambda ids, /, *, wait: master.preemptions.reasons(ids),  # noqa: ARG005
            *(str, alone, seconds, 1),
            together=LOOKS,
            pending=MOST_LOOKS,
        )
        self._bytes = TokenBuckets(master.settings.limits.job_rate * 2**20, BURST, MOST_KNOWN)  # by job
        self._known: OrderedDict[str, Caller] = OrderedDict()  # by token

    async def caller(self, token: str, *, checked_later: bool) -> Caller:
        """Return the job that presents `token`. Raises Unauthenticated.

        What a token says never changes, only whether it still counts. `checked_later`: the call's own transaction
        refuses an attempt that ended too long ago (`identity.check_counts`), so a known token needs no query.
        """
        known = self._known.get(token) if checked_later else None
        if known is None:
            known = self._known[token] = await self.tokens.ask(token)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return known

    def pause(self, allocation_id: str, size: int) -> float:
        """Return the seconds that the answer to a job's report of `size` bytes is held back."""
        return min(self._bytes.take(allocation_id, size), LONGEST_WAIT)


def _slot_types(clusters: Clusters) -> dict[str, str]:
    """By pool."""
    return {entry.pool.name: entry.pool.slot_type.value for entry in clusters.pools(fresh=POOLS_FRESH)}
