"""Builds the views for users and the master: pools, states of jobs in words, the queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainmaster.agent_protocol.messages import ContainerState
from trainmaster.dispatchers.base import JobState, Pool
from trainmaster.dispatchers.contract.agents import PoolPolicy, QueueEntry
from trainmaster.dispatchers.docker.fleet import FleetAgent
from trainmaster.dispatchers.docker.job_record import JobRecord, JobRequest
from trainmaster.dispatchers.docker.options import DockerOptions
from trainmaster.dispatchers.docker.reconciler import Reconciler
from trainmaster.dispatchers.docker.scheduler import Gang, Why, shape_of


@dataclass(frozen=True)
class JobStatus:
    """A job's state, with our word for it and a sentence."""

    state: JobState
    raw: str
    text: str = ""
    never: bool = False


def pools(options: DockerOptions, agents: Iterable[FleetAgent]) -> list[Pool]:
    """Return all pools, with the slots of the present agents."""
    everybody = list(agents)
    pools = []
    for number, pool in enumerate(options.pools):
        members = [agent for agent in everybody if agent.settings.pool == pool.pool_name and not agent.lost]
        types = [kind for agent in members if (kind := agent.slot_type) is not None]
        total = sum(len(agent.usable) + len(agent.used) for agent in members)
        names = Counter(slot.name for agent in members for slot in agent.settings.slots if slot.name)
        pools.append(
            Pool(
                name=pool.pool_name,
                slot_type=types[0] if types else pool.slot_type,
                slots_total=total,
                slots_used=sum(len(agent.used) for agent in members),
                nodes=len(members),
                slots_per_node=max((len(agent.settings.slots) for agent in members), default=0),
                description=pool.description or "Docker hosts",
                accelerator=names.most_common(1)[0][0] if names and types and types[0] != "cpu" else "",
                is_default=number == 0,
                default_priority=options.scheduler_of(pool).default_priority,
            )
        )
    return pools


def never(wanted: JobRequest, agents: Sequence[FleetAgent]) -> list[str]:
    """Return why a job can never run on these agents, even if all are free; empty when it can, or without agents."""
    if not agents or wanted.slots == 0:
        return []
    job = Gang("?", wanted.slots, 0, single_node=wanted.single_node, slots_per_node=wanted.slots_per_node)
    sizes = Counter(len(agent.settings.slots) for agent in agents)
    if shape_of(job, sizes) is not None:
        return []
    total, largest = sum(size * count for size, count in sizes.items()), max(sizes)
    if wanted.slots > total:
        return [f"The job asks for {wanted.slots} slots, and the agents of pool {wanted.pool} have {total} together."]
    if wanted.single_node:
        return [
            f"The job asks for {wanted.slots} slots on one agent, and the largest of pool {wanted.pool} has {largest}."
        ]
    per_node = f", {wanted.slots_per_node} on each," if wanted.slots_per_node else ""
    return [
        f"{wanted.slots} slots{per_node} cannot be spread evenly over the agents of pool {wanted.pool}, of which the "
        f"largest has {largest}; ask for a multiple of {largest}."
    ]


def positions(reconciler: Reconciler) -> dict[str, int]:
    """Return for each waiting job how many come before it in its pool."""
    positions_by_token = {}
    for pool in {record.wanted.pool for record in reconciler.jobs.values()}:
        scheduler = reconciler.scheduler(pool)
        if scheduler is not None:
            positions_by_token.update({token: number for number, token in enumerate(scheduler.waiting())})
    return positions_by_token


def status_of(reconciler: Reconciler, record: JobRecord, ahead: dict[str, int]) -> JobStatus:
    """Return a job's current state."""
    if record.ended is not None:
        return JobStatus(record.ended.state, record.ended.raw, record.ended.text)
    if not record.placed:
        return _waiting(reconciler, record, ahead.get(record.token, 0))
    lost = []
    states = []
    for rank in record.ranks:
        agent = reconciler.fleet.agents.get(rank.agent_id)
        if rank.end is not None:
            states.append(ContainerState.EXITED)
        elif agent is None or agent.lost:
            lost.append(rank.agent_id or "?")
        else:
            report = agent.containers.get(record.token)
            states.append(
                report.state if report is not None and report.job_id == record.job_id else ContainerState.PREPARING
            )
    if lost:
        return JobStatus(JobState.UNKNOWN, "agent lost", f"No reports arrive from agent {', '.join(lost)}.")
    if any(rank.end is not None for rank in record.ranks) or ContainerState.EXITED in states:
        return JobStatus(JobState.FINISHING, "finishing", "Parts of the job have ended.")
    if all(rank.started_at is not None for rank in record.ranks):
        return JobStatus(JobState.RUNNING, "running")
    nodes = ", ".join(rank.agent_id for rank in record.ranks)
    return JobStatus(JobState.STARTING, "preparing", f"Its files and its image are being fetched on {nodes}.")


