"""Scheduler of one pool: from agents and jobs, decides which jobs start and which are preempted."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from trainmaster.dispatchers.docker.scheduler.model import (
    AgentNode,
    Decisions,
    Gang,
    Placement,
    PreemptGang,
    SchedulingPolicy,
    Sharing,
    StartGang,
    Why,
)
from trainmaster.dispatchers.docker.scheduler.node_index import NodeIndex, NodeState
from trainmaster.dispatchers.docker.scheduler.preemption import Victim, choose
from trainmaster.dispatchers.docker.scheduler.shape import GangShape, shape_of

Key = tuple[object, ...]
Turn = tuple[float, float, int]


@dataclass
class _Line:
    """Waiting jobs that have the same requirements, in their order; if one cannot start, none behind it can."""

    jobs: list[tuple[float, int, str]] = field(default_factory=list)
    why: Why = Why.NEW


@dataclass
class _Group:
    """Slots of a group's running jobs, except leaving ones, plus slots promised to its waiting jobs."""

    members: int = 0
    held: int = 0
    leaving: int = 0
    promised: int = 0
    weight: float = 1.0

    @property
    def share(self) -> float:
        return (self.held - self.leaving + self.promised) / self.weight


class Scheduler:
    """Scheduling state of one pool. Incremental: callers report changes only. Deterministic: same calls, same
    decisions."""

    def __init__(self, policy: SchedulingPolicy = SchedulingPolicy()) -> None:  # noqa: B008 - frozen
        self._policy = policy
        self._yard = NodeIndex(policy.fitting)
        self._jobs: dict[str, Gang] = {}
        self._running: dict[str, dict[str, int]] = {}
        self._since: dict[str, int] = {}  # running job -> how many had started before it
        self._starts = 0
        self._settled = 0  # how many had started before this round
        self._leaving: set[str] = set()
        self._lines: dict[Key, _Line] = {}
        self._promised: dict[str, Placement] = {}  # waiting job -> agents on which others were preempted for it
        self._held: tuple[str, Placement] = ("", {})  # the first waiting job, and the slots reserved for it
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._shapes: dict[Key, GangShape | None] = {}
        self._shapes_version = -1
        self._changed = True

    # -- changes ---------------------------------------------------------------------------------------------

    def set_policy(self, policy: SchedulingPolicy) -> None:
        """Change the policy; running jobs are not affected."""
        if policy != self._policy:
            waiting = [job for job in self._jobs.values() if job.id not in self._running]
            for job in waiting:
                if job.id in self._promised:
                    self._break_promise(job)
            self._policy = policy
            node_index, self._yard = self._yard, NodeIndex(policy.fitting)
            for spot in node_index.spots.values():
                self._yard.set_node(spot.node)
            for job_id, placement in self._running.items():
                self._yard.add(job_id, placement)
                if job_id in self._leaving:
                    self._yard.leave(job_id, placement)
                else:
                    self._count_expendable(self._jobs[job_id], 1)
            self._lines.clear()
            for job in waiting:
                self._enqueue(job)
            self._shapes_version, self._changed = -1, True

    def set_node(self, node: AgentNode) -> None:
        """Add or update an agent."""
        is_new = node.id not in self._yard.spots
        self._yard.set_node(node)
        if is_new:
            for job_id, placement in self._running.items():
                if node.id in placement:
                    part = {node.id: placement[node.id]}
                    self._yard.add(job_id, part)
                    if job_id in self._leaving:
                        self._yard.leave(job_id, part)
                    elif self._jobs[job_id].preemptible:
                        self._yard.expend(part, self._jobs[job_id].priority, 1)
        self._changed = True

    def remove_node(self, name: str) -> None:
        """Remove an agent. Jobs on it keep running until they are released."""
        self._yard.remove_node(name)
        self._changed = True

    def submit(self, job: Gang) -> None:
        """Add a waiting job. Raises ValueError for one that exists."""
        if job.id in self._jobs:
            raise ValueError(f"job {job.id} is known")
        self._join(job)
        self._enqueue(job)
        self._changed = True

    def restore(self, job: Gang, placement: Placement, *, leaving: bool = False) -> None:
        """Add a job that runs already. Raises ValueError for one that exists."""
        if job.id in self._jobs:
            raise ValueError(f"job {job.id} is known")
        self._join(job)
        self._run(job, placement)
        if leaving:
            self.leave(job.id)
        self._changed = True

    def leave(self, job_id: str) -> None:
        """Note that a running job has been asked to leave, for any reason."""
        if job_id in self._running and job_id not in self._leaving:
            job = self._jobs[job_id]
            self._count_expendable(job, -1)
            self._leaving.add(job_id)
            self._yard.leave(job_id, self._running[job_id])
            self._groups[job.group].leaving += sum(self._running[job_id].values())
            self._changed = True

    def release(self, job_id: str, name: str | None = None) -> None:
        """Remove a job, or its part on one agent. An unknown job is not an error."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        self._changed = True
        placement = self._running.get(job_id)
        if placement is None:
            self._withdraw(job)
            self._part(job)
            return
        if job_id not in self._leaving:
            self._count_expendable(job, -1)
        for each in [name] if name is not None else list(placement):
            if each in placement:
                slots = placement.pop(each)
                self._yard.drop(job_id, each, was_leaving=job_id in self._leaving)
                group = self._groups[job.group]
                group.held -= slots
                group.leaving -= slots if job_id in self._leaving else 0
        if placement:
            if job_id not in self._leaving:
                self._count_expendable(job, 1)
            return
        del self._running[job_id], self._since[job_id]
        self._leaving.discard(job_id)
        self._part(job)

    def change(
        self,
        job_id: str,
        *,
        priority: int | None = None,
        weight: float | None = None,
        position: float | None = None,
    ) -> None:
        """Change what determines a job's place in the queue. An unknown job is not an error."""
        job = self._jobs.get(job_id)
        if job is None:
            return
        changed = replace(
            job,
            priority=job.priority if priority is None else priority,
            weight=job.weight if weight is None else weight,
            position=job.position if position is None else position,
        )
        runs = job_id in self._running
        if runs and job_id not in self._leaving:
            self._count_expendable(job, -1)
        elif not runs:
            self._dequeue(job)
        self._jobs[job_id] = changed
        self._groups[changed.group].weight = changed.weight
        if runs and job_id not in self._leaving:
            self._count_expendable(changed, 1)
        elif not runs:
            self._enqueue(changed)
        self._changed = True

    # -- answers ---------------------------------------------------------------------------------------------

    def decide(self) -> Decisions:
        """Return what to start and preempt now; the state changes as if it were done."""
        if not self._changed:
            return Decisions()
        self._changed = False
        self._renew_shapes()
        self._settled = self._starts
        round_ = _Round()
        turns = [(*self._turn(key, 0), 0, i, key) for i, key in enumerate(self._lines)]
        heapq.heapify(turns)
        while turns:
            *turn, at, i, key = heapq.heappop(turns)
            line = self._lines[key]
            if at >= len(line.jobs):
                continue
            now = self._turn(key, at)
            if now > tuple(turn):  # its group has got slots in this round
                heapq.heappush(turns, (*now, at, i, key))
                continue
            job = self._jobs[line.jobs[at][2]]
            line.why, goes_on, started = self._consider(job, round_)
            if goes_on:
                at += not started
                if at < len(line.jobs):
                    heapq.heappush(turns, (*self._turn(key, at), at, i, key))
            elif not line.jobs:
                del self._lines[key]
        self._lines = {key: line for key, line in self._lines.items() if line.jobs}
        self._yard.let_go()
        return Decisions(tuple(round_.starts), tuple(round_.preemptions))

    def why(self, job_id: str) -> Why:
        """Return why a job has not started, as of the last `decide`. Raises KeyError for one that does not wait."""
        job = self._jobs[job_id]
        if job_id in self._promised:
            return Why.PROMISED
        line = self._lines[self._key(job)]
        first = line.jobs[0][2] == job_id
        return Why.SLOTS if line.why is Why.FIRST and not first else line.why

    def waiting(self) -> Sequence[str]:
        """Return all waiting jobs, in the order in which they are considered."""
        turns = [
            (self._turn(key, at), line.jobs[at][2]) for key, line in self._lines.items() for at in range(len(line.jobs))
        ]
        return [job_id for _, job_id in sorted(turns)]

    def placement(self, job_id: str) -> Placement:
        """Return where a job runs; empty when it does not."""
        return dict(self._running.get(job_id, {}))

    # -- one job --------------------------------------------------------------------------------------------

    def _consider(self, job: Gang, round_: _Round) -> tuple[Why, bool, bool]:
        """Try to start a job. Returns why it waits, whether to consider the next one, and whether it started."""
        if job.slots == 0:
            place = self._yard.place(job.avoid)
            if place is None:
                return Why.PLACES, False, False
            self._begin(job, place, round_)
            return Why.NEW, True, True
        shape = self._shape(job)
        if shape is None or self._is_capped(job):
            if job.id in self._promised:
                self._break_promise(job)
            return Why.TOO_LARGE if shape is None else Why.CAPPED, False, False
        placement = self._yard.fit(shape.nodes, shape.slots, job.avoid)
        if placement is not None:
            self._begin(job, placement, round_)
            return Why.NEW, True, True
        if self._policy.preemption and self._may_ask(round_) and self._make_room(job, shape, round_):
            return Why.PROMISED, True, False
        if not round_.holding:
            round_.holding = True
            self._hold(job, shape)
            return Why.FIRST, False, False
        return Why.SLOTS, False, False

    def _hold(self, job: Gang, shape: GangShape) -> None:
        """Reserve agents for the first waiting job. They stay the same until it starts: agents that were released in
        exchange for others would fill up again."""
        holder, held = self._held
        spots = [self._yard.spots.get(name) for name in held]
        still = all(spot is not None and spot.node.open and spot.node.slots >= shape.slots for spot in spots)
        if holder != job.id or not still:
            held = self._yard.closest(shape.nodes, shape.slots, job.avoid)
            self._held = (job.id, held)
        self._yard.keep(held)

    def _is_capped(self, job: Gang) -> bool:
        if job.max_slots is None:
            return False
        group = self._groups[job.group]
        own = job.slots if job.id in self._promised else 0
        return group.held + group.promised - own + job.slots > job.max_slots

    def _begin(self, job: Gang, placement: Placement, round_: _Round) -> None:
        self._withdraw(job)
        self._run(job, placement)
        round_.starts.append(StartGang(job.id, dict(placement)))

    def _make_room(self, job: Gang, shape: GangShape, round_: _Round) -> bool:
        """Reserve slots that become free for this job, or preempt others for it. Returns False when neither helps."""
        promised = self._promised.get(job.id)
        if promised is not None:
            spots = [self._yard.spots.get(name) for name in promised]
            if all(spot is not None and spot.node.open and spot.soon >= shape.slots for spot in spots):
                self._yard.keep(promised)
                return True
            self._break_promise(job)
        placement = self._yard.fit_soon(shape.nodes, shape.slots, job.avoid)
        if placement is None:
            chosen = choose(shape, self._askable(job, shape), lambda spot: self._victims(job, spot), self._fair_to(job))
            if chosen is None:
                return False
            for victim in chosen.victims:
                self.leave(victim.job_id)
                round_.preemptions.append(PreemptGang(victim.job_id, job.id))
            placement = chosen.placement
        self._promised[job.id] = placement
        self._groups[job.group].promised += job.slots
        self._yard.keep(placement)
        return True

    def _may_ask(self, round_: _Round) -> bool:
        """Whether preemption is allowed: under fair share only for the group that is worst off."""
        return self._policy.sharing is Sharing.PRIORITY or not round_.holding

    def _askable(self, job: Gang, shape: GangShape) -> list[NodeState]:
        """Return agents on which preemption may help."""
        by_priority = self._policy.sharing is Sharing.PRIORITY
        spots = self._yard.within_reach(job.priority, shape.slots) if by_priority else self._yard.spots.values()
        return [spot for spot in spots if spot.node.id not in job.avoid]

    def _victims(self, job: Gang, spot: NodeState) -> list[Victim]:
        victims = []
        for job_id in spot.jobs:
            other = self._jobs[job_id]
            if not other.preemptible or other.slots == 0 or job_id in self._leaving:
                continue
            if self._since[job_id] >= self._settled:
                continue  # it was started in this round
            if self._policy.sharing is Sharing.PRIORITY:
                if other.priority <= job.priority:
                    continue
                rank = (float(other.priority), float(self._since[job_id]))
            else:
                if other.group == job.group:
                    continue
                rank = (self._groups[other.group].share, float(self._since[job_id]))
            placement = self._running[job_id]
            victims.append(Victim(job_id, other.group, sum(placement.values()), placement, rank))
        return victims

    def _fair_to(self, job: Gang) -> _Fairness:
        return _Fairness(self._policy.sharing is Sharing.FAIR_SHARE, job, self._groups)

    # -- keeping count ---------------------------------------------------------------------------------------

    def _join(self, job: Gang) -> None:
        self._jobs[job.id] = job
        group = self._groups[job.group]
        group.weight = job.weight
        group.members += 1

    def _part(self, job: Gang) -> None:
        del self._jobs[job.id]
        self._groups[job.group].members -= 1
        if not self._groups[job.group].members:
            del self._groups[job.group]

    def _run(self, job: Gang, placement: Placement) -> None:
        self._running[job.id] = dict(placement)
        self._since[job.id] = self._starts
        self._starts += 1
        self._yard.add(job.id, placement)
        self._groups[job.group].held += sum(placement.values())
        self._count_expendable(job, 1)

    def _count_expendable(self, job: Gang, sign: int) -> None:
        if job.preemptible:
            self._yard.expend(self._running[job.id], job.priority, sign)

    def _withdraw(self, job: Gang) -> None:
        self._dequeue(job)
        if job.id in self._promised:
            self._break_promise(job)

    def _break_promise(self, job: Gang) -> None:
        del self._promised[job.id]
        self._groups[job.group].promised -= job.slots

    def _enqueue(self, job: Gang) -> None:
        insort(self._lines.setdefault(self._key(job), _Line()).jobs, (job.position, job.number, job.id))

    def _dequeue(self, job: Gang) -> None:
        jobs = self._lines[self._key(job)].jobs
        del jobs[bisect_left(jobs, (job.position, job.number, job.id))]

    def _key(self, job: Gang) -> Key:
        fair = self._policy.sharing is Sharing.FAIR_SHARE
        apart = job.group if fair or job.max_slots is not None else None
        return (
            job.slots,
            job.slots_per_node,
            job.single_node,
            0 if fair else job.priority,
            apart,
            job.max_slots,
            job.avoid,
        )

    def _turn(self, key: Key, at: int) -> Turn:
        jobs = self._lines[key].jobs
        if at >= len(jobs):
            return (float("inf"), 0.0, 0)
        position, number, job_id = jobs[at]
        job = self._jobs[job_id]
        first = self._groups[job.group].share if self._policy.sharing is Sharing.FAIR_SHARE else float(job.priority)
        return (first, position, number)

    def _shape(self, job: Gang) -> GangShape | None:
        key = (job.slots, job.slots_per_node, job.single_node, job.avoid)
        if key not in self._shapes:
            self._shapes[key] = shape_of(job, self._yard.capacities_without(job.avoid))
        return self._shapes[key]

    def _renew_shapes(self) -> None:
        if self._shapes_version != self._yard.version:
            self._shapes.clear()
            self._shapes_version = self._yard.version


@dataclass
class _Round:
    starts: list[StartGang] = field(default_factory=list)
    preemptions: list[PreemptGang] = field(default_factory=list)
    holding: bool = False  # agents are kept free for the first job that waits


@dataclass(frozen=True)
class _Fairness:
    """Whether jobs together may be asked to leave for `job`: always by priority, which was checked for each job;
    under fair share if every group that loses slots is afterwards not worse off than the one that gains."""

    matters: bool
    job: Gang
    groups: dict[str, _Group]

    def __call__(self, victims: Iterable[Victim]) -> bool:
        if not self.matters:
            return True
        lost: dict[str, int] = defaultdict(int)
        for victim in victims:
            lost[victim.group] += victim.slots
        group = self.groups[self.job.group]
        after = group.share + self.job.slots / group.weight
        return all(self.groups[name].share - slots / self.groups[name].weight >= after for name, slots in lost.items())
