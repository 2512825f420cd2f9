"""The loop that makes one cluster match the database.

Level-triggered: every pass compares the desired with the observed state and may run again at any time. A pass submits
jobs that are due, ends jobs that must end, takes in the latest observation of the cluster (one bulk query), closes
attempts that have ended, and reads the files that ended jobs left. Calls that a scheduler may be slow to answer,
submits and status queries, run beside the passes, so that a blocked `sbatch` or `squeue` delays nothing else.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial

from trainmaster.dispatchers.base import (
    Announces,
    DispatcherError,
    JobRef,
    JobState,
    Remains,
    Snapshot,
    StreamPosition,
)
from trainmaster.dispatchers.contract.agents import agent_hub
from trainmaster.master.controller.replay import NotThereYet, Replay, UnreadableFolder
from trainmaster.master.controller.submits import Submits
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, in_short
from trainmaster.master.lifecycle.allocation import Outcome
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.services.allocations import endings
from trainmaster.master.services.batches import single
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.errors import ServiceError
from trainmaster.master.services.ingest.exits import ExitReport
from trainmaster.master.services.master import Master
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.scheduling import observations

log = logging.getLogger(__name__)

REPLAY_TURN = 1.0  # seconds that a pass spends on what one job left
READ_TRIES = 20  # passes after which an unreadable job folder no longer holds up the end of its trial
INLINE_WAIT = 0.02  # seconds that a pass waits for a status query, so that a quick answer is used at once
DEBOUNCE = 0.1  # seconds: schedulers start and end jobs in bursts
MIN_PASS_INTERVAL = 0.4  # seconds between the beginnings of two passes under continuous wake-ups
COLLECT_EVERY = 2.0  # seconds between two searches for folders that are no longer needed
COLLECTED_AT_ONCE = 20
ANNOUNCE_DELAY = 30.0  # seconds before the address is sent again to a cluster that could not be reached
ENDED_TOGETHER = 50  # attempts of one experiment whose ends are stored in one transaction
POLL_DUTY_CYCLE = 20  # a query that took a second is followed by the next one after so many
LONGEST_STEP = 5.0  # seconds that one step of a pass may take while others wait
IDLE_POLL = 5.0  # seconds between two passes without a wake-up


class ClusterLoop:
    """Runs in a thread of its own between `start` and `stop`; only the leading master starts it."""

    def __init__(self, master: Master, cluster: Cluster) -> None:
        self._master, self._cluster = master, cluster
        self._dispatcher = cluster.dispatcher
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"cluster-{cluster.name}", daemon=True)
        self._query_thread = ThreadPoolExecutor(1, thread_name_prefix=f"look-{cluster.name}")
        self._query: Future[Snapshot] | None = None  # under way, or not taken in yet
        self._observed_at = 0.0
        self._query_cost = 0.0  # seconds that the last look took, of the cluster and of the database
        self._asked: dict[str, float] = {}  # vanished jobs that were asked about, and when each is asked about again
        self._unread: dict[str, int] = {}  # how often a folder could not be read
        self._unreachable = ""
        self._waiting = False  # some are not yet submitted
        self._backlog: observations.PendingUpdates | None = None
        self._memory = observations.Memory(cluster.name)
        self._replays: dict[str, Replay | None] = {}  # of attempts whose end waits until their files are read
        self._removing: dict[JobRef, float] = {}  # unwanted jobs, and when they were asked to leave
        self._announce_at = self._collect_at = 0.0
        self._retries = Retries()
        self._submits = Submits(master, cluster, self._retries, self._wake.set, self._stop)

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    def start(self) -> None:
        if hub := agent_hub(self._dispatcher):
            hub.lead()
        self._master.wakeups.subscribe("controller", self._wake)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self._submits.close()
        self._query_thread.shutdown(wait=True, cancel_futures=True)
        self._master.wakeups.unsubscribe("controller", self._wake)
        if hub := agent_hub(self._dispatcher):
            hub.follow()

    def _run(self) -> None:
        recovered = False
        while not self._stop.is_set():
            self._wake.clear()
            began = time.monotonic()
            try:
                if not recovered:
                    self._master.submissions.recover(self._cluster.name)
                    recovered = True
                self.reconcile()
                self._master.clusters.note_pass(self._cluster, time.monotonic() - began)
            except DATABASE_UNAVAILABLE as error:
                log.info("a pass over cluster %s waits for the database: %s", self._cluster.name, in_short(error))
                self._stop.wait(1.0)
            except Exception:  # the loop must outlive any bug or lost connection; the next pass compares again
                log.exception("a pass over cluster %s failed; it will be retried", self._cluster.name)
                self._stop.wait(1.0)
            if self._wake.wait(self._pause()):
                self._stop.wait(max(DEBOUNCE, began + MIN_PASS_INTERVAL - time.monotonic()))

    def _pause(self) -> float:
        pause = min(IDLE_POLL, self._poll_interval())
        return self._submits.pause(pause) if self._waiting else pause

    def reconcile(self) -> None:
        """Run one pass. Every step is independent: what one of them cannot do now is done by a later pass."""
        self._announce()
        todo = self._master.work_steps.pending(self._cluster.name)
        if todo.unbound or todo.overdue:
            self._master.submissions.adopt_cluster()
            self._master.endings.enforce_deadlines()
            todo = self._master.work_steps.pending(self._cluster.name)
        self._submits.settle()
        self._waiting = todo.waiting
        if todo.waiting:
            self._submits.begin_due()
        if todo.condemned:
            self._master.endings.withdraw(self._cluster.name)
            self._kill()
        if self._look_if_due() or todo.over:
            self._conclude(self._investigated(self._master.endings.ending(self._cluster.name)))
        self._collect()

    def _announce(self) -> None:
        """Publish the master's address to jobs on a remote cluster, once that can be reached. (Where its folders are
        this machine's own, that was done at the start.)"""
        if (
            self._cluster.facts.here
            or time.monotonic() < self._announce_at
            or not isinstance(self._dispatcher, Announces)
        ):
            return
        self._announce_at = math.inf
        try:
            url = self._cluster.master_url or self._master.settings.master_url
            self._cluster.announcement.note(self._dispatcher.announce(url))
        except DispatcherError as error:
            log.warning("jobs on %s are not told where the master is yet: %s", self._cluster.name, error)
            self._announce_at = time.monotonic() + ANNOUNCE_DELAY

    # -- ending -----------------------------------------------------------------------------------------------

    def _kill(self) -> None:
        refs = [ref for _, ref in self._master.endings.to_kill(self._cluster.name) if ref is not None]
        self._cancel(refs)

    def _cancel(self, refs: list[JobRef]) -> None:
        if not refs:
            return
        try:
            self._dispatcher.cancel(refs)
        except DispatcherError as error:
            log.warning("cancelling %d jobs on %s failed, trying again later: %s", len(refs), self._cluster.name, error)
        self._observed_at = 0.0  # query its state at once

    # -- looking ----------------------------------------------------------------------------------------------

    def _poll_interval(self) -> float:
        try:
            return self._master.clusters.capabilities(self._cluster).poll_interval
        except DispatcherError:
            return IDLE_POLL

    def _look_if_due(self) -> bool:
        """Return whether the cluster was observed again. The query itself only fills the backlog."""
        rest = max(self._poll_interval(), POLL_DUTY_CYCLE * self._query_cost)
        due = self._query is None and time.monotonic() - self._observed_at >= rest
        # A cluster without jobs of ours is not queried.
        if due and (not self._observed_at or self._removing or self._master.observations.any_live(self._cluster.name)):
            self._observed_at = time.monotonic()
            self._query = self._query_thread.submit(self._observe)
            if wait([self._query], INLINE_WAIT).not_done:
                self._query.add_done_callback(lambda _: self._wake.set())
        if self._query is not None and self._query.done():
            look, self._query = self._query, None
            self._store_observation(look)
        return self._take_backlog()  # in every pass: observations may arrive faster than one of them is worked through

    def _observe(self) -> Snapshot:
        began = time.thread_time()
        try:
            return self._master.clusters.observe(self._cluster)
        finally:
            self._query_cost = time.thread_time() - began

    def _store_observation(self, look: Future[Snapshot]) -> None:
        try:
            snapshot = look.result()
            quiet = self._master.clusters.capabilities(self._cluster).quiet_period
        except DispatcherError as error:
            if str(error) != self._unreachable:
                log.warning("cluster %s cannot be observed, all states stay: %s", self._cluster.name, error)
            self._unreachable = str(error)
            return
        self._unreachable = ""
        began = time.monotonic()
        changes = self._master.observations.take_snapshot(
            self._memory, snapshot, quiet, self._dispatcher.traits.waiting
        )
        self._query_cost += time.monotonic() - began
        self._backlog = changes.backlog
        self._remove([*changes.doubles, *changes.orphans])

    def _remove(self, unwanted: list[JobRef]) -> None:
        """End jobs without a live attempt. A job that is slow to end is not cancelled again in every pass."""
        at = time.monotonic()
        since = {ref: self._removing.get(ref, -math.inf) for ref in unwanted}
        now_asked = [ref for ref in since if at - since[ref] >= endings.RESEND_KILL]
        for ref in now_asked:
            log.warning("job %s under %s belongs to no live attempt and is removed", ref.job_id, ref.token)
        self._removing = since | dict.fromkeys(now_asked, at)
        self._cancel(now_asked)

    def _take_backlog(self) -> bool:
        if self._backlog is None or not self._backlog.updates:
            return False
        if self._master.observations.take(self._backlog) or self._backlog.updates:
            self._wake.set()
        return True

    def _investigated(self, endings_seen: list[endings.Ending]) -> list[endings.Ending]:
        """Examine jobs that ended without a report of their runtime, or that a person may not have cancelled: their
        files, and the scheduler's accounting. Returns what is known now."""
        unclear = endings.unclear(endings_seen)
        ids = {one.allocation_id for one in unclear}
        self._asked = {allocation_id: at for allocation_id, at in self._asked.items() if allocation_id in ids}
        in_time = self._for_a_while()
        by_id = {one.allocation_id: one for one in sorted(unclear, key=lambda one: self._was_asked(one.allocation_id))}

        def investigate(allocation_id: str) -> None:
            if next(in_time):
                self._investigate(by_id[allocation_id])

        self._retries.each("examining the end of", by_id, investigate)
        return self._master.endings.ending(self._cluster.name) if unclear else endings_seen

    def _investigate(self, one: endings.UnclearEnd) -> None:
        allocation_id, ref = one.allocation_id, one.ref
        remains = self._read(ref.token, ref.user)
        taken = [self._take_exit(allocation_id, record) for record in remains.exits.values()] if remains else []
        if not one.explains or self._was_asked(allocation_id) or (one.reported is None and any(taken)):
            return
        try:
            words = self._dispatcher.explain(ref)
        except DispatcherError as error:
            log.info("job %s cannot be explained now: %s", ref.job_id, error)
            return
        lives = not words.state.terminal and words.state is not JobState.UNKNOWN
        if lives:
            log.warning("job %s lives, although the listing of %s leaves it out", ref.job_id, self._cluster.name)
        # Before its silence is long enough to give it up.
        self._asked[allocation_id] = time.monotonic() + self._master.settings.lost_after / 2 if lives else math.inf
        self._master.endings.note_explanation(allocation_id, words)

    def _was_asked(self, allocation_id: str) -> bool:
        """Whether the answer about a vanished job still holds."""
        return time.monotonic() < self._asked.get(allocation_id, -math.inf)

    # -- concluding -------------------------------------------------------------------------------------------

    def _conclude(self, over: list[endings.Ending]) -> None:
        """Close ended attempts, those of one experiment together: thousands may have been cancelled at once."""
        ends: dict[int, dict[str, Outcome]] = {}
        in_time = self._for_a_while()
        decided = list(self._master.endings.verdicts(over))
        self._replays = {one.allocation_id: self._replays.get(one.allocation_id) for one in decided}
        # Attempts that left much to read must not delay those that left little.
        verdicts = {verdict.allocation_id: verdict for verdict in sorted(decided, key=self._spent)}

        def conclude(allocation_id: str) -> None:
            verdict = verdicts[allocation_id]
            if not next(in_time) or (not verdict.complete and not self._replayed(verdict)):
                return
            verdict = self._charged(verdict)
            if not verdict.leased and (remains := self._read(verdict.token, verdict.run_as)) and remains.output_tail:
                self._master.endings.quote_output(verdict.allocation_id, remains.output_tail)
                verdict = endings.with_cause(verdict, remains.not_started)
            self._unread.pop(verdict.allocation_id, None)
            if verdict.experiment_id is not None:
                together = ends.setdefault(verdict.experiment_id, {})
                together[verdict.allocation_id] = verdict.outcome
                if len(together) == ENDED_TOGETHER:
                    self._end(verdict.experiment_id, ends.pop(verdict.experiment_id))
            else:
                self._end_alone(verdict)

        self._retries.each("the end of", verdicts, conclude)
        for experiment_id, together in ends.items():
            self._end(experiment_id, together)

    def _end(self, experiment_id: int, outcomes: dict[str, Outcome]) -> None:
        """End attempts of one experiment. An experiment that cannot be updated delays no other."""
        try:
            self._master.endings.end_together(experiment_id, outcomes)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:  # a bug: logged, and the others do not wait for its fix
            log.exception("attempts of experiment %d cannot be ended: %s", experiment_id, ", ".join(outcomes))
            if len(outcomes) > 1:
                for allocation_id, outcome in outcomes.items():
                    self._end(experiment_id, {allocation_id: outcome})
            return
        if self._submits.limited:
            self._wake.set()

    def _end_alone(self, verdict: endings.Verdict) -> None:
        """End an attempt of a standalone task."""
        try:
            self._master.endings.end(verdict.allocation_id, verdict.outcome)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:  # a bug: logged, and the others do not wait for its fix
            log.exception("the attempt %s cannot be ended", verdict.allocation_id)

    def _for_a_while(self) -> Iterator[bool]:
        """Whether this pass has time for another item; the next pass does the rest."""
        until = time.monotonic() + LONGEST_STEP
        while not self._stop.is_set() and time.monotonic() < until:
            yield True
        self._wake.set()
        while True:
            yield False

    def _replayed(self, verdict: endings.Verdict) -> bool:
        """Take in what the job wrote and could not deliver, before its end is decided. False: try again later."""
        allocation_id = verdict.allocation_id
        replay = self._replays.get(allocation_id)
        if replay is None:
            replay = self._replays[allocation_id] = Replay(self._master, verdict)
        try:
            over = replay.go_on(partial(self._read, verdict.token, verdict.run_as), time.monotonic() + REPLAY_TURN)
        except UnreadableFolder:
            tries = self._unread[allocation_id] = self._unread.get(allocation_id, 0) + 1
            return tries >= READ_TRIES
        except NotThereYet:
            self._replays[allocation_id] = None
            return False
        if not over:
            self._wake.set()
        return over

    def _spent(self, verdict: endings.Verdict) -> float:
        replay = self._replays.get(verdict.allocation_id)
        return replay.spent if replay is not None else 0.0

    def _charged(self, verdict: endings.Verdict) -> endings.Verdict:
        """Return a job that flooded its folder ended by its own fault, even if something else ended it then."""
        replay = self._replays.get(verdict.allocation_id)
        if replay is None or not replay.flood:
            return verdict
        self._master.endings.note_flood(verdict.allocation_id, replay.flood)
        if verdict.outcome.kind is not OutcomeKind.INFRASTRUCTURE:
            return verdict
        return replace(
            verdict, outcome=replace(verdict.outcome, kind=OutcomeKind.FAILED, text=replay.flood.rstrip("."))
        )

    def _collect(self) -> None:
        """Remove the folders of ended jobs once the scheduler no longer lists them."""
        if time.monotonic() < self._collect_at:
            return
        what = "the removal of the job folder of"
        resting = self._retries.resting(what)
        ended = self._master.endings.uncollected(self._cluster.name, COLLECTED_AT_ONCE, resting)
        if len(ended) < COLLECTED_AT_ONCE:
            self._collect_at = time.monotonic() + COLLECT_EVERY
        folders = {allocation_id: (token, user) for allocation_id, token, user in ended}

        def collect(allocation_id: str) -> None:
            if allocation_id in folders:  # else it has become due since the query
                self._dispatcher.forget(*folders[allocation_id])
                self._master.endings.collected(allocation_id)

        self._retries.each(what, [*folders, *resting], collect)

    def _read(self, token: str, user: str | None, places: Mapping[str, StreamPosition] | None = None) -> Remains | None:
        """Return the exit records that a job left; with `places` also its streams."""
        try:
            return self._dispatcher.collect(token, user, places, self._master.settings.limits.spool * 2**20)
        except DispatcherError as error:
            log.warning("the folder of job %s could not be read: %s", token, error)
            return None

    def _take_exit(self, allocation_id: str, record: bytes) -> bool:
        """Read an exit record; return whether the file is one. An incomplete or corrupt file is not: a later pass
        reads it again, and other sources decide meanwhile."""
        try:
            word = ExitReport(allocation_id, json.loads(record))
            single(self._master.exits.take_exits([word]))
        except (ValueError, RecursionError, ServiceError) as error:
            log.info("an exit record of %s cannot be read: %.200s", allocation_id, error)
            return False
        return True
