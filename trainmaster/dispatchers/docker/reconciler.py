"""Reconciles jobs with agents: places jobs, follows their state, and computes the orders of each agent.

Decisions are on disk before they take effect: a job's placement before its agent gets the order, its end before the
agent may remove its files. State in memory only (when an agent last reported, and what) comes again with its reports.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainmaster.agent_protocol.messages import AgentReport, ContainerReport, ContainerState, Delivery, Orders
from trainmaster.dispatchers.base import Rejected, Transient
from trainmaster.dispatchers.docker import endings
from trainmaster.dispatchers.docker.fleet import Fleet, FleetAgent
from trainmaster.dispatchers.docker.job_record import (
    EndKind,
    JobRecord,
    JobRequest,
    NodePart,
    NodePartEnd,
    Records,
    StopKind,
    StopRequest,
)
from trainmaster.dispatchers.docker.options import DockerOptions
from trainmaster.dispatchers.docker.orders import order
from trainmaster.dispatchers.docker.scheduler import AgentNode, Gang, PreemptGang, Scheduler, StartGang

log = logging.getLogger(__name__)

TICK = 1.0  # seconds between two checks of deadlines
HEARTBEAT = 15.0  # seconds between two reports of an agent when nothing happens
KEEP_ADOPTED = 3600.0  # seconds for which the end of an adopted job is kept


class Reconciler:
    """State of one cluster. Thread-safe."""

    def __init__(self, root: Path, prefix: str, options: DockerOptions) -> None:
        self._prefix, self._options = prefix, options
        self._records = Records(root)
        self.fleet = Fleet(root)
        self.lock = threading.RLock()
        self.jobs: dict[str, JobRecord] = {}
        self._pools = {pool.pool_name: Scheduler(options.policy_of(pool)) for pool in options.pools}
        self._last_order = 0
        self._aux = {pool.pool_name: pool.max_aux_containers_per_agent for pool in options.pools}

    def load(self) -> None:
        """Load jobs and agents that an earlier master stored."""
        with self.lock:
            now = time.time()
            self.fleet.load(now)
            self._pools = {pool.pool_name: Scheduler(self._options.policy_of(pool)) for pool in self._options.pools}
            self.jobs = {record.token: record for record in self._records.load()}
            for record in sorted(self.jobs.values(), key=lambda record: record.order):
                self._last_order = record.order
                if record.ended is None:
                    self._index(record)
            for agent in self.fleet.agents.values():
                self._offer(agent)

    def _index(self, record: JobRecord) -> None:
        scheduler = self._pools.get(record.wanted.pool)
        live = {}
        for rank in record.ranks:
            if rank.end is None:
                live[rank.agent_id] = len(rank.slot_ids)
                if (agent := self.fleet.agents.get(rank.agent_id)) is not None:
                    agent.here.add(record.token)
                    agent.used.update(dict.fromkeys(rank.slot_ids, record.token))
        if scheduler is not None:
            if record.placed:
                scheduler.restore(_job(record), live, leaving=bool(record.stops))
            else:
                scheduler.submit(_job(record))

    # -- the master's side -----------------------------------------------------------------------------------

    def submit(self, token: str, wanted: JobRequest) -> JobRecord:
        """Create the job's record; return the existing one if there is one. Raises Transient."""
        with self.lock:
            known = self.jobs.get(token)
            if known is not None:
                return known
            order = self._last_order = max(time.time_ns(), self._last_order + 1)
            siblings = [
                other.position
                for other in self.jobs.values()
                if wanted.group and other.wanted.group == wanted.group and other.ended is None
            ]
            record = JobRecord(
                token=token,
                job_id=secrets.token_hex(6),
                submitted_at=time.time(),
                order=order,
                position=min(siblings, default=order / 1e9),
                wanted=wanted,
            )
            self._save(record)
            self._pools[wanted.pool].submit(_job(record))
            self.schedule()
            return self.jobs[token]

    def cancel(self, token: str) -> None:
        """Cancel a job. An unknown or ended job is not an error."""
        with self.lock:
            record = self.jobs.get(token)
            if record is None or record.ended is not None:
                return
            self._stop(record, StopRequest(kind=StopKind.CANCEL, at=time.time()))
            self.schedule()

    def signal(self, token: str, delivery: Delivery) -> None:
        """Deliver a signal to a running job; others are ignored."""
        with self.lock:
            record = self.jobs.get(token)
            if record is None or record.ended is not None or not record.placed or delivery in record.signals:
                return
            self._save(record.model_copy(update={"signals": (*record.signals, delivery)}))
            self._wake(record)

    def forget(self, token: str) -> bool:
        """Drop a job whose folder is about to be removed. Returns False, and does nothing, while it lives."""
        with self.lock:
            record = self.jobs.get(token)
            if record is not None and record.ended is None:
                return False
            if record is not None:
                del self.jobs[token]
                self._wake(record)
            return True

    # -- the agents' side ------------------------------------------------------------------------------------

    def sync(self, agent_id: str, report: AgentReport) -> Orders:
        """Process an agent's report and return its orders. Raises Displaced, Rejected."""
        pool = self._options.pool(report.pool)
        if pool is None:
            names = ", ".join(each.pool_name for each in self._options.pools)
            raise Rejected(f"There is no resource pool {report.pool!r} for agents; there are: {names}.")
        with self.lock:
            now = time.time()
            before = self.fleet.agents.get(agent_id)
            if before is not None and before.settings.pool != pool.pool_name:
                if before.here:
                    raise Rejected(f"Agent {agent_id} still runs jobs of pool {before.settings.pool}.")
                self._take_out(before)
            agent = self.fleet.greet(agent_id, report, pool.pool_name, now, timeout=self._options.agent_timeout)
            if not report.problem:
                agent.containers = {one.token: one for one in report.containers if one.token.startswith(self._prefix)}
                for container in agent.containers.values():
                    self._take(agent, container, now)
            self._offer(agent)
            self.schedule()
            return self._orders(agent, now)

    def orders(self, agent_id: str) -> Orders:
        """Return the agent's current orders. Raises UnknownAgent."""
        with self.lock:
            return self._orders(self.fleet.get(agent_id), time.time())

    def _take(self, agent: FleetAgent, report: ContainerReport, now: float) -> None:
        record = self.jobs.get(report.token)
        if record is None:
            if report.state is ContainerState.RUNNING:
                self._adopt(agent, report, now)
            return
        if record.ended is not None or record.job_id != report.job_id:
            return
        if record.adopted and report.node_rank < len(record.ranks) and not record.ranks[report.node_rank].agent_id:
            record = record.with_part(report.node_rank, NodePart(agent_id=agent.id, slot_ids=report.slot_ids))
            self._save(record)
            agent.here.add(record.token)
        number = _rank_on(record, agent.id)
        if number is None:
            return
        rank = record.ranks[number]
        if rank.end is not None:
            return
        if rank.started_at is None and report.state in (ContainerState.RUNNING, ContainerState.EXITED):
            rank = rank.model_copy(update={"started_at": report.started_at or now})
            record = record.with_part(number, rank)
            self._save(record)
        kind = _ENDS.get(report.state)
        if kind is not None and report.handed_in:
            end = NodePartEnd(
                kind=kind,
                at=report.finished_at or now,
                exit_code=report.exit_code,
                oom=report.oom,
                message=report.message,
                blame=report.blame,
            )
            self._end_rank(record, number, end, now)

    def _adopt(self, agent: FleetAgent, report: ContainerReport, now: float) -> None:
        """Record a container that only its agent knows, because the master's folder was lost. The controller decides
        whether its job should run."""
        log.warning("agent %s runs %s, which is not on record; it is adopted", agent.id, report.token)
        if report.node_rank >= report.num_nodes:
            return
        ranks = [NodePart(agent_id="")] * report.num_nodes  # nothing is known of the others yet
        ranks[report.node_rank] = NodePart(
            agent_id=agent.id, slot_ids=report.slot_ids, started_at=report.started_at or now
        )
        record = JobRecord(
            token=report.token,
            job_id=report.job_id,
            submitted_at=report.started_at or now,
            order=time.time_ns(),
            position=now,
            wanted=JobRequest(pool=agent.settings.pool, slots=len(report.slot_ids) * report.num_nodes),
            ranks=tuple(ranks),
            adopted=True,
        )
        self._save(record)
        self._index(record)

    def _end_rank(self, record: JobRecord, number: int, end: NodePartEnd, now: float) -> None:
        rank = record.ranks[number]
        record = record.with_part(number, rank.model_copy(update={"end": end}))
        if end.bad and len(record.ranks) > 1:
            record = record.with_stop(
                StopRequest(kind=StopKind.BROKEN, at=now, why="Another node of the job has failed.")
            )
        record = record.model_copy(update={"ended": endings.conclude(record, now)})
        self._save(record)
        if (agent := self.fleet.agents.get(rank.agent_id)) is not None:
            agent.here.discard(record.token)
            for slot in rank.slot_ids:
                agent.used.pop(slot, None)
        if (scheduler := self._pools.get(record.wanted.pool)) is not None:
            scheduler.release(record.token, rank.agent_id)
            if agent is not None:
                self._offer(agent)
            if record.stops:
                scheduler.leave(record.token)
        self._wake(record)

    def _orders(self, agent: FleetAgent, now: float) -> Orders:
        containers = [
            order(self.jobs[token], number, self._options, agent.slot_type, now)
            for token in sorted(agent.here)
            if (number := _rank_on(self.jobs[token], agent.id)) is not None
        ]
        forget = [
            token
            for token, report in sorted(agent.containers.items())
            if token not in agent.here and self._is_over(token, report)
        ]
        body = json.dumps([[container.model_dump(mode="json") for container in containers], forget], sort_keys=True)
        revision = hashlib.sha256(body.encode()).hexdigest()[:16]
        return Orders(
            revision=revision,
            heartbeat=min(HEARTBEAT, self._options.agent_timeout / 4),
            containers=tuple(containers),
            forget=tuple(forget),
        )

    def _is_over(self, token: str, report: ContainerReport) -> bool:
        """Whether a container that is not in the agent's orders may be removed.

        One that does not run may be, if its job is forgotten; one that runs, if its job is known to run elsewhere or to
        have ended. An unknown container that runs is adopted, never removed. One that was only created is not adopted:
        its job may have been cancelled before its start, and forgotten since."""
        record = self.jobs.get(token)
        if record is None:
            return report.state is not ContainerState.RUNNING
        if record.job_id != report.job_id:
            return True
        runs = report.state in (ContainerState.PREPARING, ContainerState.RUNNING)
        return runs and (record.ended is not None or record.placed)

    # -- time ------------------------------------------------------------------------------------------------

    def reconcile(self) -> float:
        """Act on passed deadlines: lost agents, ended graces. Returns the seconds until the next deadline."""
        with self.lock:
            now = time.time()
            for agent in list(self.fleet.agents.values()):
                self._look_after(agent, now)
            soonest = now + TICK
            for record in [record for record in self.jobs.values() if record.ended is None or record.adopted]:
                if record.adopted:
                    self._look_after_adopted(record, now)
                if record.ended is not None:
                    continue
                due = endings.next_delivery(record, now, self._options.cancel_grace, self._options.preemption_grace)
                soonest = min(soonest, due or soonest)
                if record.stops:
                    self._wake(record)
            self.schedule()
            return max(soonest - now, 0.05)

    def _look_after(self, agent: FleetAgent, now: float) -> None:
        silence = now - agent.last_seen
        if silence < self._options.agent_timeout:
            return
        if not agent.lost:
            agent.lost = True
            log.warning("agent %s has been silent for %.0f s", agent.id, silence)
            self._offer(agent)
        if silence < self._options.agent_timeout + self._options.agent_reattach:
            return
        for token in sorted(agent.here):
            record = self.jobs[token]
            number = _rank_on(record, agent.id)
            if number is not None:
                why = f"it sent no report for {silence:.0f} s"
                self._end_rank(record, number, NodePartEnd(kind=EndKind.LOST, at=now, message=why), now)
        if not agent.settings.marked:  # an administrator's settings for it must be kept
            log.info("agent %s is not expected back", agent.id)
            self._take_out(agent)
            del self.fleet.agents[agent.id]
            self.fleet.save()

    def _look_after_adopted(self, record: JobRecord, now: float) -> None:
        if record.ended is not None:
            if now - record.ended.at > KEEP_ADOPTED:
                del self.jobs[record.token]
            return
        patience = self._options.agent_timeout + self._options.agent_reattach
        for number, rank in enumerate(record.ranks):
            if not rank.agent_id and rank.end is None and now - record.order / 1e9 > patience:
                why = "no agent has reported it"
                self._end_rank(record, number, NodePartEnd(kind=EndKind.LOST, at=now, message=why), now)
                return

    # -- scheduling ------------------------------------------------------------------------------------------

    def schedule(self) -> None:
        """Carry out the schedulers' decisions. The lock is held."""
        for pool, scheduler in self._pools.items():
            decisions = scheduler.decide()
            for start in decisions.starts:
                self._start(start)
            for preempt in decisions.preemptions:
                self._preempt(pool, preempt)

    def _start(self, start: StartGang) -> None:
        record = self.jobs[start.job_id]
        ranks = [
            NodePart(agent_id=name, slot_ids=tuple(self.fleet.agents[name].usable[:slots]))
            for name, slots in sorted(start.placement.items())
        ]
        placed = record.model_copy(update={"ranks": tuple(ranks)})
        try:
            self._save(placed)
        except Transient as error:
            log.error("%s cannot be started and stays in the queue: %s", record.token, error)
            scheduler = self._pools[record.wanted.pool]
            scheduler.release(record.token)
            scheduler.submit(_job(record))
            return
        for rank in ranks:
            agent = self.fleet.agents[rank.agent_id]
            agent.here.add(record.token)
            agent.used.update(dict.fromkeys(rank.slot_ids, record.token))
        log.info("%s starts on %s", record.token, ", ".join(rank.agent_id for rank in ranks))
        self._wake(placed)

    def _preempt(self, pool: str, preempt: PreemptGang) -> None:
        record, other = self.jobs[preempt.job_id], self.jobs[preempt.beneficiary]
        why = (
            f"The job had to leave pool {pool} for one that comes before it (priority {other.wanted.priority}, its own "
            f"is {record.wanted.priority})."
        )
        log.info("%s is asked to leave for %s", preempt.job_id, preempt.beneficiary)
        self._stop(record, StopRequest(kind=StopKind.PREEMPT, at=time.time(), why=why))

    def _stop(self, record: JobRecord, stop: StopRequest) -> None:
        """Ask a job to leave; one that has not started ends at once."""
        record = record.with_stop(stop)
        scheduler = self._pools.get(record.wanted.pool)
        if not record.placed:
            record = record.model_copy(update={"ended": endings.conclude(record, stop.at)})
            self._note(record)
            if scheduler is not None:
                scheduler.release(record.token)
            return
        self._note(record)
        if scheduler is not None:
            scheduler.leave(record.token)
        self._wake(record)

    def evict(self, tokens: Iterable[str], why: str) -> None:
        """Ask jobs to leave their agents now. The lock is held."""
        for token in sorted(tokens):
            record = self.jobs.get(token)
            if record is not None and record.ended is None:
                self._stop(record, StopRequest(kind=StopKind.EVICT, at=time.time(), why=why))

    def _offer(self, agent: FleetAgent) -> None:
        """Give the scheduler the agent's current slots."""
        scheduler = self._pools.get(agent.settings.pool)
        if scheduler is not None:
            aux = self._aux[agent.settings.pool]
            scheduler.set_node(AgentNode(agent.id, len(agent.usable) + len(agent.used), aux, agent.open))

    def _take_out(self, agent: FleetAgent) -> None:
        if (scheduler := self._pools.get(agent.settings.pool)) is not None:
            scheduler.remove_node(agent.id)

    def offer(self, agent: FleetAgent) -> None:
        """Update the scheduler after an agent's slots have changed. The lock is held."""
        self._offer(agent)
        self.schedule()
        agent.wake()

    # -- queue -----------------------------------------------------------------------------------------------

    def scheduler(self, pool: str) -> Scheduler | None:
        return self._pools.get(pool)

    def change(self, tokens: Sequence[str], alter: Callable[[JobRecord], JobRecord]) -> None:
        """Change the records of queued jobs, and so their order. The lock is held."""
        for token in tokens:
            record = alter(self.jobs[token])
            self._save(record)
            if (scheduler := self._pools.get(record.wanted.pool)) is not None:
                scheduler.change(
                    token,
                    priority=record.wanted.priority,
                    weight=record.wanted.weight,
                    position=record.position,
                )
        self.schedule()

    # -- storage ---------------------------------------------------------------------------------------------

    def _save(self, record: JobRecord) -> None:
        self._records.save(record)
        self.jobs[record.token] = record

    def _note(self, record: JobRecord) -> None:
        """Save a record whose loss is harmless, because the decision would be made again."""
        try:
            self._save(record)
        except Transient as error:
            log.warning("%s: kept in memory only: %s", record.token, error)
            self.jobs[record.token] = record

    def _wake(self, record: JobRecord) -> None:
        for rank in record.ranks:
            if (agent := self.fleet.agents.get(rank.agent_id)) is not None:
                agent.wake()


_ENDS = {
    ContainerState.EXITED: EndKind.EXITED,
    ContainerState.FAILED: EndKind.FAILED,
    ContainerState.GONE: EndKind.GONE,
}


def _rank_on(record: JobRecord, agent_id: str) -> int | None:
    return next((number for number, rank in enumerate(record.ranks) if rank.agent_id == agent_id), None)


def _job(record: JobRecord) -> Gang:
    wanted = record.wanted
    return Gang(
        id=record.token,
        slots=wanted.slots,
        number=record.order,
        position=record.position,
        priority=wanted.priority,
        group=wanted.group or record.token,
        weight=wanted.weight,
        max_slots=wanted.max_slots,
        preemptible=wanted.preemptible,
        single_node=wanted.single_node,
        slots_per_node=wanted.slots_per_node,
        avoid=frozenset(wanted.avoid),
    )