def _waiting(reconciler: Reconciler, record: JobRecord, ahead: int) -> JobStatus:
    wanted = record.wanted
    scheduler = reconciler.scheduler(wanted.pool)
    agents = [agent for agent in reconciler.fleet.agents.values() if agent.settings.pool == wanted.pool]
    if scheduler is None:
        return JobStatus(JobState.HELD, "no pool", f"The pool {wanted.pool} is not configured any more.")
    if not agents:
        return JobStatus(JobState.QUEUED, "queued", f"No agent has joined pool {wanted.pool} yet.")
    if reasons := never(wanted, agents):
        return JobStatus(JobState.QUEUED, "impossible", reasons[0], never=True)
    before = f" {ahead} job{'s' if ahead != 1 else ''} come first." if ahead else ""
    match scheduler.why(record.token):
        case Why.CAPPED:
            text = f"Its experiment holds as many slots as it may (max_slots: {wanted.max_slots})."
        case Why.TOO_LARGE:
            text = f"Too many agents of pool {wanted.pool} are disabled or lost for a job of {wanted.slots} slots."
            if wanted.avoid:
                text += f" It is kept away from {', '.join(wanted.avoid)}."
        case Why.PROMISED:
            text = "Jobs of lower priority have been asked to leave for it."
        case Why.PLACES:
            text = f"The agents of pool {wanted.pool} hold as many jobs without slots as they may."
        case Why.FIRST:
            text = f"It is the next one: agents are being kept free for its {wanted.slots} slots."
        case _:
            text = f"Waits for {wanted.slots} free slots in pool {wanted.pool}.{before}"
    return JobStatus(JobState.QUEUED, "queued", text)


def policies(options: DockerOptions, agents: Iterable[FleetAgent]) -> list[PoolPolicy]:
    """Return the scheduling policy of each pool."""
    everybody = list(agents)
    policies = []
    for pool in options.pools:
        scheduler = options.scheduler_of(pool)
        running = sum(
            len(agent.here - set(agent.used.values())) for agent in everybody if agent.settings.pool == pool.pool_name
        )
        policies.append(
            PoolPolicy(
                pool=pool.pool_name,
                scheduler=scheduler.type,
                fitting=scheduler.fitting_policy,
                preemption=scheduler.preemption,
                default_priority=scheduler.default_priority,
                aux_capacity_per_agent=pool.max_aux_containers_per_agent,
                aux_running=running,
            )
        )
    return policies


def queue(reconciler: Reconciler, pool: str) -> list[QueueEntry]:
    """Return a pool's jobs: running ones in the order of their start, then waiting ones in the order of service."""
    scheduler = reconciler.scheduler(pool)
    running = [r for r in reconciler.jobs.values() if r.wanted.pool == pool and r.placed and r.ended is None]
    waiting = [reconciler.jobs[token] for token in scheduler.waiting()] if scheduler is not None else []
    return [
        QueueEntry(
            token=record.token,
            group=record.wanted.group,
            pool=pool,
            priority=record.wanted.priority,
            weight=record.wanted.weight,
            running=record.placed,
        )
        for record in (*sorted(running, key=lambda record: record.order), *waiting)
    ]


def members(reconciler: Reconciler, group: str) -> list[JobRecord]:
    """Return the live jobs of a group, the oldest first."""
    live = [r for r in reconciler.jobs.values() if r.ended is None and r.wanted.group == group and group]
    return sorted(live, key=lambda record: record.order)


def position_beside(reconciler: Reconciler, group: str, anchor: JobRecord, *, ahead: bool) -> float:
    """Return a queue position just before or after that of `anchor`, among the other groups of its pool and
    priority."""
    others = sorted(
        {
            record.position
            for record in reconciler.jobs.values()
            if record.ended is None
            and record.wanted.pool == anchor.wanted.pool
            and record.wanted.priority == anchor.wanted.priority
            and record.wanted.group != group
        }
    )
    here = others.index(anchor.position)
    if ahead:
        return (others[here - 1] + anchor.position) / 2 if here else anchor.position - 1.0
    return (anchor.position + others[here + 1]) / 2 if here + 1 < len(others) else anchor.position + 1.0
