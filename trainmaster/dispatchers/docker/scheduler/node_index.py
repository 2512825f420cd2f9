"""Index of agents by free capacity, for the scheduler's placement decisions."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping

from trainmaster.dispatchers.docker.scheduler.model import AgentNode, Fitting, Placement


class NodeState:
    """One agent. `leaving`: slots of jobs that were asked to leave. `kept`: slots that this round reserves for waiting
    jobs. `expendable`: priority -> slots of jobs that may be asked to leave."""

    __slots__ = ("aux_used", "expendable", "jobs", "kept", "leaving", "node", "used")

    def __init__(self, node: AgentNode) -> None:
        self.node = node
        self.jobs: dict[str, int] = {}
        self.used = 0
        self.aux_used = 0
        self.leaving = 0
        self.kept = 0
        self.expendable: Counter[int] = Counter()

    def reach(self, priority: int) -> int:
        """Return the slots that a job of that priority can get if all jobs that it may preempt leave."""
        return self.soon + sum(slots for level, slots in self.expendable.items() if level > priority)

    @property
    def soon(self) -> int:
        """Slots that are free, or will be without further preemption, and are not reserved. Negative if more are
        reserved than will be free."""
        return self.node.slots - self.used + self.leaving - self.kept

    @property
    def room(self) -> int:
        """Slots that a job can have now."""
        return max(0, min(self.node.slots - self.used, self.soon))


class CapacityIndex:
    """Agents sorted by an amount, then by name."""

    def __init__(self) -> None:
        self._by_amount: dict[int, list[str]] = {}
        self._amount: dict[str, int] = {}

    def put(self, name: str, amount: int | None) -> None:
        """Set the amount of `name`; None removes it."""
        before = self._amount.get(name)
        if before == amount:
            return
        if before is not None:
            shelf = self._by_amount[before]
            del shelf[bisect_left(shelf, name)]
            if not shelf:
                del self._by_amount[before]
            del self._amount[name]
        if amount is not None:
            insort(self._by_amount.setdefault(amount, []), name)
            self._amount[name] = amount

    def at_least(self, amount: int, *, largest_first: bool) -> Iterator[str]:
        """Names with that amount or more. The index must not change during the iteration."""
        for key in sorted((key for key in self._by_amount if key >= amount), reverse=largest_first):
            yield from self._by_amount[key]


class NodeIndex:
    """All agents of a pool."""

    def __init__(self, fitting: Fitting) -> None:
        self._spread = fitting is Fitting.WORST
        self.spots: dict[str, NodeState] = {}
        self.capacities: Counter[int] = Counter()  # of open agents
        self.version = 0  # of `capacities`
        self._rooms = CapacityIndex()
        self._places = CapacityIndex()
        self._kept: list[NodeState] = []
        self._leaving: dict[str, NodeState] = {}
        self._reaches: dict[
            int, CapacityIndex
        ] = {}  # priority of jobs that may ask others to leave -> agents by `reach`

    # -- agents ----------------------------------------------------------------------------------------------

    def capacities_without(self, avoid: frozenset[str]) -> Mapping[int, int]:
        """Return the number of open agents of each size, except those in `avoid`."""
        left = self.capacities.copy()
        left.subtract(spot.node.slots for name in avoid if (spot := self.spots.get(name)) and spot.node.open)
        return +left

    def set_node(self, node: AgentNode) -> None:
        spot = self.spots.get(node.id)
        if spot is None:
            spot = self.spots[node.id] = NodeState(node)
        elif spot.node == node:
            return
        else:
            self._count(spot.node, -1)
            spot.node = node
        self._count(node, 1)
        self._file(spot)

    def remove_node(self, name: str) -> None:
        spot = self.spots.pop(name, None)
        if spot is not None:
            self._count(spot.node, -1)
            self._rooms.put(name, None)
            self._places.put(name, None)
            self._leaving.pop(name, None)
            for reach in self._reaches.values():
                reach.put(name, None)

    def _count(self, node: AgentNode, change: int) -> None:
        if node.open:
            self.capacities[node.slots] += change
            if not self.capacities[node.slots]:
                del self.capacities[node.slots]
            self.version += 1

    def _file(self, spot: NodeState) -> None:
        is_open = spot.node.open
        self._rooms.put(spot.node.id, spot.room if is_open else None)
        self._places.put(spot.node.id, spot.node.aux - spot.aux_used if is_open else None)
        for priority, reach in self._reaches.items():
            reach.put(spot.node.id, max(0, spot.reach(priority)) if is_open else None)

    # -- jobs ------------------------------------------------------------------------------------------------

    def add(self, job_id: str, placement: Placement) -> None:
        for name, slots in placement.items():
            if (spot := self.spots.get(name)) is not None:
                spot.jobs[job_id] = slots
                spot.used += slots
                spot.aux_used += slots == 0
                self._file(spot)

    def drop(self, job_id: str, name: str, *, was_leaving: bool) -> None:
        spot = self.spots.get(name)
        if spot is None or job_id not in spot.jobs:
            return
        slots = spot.jobs.pop(job_id)
        spot.used -= slots
        spot.aux_used -= slots == 0
        if was_leaving:
            self._leave(spot, -slots)
        self._file(spot)

    def leave(self, job_id: str, placement: Placement) -> None:
        """Note that the slots of a job will be free soon."""
        for name, slots in placement.items():
            if (spot := self.spots.get(name)) is not None and job_id in spot.jobs:
                self._leave(spot, slots)
                self._file(spot)

    def _leave(self, spot: NodeState, slots: int) -> None:
        spot.leaving += slots
        if spot.leaving:
            self._leaving[spot.node.id] = spot
        else:
            self._leaving.pop(spot.node.id, None)

    def expend(self, placement: Placement, priority: int, sign: int) -> None:
        """Add (1) or subtract (-1) the slots of a job that may be preempted."""
        for name, slots in placement.items():
            if (spot := self.spots.get(name)) is not None:
                spot.expendable[priority] += sign * slots
                if not spot.expendable[priority]:
                    del spot.expendable[priority]
                self._file(spot)

    # -- keeping ---------------------------------------------------------------------------------------------

    def keep(self, placement: Mapping[str, int]) -> None:
        """Reserve slots for a waiting job, until `let_go`."""
        for name, slots in placement.items():
            spot = self.spots[name]
            spot.kept += slots
            self._kept.append(spot)
            self._file(spot)

    def let_go(self) -> None:
        for spot in self._kept:
            spot.kept = 0
        for spot in self._kept:
            if spot.node.id in self.spots:
                self._file(spot)
        self._kept.clear()

    # -- finding ---------------------------------------------------------------------------------------------

    def place(self, avoid: frozenset[str]) -> Placement | None:
        """Find an agent for a job without slots; None if there is none."""
        places = self._places.at_least(1, largest_first=self._spread)
        name = next((name for name in places if name not in avoid), None)
        return None if name is None else {name: 0}

    def fit(self, nodes: int, slots: int, avoid: frozenset[str]) -> Placement | None:
        """Find agents with enough free slots now; None if there are not enough."""
        placement: dict[str, int] = {}
        for name in self._rooms.at_least(slots, largest_first=self._spread):
            if name in avoid:
                continue
            placement[name] = slots
            if len(placement) == nodes:
                return placement
        return None

    def fit_soon(self, nodes: int, slots: int, avoid: frozenset[str]) -> Placement | None:
        """Find agents with enough slots once the jobs that were asked to leave have left; the tightest fit first."""
        if not self._leaving:
            return None
        spots = {name: self.spots[name] for name in self._rooms.at_least(slots, largest_first=False)}
        spots.update({name: spot for name, spot in self._leaving.items() if spot.node.open and spot.soon >= slots})
        usable = [spot for name, spot in spots.items() if name not in avoid]
        if len(usable) < nodes:
            return None
        ordered = sorted(usable, key=lambda spot: (spot.soon, spot.node.id))
        return {spot.node.id: slots for spot in ordered[:nodes]}

    def within_reach(self, priority: int, slots: int) -> Iterator[NodeState]:
        """Yield agents with enough slots if all jobs of lower priority left."""
        reach = self._reaches.get(priority)
        if reach is None:
            reach = self._reaches[priority] = CapacityIndex()
            for spot in self.spots.values():
                reach.put(spot.node.id, max(0, spot.reach(priority)) if spot.node.open else None)
        for name in reach.at_least(slots, largest_first=True):
            yield self.spots[name]

    def closest(self, nodes: int, slots: int, avoid: frozenset[str]) -> Placement:
        """Find agents that are large enough, those first that lack the fewest slots."""
        distances = [
            spot
            for name, spot in self._leaving.items()
            if spot.node.open and spot.node.slots >= slots and name not in avoid
        ]
        taken = {spot.node.id for spot in distances} | avoid
        wanted = nodes
        for name in self._rooms.at_least(0, largest_first=True):
            if not wanted:
                break
            spot = self.spots[name]
            if spot.node.slots >= slots and name not in taken:
                distances.append(spot)
                wanted -= 1
        ordered = sorted(distances, key=lambda spot: (-spot.soon, spot.node.id))
        return {spot.node.id: slots for spot in ordered[:nodes]}
