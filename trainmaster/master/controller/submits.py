"""Submits the jobs of one cluster, several at a time, beside the passes of its loop: a scheduler may be slow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from trainmaster.dispatchers.base import Ambiguous, Rejected, Transient, Unreachable
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, in_short
from trainmaster.master.services.clock import now
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.errors import ServiceError, Unavailable
from trainmaster.master.services.files.shared_contexts import SharedContexts
from trainmaster.master.services.master import Master
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.scheduling import effects, pool_health

log = logging.getLogger(__name__)

SUBMITTERS = 8  # submits under way at once
BATCH = 64  # submits begun in one pass
TRANSIENT_DELAY = 15.0  # seconds before a submit that the scheduler declined for now is tried again
UNREACHABLE_DELAY = 30.0
SUBMIT_POLL = 0.25  # seconds between two passes while submits delay others
NO_NODE_DELAY = 60.0  # where the pool has no node that the job may run on


class Submits:
    """The submits of one cluster. `wake` begins a pass of the loop that calls `settle` and `begin_due`; submits that
    have not begun when `stopping` is set do not begin."""

    def __init__(
        self,
        master: Master,
        cluster: Cluster,
        retries: Retries,
        wake: Callable[[], None],
        stopping: threading.Event,
    ) -> None:
        self._master, self._cluster = master, cluster
        self._dispatcher = cluster.dispatcher
        self._retries, self._wake, self._stop = retries, wake, stopping
        self._pool = ThreadPoolExecutor(SUBMITTERS, thread_name_prefix=f"submit-{cluster.name}")
        self._submitting: dict[str, Future[None]] = {}
        self._unsettled: dict[str, str] = {}  # submits whose outcome could not be stored: why
        self._due_asked = now()  # time of the last query for due submits
        self._contexts = SharedContexts(master)
        self.crowded = False  # more may be submitted as soon as a submit under way is over
        self.limited = False  # some may wait until others of their experiment end

    def close(self) -> None:
        """Wait for the submits under way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def pause(self, longest: float) -> float:
        """Seconds until jobs that wait to be submitted need the next pass."""
        if self.crowded:
            return SUBMIT_POLL
        try:
            due = self._master.submissions.next_due(self._cluster.name, self._due_asked)
        except Exception:  # the database does not answer; the pass itself logs that
            return longest
        return min(longest, max((due - now()).total_seconds(), SUBMIT_POLL)) if due else longest

    def begin_due(self) -> None:
        """Begin submits that are due, as many as may be under way. Raises as `Store.transaction`."""
        room = BATCH - len(self._submitting)
        self.crowded = room <= 0
        if self.crowded:
            return
        name = self._cluster.name
        resting = self._master.pool_health.paused_pools()
        self._due_asked = now()
        limits = {} if self._schedules() else self._master.slot_limits.of_experiments(name, self._submitting)
        rooms = {number: limit.room for number, limit in limits.items()}
        full = [number for number, left in rooms.items() if not left]
        due = self._master.submissions.due(name, room, resting=resting, under_way=self._submitting, rooms=rooms)
        self.crowded = len(due) == room
        for allocation_id in (*due, *self._master.pool_health.half_open_probes(name, resting, full)):
            if allocation_id not in self._submitting:
                self._submitting[allocation_id] = self._pool.submit(self._submit, allocation_id)
        self.limited = bool(limits)
        self._master.slot_limits.explain_waits(name, limits, resting)

    def _schedules(self) -> bool:
        return self._master.clusters.schedules(self._cluster)

    def settle(self) -> None:
        """Forget the submits that are over. One whose outcome could not be stored, because the database went
        away, may have happened."""
        for allocation_id, future in list(self._submitting.items()):
            if future.done():
                del self._submitting[allocation_id]
                if not future.cancelled() and (error := future.exception()) is not None:
                    if not isinstance(error, DATABASE_UNAVAILABLE):
                        log.error("submitting %s failed", allocation_id, exc_info=error)
                    self._unsettled[allocation_id] = f"its outcome could not be stored: {in_short(error)}"
        self._retries.each("storing the outcome of the submit of", self._unsettled, self._settle_one)

    def _settle_one(self, allocation_id: str) -> None:
        self._master.submissions.perhaps_submitted(allocation_id, self._unsettled[allocation_id])
        del self._unsettled[allocation_id]

    def _submit(self, allocation_id: str) -> None:
        if self._stop.is_set():
            return
        try:
            schedules = self._schedules()
            ticket = self._master.submissions.begin_submit(allocation_id)
        except Unavailable as error:
            log.info("%s is not submitted yet: %s", allocation_id, error.message)
            return
        except ServiceError as error:
            self._master.endings.rejected(allocation_id, error.message)
            return
        if ticket is None:
            return
        try:
            context = self._contexts.of(ticket.experiment_id, ticket.context_size)
            spec = self._master.job_specs.build(
                ticket.served, ticket.allocation, ticket.config, ticket.secrets, context
            )
            if ticket.first:
                remarks = effects.remarks(effects.JobPlace.of(self._cluster, schedules=schedules), ticket.config)
                links = self._master.submissions.unused_links(self._cluster, ticket.allocation)
                self._master.submissions.remark(ticket.allocation, [*remarks, *links, *self._dispatcher.remarks(spec)])
            avoid = self._master.pool_health.avoided_nodes(
                self._cluster.name, ticket.served.pool, spec.slots, allocation_id
            )
            if avoid and ticket.first and not self._master.clusters.capabilities(self._cluster).avoids_nodes:
                self._master.submissions.cannot_avoid(ticket.allocation, avoid, self._cluster.kind)
            ref = self._dispatcher.submit(replace(spec, exclude_nodes=avoid) if avoid else spec)
        except pool_health.NoNodeLeft as error:
            if self._master.settings.launch_error:
                self._master.endings.rejected(allocation_id, error.message)
            else:
                waits = f"{error.message} The trial waits for more nodes: move its experiment, or kill it."
                self._master.submissions.not_submitted(allocation_id, NO_NODE_DELAY, waits)
        except Unavailable as error:
            self._master.submissions.not_submitted(allocation_id, NO_NODE_DELAY, error.message)
        except Rejected as error:
            self._master.endings.rejected(allocation_id, str(error))
        except Transient as error:
            self._master.submissions.not_submitted(allocation_id, TRANSIENT_DELAY, f"Not submitted yet: {error}")
        except Unreachable as error:
            self._master.submissions.not_submitted(
                allocation_id, UNREACHABLE_DELAY, f"The cluster cannot be reached: {error}"
            )
        except Ambiguous as error:
            self._master.submissions.perhaps_submitted(allocation_id, str(error))
            self._wake()
        except DATABASE_UNAVAILABLE:  # `settle` looks after it
            raise
        except Exception as error:  # a bug in a dispatcher: it is unknown whether the job was submitted
            log.exception("submitting %s failed", allocation_id)
            self._master.submissions.perhaps_submitted(allocation_id, repr(error))
        else:
            self._master.submissions.submitted(allocation_id, ref)
