"""Properties of the gang scheduler that hold for all sequences of calls."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trainmaster.dispatchers.docker.scheduler import (
    AgentNode,
    Decisions,
    Fitting,
    Gang,
    Scheduler,
    SchedulingPolicy,
    Sharing,
    Why,
    shape_of,
)

SIZES = st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4, 6, 8, 12, 16])
POLICIES = st.builds(SchedulingPolicy, st.sampled_from(Sharing), st.sampled_from(Fitting), st.booleans())
SPECS = st.fixed_dictionaries(
    {
        "slots": SIZES,
        "priority": st.sampled_from([1, 42, 42, 99]),
        "group": st.sampled_from(["x", "y", "z"]),
        "weight": st.sampled_from([1.0, 2.0]),
        "max_slots": st.sampled_from([None, None, None, 4]),
        "preemptible": st.sampled_from([True, True, False]),
        "single_node": st.sampled_from([False, False, True]),
        "slots_per_node": st.sampled_from([None, None, None, 2]),
        "position": st.sampled_from([0.0, 1.0, 2.0]),
        "avoid": st.sampled_from([frozenset(), frozenset(), frozenset({"n0"}), frozenset({"n1", "n2"})]),
    }
)


class Machine(RuleBasedStateMachine):
    """Agents and jobs come, go and change; the books are kept here a second time."""

    @initialize(policy=POLICIES, sizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=5))
    def begin(self, policy: SchedulingPolicy, sizes: list[int]) -> None:
        self.policy = policy
        self.pair = (Scheduler(policy), Scheduler(policy))
        self.nodes: dict[str, AgentNode] = {}
        self.jobs: dict[str, Gang] = {}
        self.running: dict[str, dict[str, int]] = {}
        self.leaving: dict[str, str] = {}
        self.number = 0
        for number, slots in enumerate(sizes):
            self._set(AgentNode(f"n{number}", slots, aux=2))

    def _both(self, call: str, *args: object, **more: object) -> None:
        for scheduler in self.pair:
            getattr(scheduler, call)(*args, **more)

    def _set(self, node: AgentNode) -> None:
        self.nodes[node.id] = node
        self._both("set_node", node)

    # -- what may happen --------------------------------------------------------------------------------------------

    @rule(spec=SPECS)
    def submit(self, spec: dict[str, object]) -> None:
        self.number += 1
        job = Gang(id=f"j{self.number}", number=self.number, **spec)  # type: ignore[arg-type]
        self.jobs[job.id] = job
        self._both("submit", job)

    @rule(pick=st.integers(0, 1000), partly=st.booleans())
    def end(self, pick: int, partly: bool) -> None:
        if self.running:
            name = sorted(self.running)[pick % len(self.running)]
            parts = sorted(self.running[name])
            agent = parts[pick % len(parts)] if partly else None
            self._both("release", name, agent)
            for part in [agent] if agent else parts:
                del self.running[name][part]
            if not self.running[name]:
                self._forget(name)

    def _forget(self, name: str) -> None:
        self.running.pop(name, None)
        self.leaving.pop(name, None)
        del self.jobs[name]

    @rule(pick=st.integers(0, 1000))
    def withdraw(self, pick: int) -> None:
        waiting = sorted(set(self.jobs) - set(self.running))
        if waiting:
            name = waiting[pick % len(waiting)]
            self._both("release", name)
            del self.jobs[name]

    @rule(pick=st.integers(0, 1000), priority=st.sampled_from([1, 42, 99]), position=st.sampled_from([-1.0, 0.0, 3.0]))
    def change(self, pick: int, priority: int, position: float) -> None:
        if self.jobs:
            name = sorted(self.jobs)[pick % len(self.jobs)]
            self.jobs[name] = replace(self.jobs[name], priority=priority, position=position)
            self._both("change", name, priority=priority, position=position)

    @rule(pick=st.integers(0, 1000))
    def open_or_close(self, pick: int) -> None:
        name = sorted(self.nodes)[pick % len(self.nodes)]
        self._set(replace(self.nodes[name], open=not self.nodes[name].open))

    @rule(slots=st.sampled_from([2, 4, 8]))
    def join(self, slots: int) -> None:
        if len(self.nodes) < 8:
            self._set(AgentNode(f"n{len(self.nodes)}", slots, aux=2))

    @rule(pick=st.integers(0, 1000))
    def come_and_go(self, pick: int) -> None:
        """An agent is taken out and put back while its jobs go on."""
        name = sorted(self.nodes)[pick % len(self.nodes)]
        self._both("remove_node", name)
        self._both("set_node", self.nodes[name])

    @rule()
    def decide(self) -> None:
        before = {name: dict(parts) for name, parts in self.running.items()}
        decisions, again = self.pair[0].decide(), self.pair[1].decide()
        assert decisions == again, "the same calls gave other decisions"
        for start in decisions.starts:
            self._check_start(start.job_id, dict(start.placement))
        for preempt in decisions.preemptions:
            self._check_preemption(preempt.job_id, preempt.beneficiary, before)
        self._check_use(decisions, before)

    def _sizes(self, job: Gang) -> Counter[int]:
        """How many agents of each size there are for a job."""
        return Counter(node.slots for node in self.nodes.values() if node.open and node.id not in job.avoid)

    # -- what must be true ------------------------------------------------------------------------------------------

    def _check_start(self, name: str, placement: dict[str, int]) -> None:
        job = self.jobs[name]
        assert name not in self.running, "started twice"
        assert sum(placement.values()) == job.slots, "half a gang"
        assert len(set(placement.values())) == 1, "an uneven gang"
        assert all(self.nodes[part].open for part in placement), "on an agent that takes nothing"
        assert not job.avoid & placement.keys(), "on an agent that it avoids"
        assert not job.single_node or len(placement) == 1
        if job.slots_per_node is not None and job.slots > job.slots_per_node:
            assert set(placement.values()) == {job.slots_per_node}
        self.running[name] = placement
        if job.max_slots is not None and job.slots:
            held = sum(sum(self.running[n].values()) for n in self.running if self.jobs[n].group == job.group)
            assert held <= job.max_slots, "over the group's cap"

    def _check_preemption(self, name: str, beneficiary: str, before: dict[str, dict[str, int]]) -> None:
        assert self.policy.preemption
        assert name in before, "asked to leave before it ran"
        assert name not in self.leaving, "asked twice"
        victim, other = self.jobs[name], self.jobs[beneficiary]
        assert beneficiary not in self.running
        assert victim.preemptible
        if self.policy.sharing is Sharing.PRIORITY:
            assert victim.priority > other.priority, "for one of equal or lower priority"
        else:
            assert victim.group != other.group
        self.leaving[name] = beneficiary

    def _check_use(self, decisions: Decisions, before: dict[str, dict[str, int]]) -> None:
        """Every sacrifice of this round makes its gang fit, once those who were asked have left."""
        for beneficiary in {preempt.beneficiary for preempt in decisions.preemptions}:
            job = self.jobs[beneficiary]
            shape = shape_of(job, self._sizes(job))
            assert shape is not None
            stay = {name: parts for name, parts in self.running.items() if name not in self.leaving}
            room = [
                node.slots - sum(parts.get(node.id, 0) for parts in stay.values())
                for node in self.nodes.values()
                if node.open and node.id not in job.avoid
            ]
            assert sum(free >= shape.slots for free in room) >= shape.nodes, "a pointless sacrifice"

    @invariant()
    def nothing_is_given_twice(self) -> None:
        for node in getattr(self, "nodes", {}).values():
            parts = [placement[node.id] for placement in self.running.values() if node.id in placement]
            assert sum(parts) <= node.slots, "more slots given than there are"
            assert parts.count(0) <= node.aux, "more places given than there are"

    @invariant()
    def everybody_is_somewhere(self) -> None:
        if hasattr(self, "pair"):
            assert set(self.pair[0].waiting()) == set(self.jobs) - set(self.running)
            for name in self.jobs:
                assert self.pair[0].placement(name) == self.running.get(name, {})

    def teardown(self) -> None:
        """When the others end, everybody who can run at all runs."""
        if not hasattr(self, "pair"):
            return
        for name in list(self.nodes):
            self._set(replace(self.nodes[name], open=True))
        for _ in range(2 * len(self.jobs) + 2):
            self.decide()
            if not self.running:
                break
            name = min(self.running, key=lambda one: self.jobs[one].number)
            self._both("release", name)
            self._forget(name)
        for job in self.jobs.values():
            impossible = shape_of(job, self._sizes(job)) is None
            over_cap = job.max_slots is not None and job.slots > job.max_slots
            assert impossible or over_cap, f"{job} never started"


Machine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestScheduler = Machine.TestCase


@settings(max_examples=200, deadline=None)
@given(
    agents=st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=4),
    filling=st.lists(st.sampled_from([1, 1, 2, 3]), min_size=4, max_size=24),
    large=st.sampled_from([2, 4, 8, 16]),
    behind=st.lists(st.sampled_from([1, 1, 2]), min_size=24, max_size=40),
    ends=st.randoms(use_true_random=False),
    fitting=st.sampled_from(Fitting),
)
def test_the_first_that_waits_is_not_delayed_by_those_behind_it(
    agents: list[int], filling: list[int], large: int, behind: list[int], ends: object, fitting: Fitting
) -> None:
    """Those behind it never end and keep coming: it starts all the same when those before it have ended."""
    scheduler = Scheduler(SchedulingPolicy(fitting=fitting))
    for number, slots in enumerate(agents):
        scheduler.set_node(AgentNode(f"n{number}", slots))
    for number, slots in enumerate(filling):
        scheduler.submit(Gang(f"before{number}", slots, number, priority=1))
        scheduler.decide()
    for name in scheduler.waiting():
        scheduler.release(name)
    before = [f"before{number}" for number in range(len(filling)) if scheduler.placement(f"before{number}")]
    scheduler.submit(Gang("first", large, 1000))
    scheduler.decide()
    if scheduler.placement("first") or scheduler.why("first") is Why.TOO_LARGE:
        return
    ends.shuffle(before)  # type: ignore[attr-defined]
    more = iter(enumerate(behind))
    for name in before:
        for number, slots in [next(more, (None, 0)), next(more, (None, 0))]:  # type: ignore[assignment]
            if number is not None:
                scheduler.submit(Gang(f"behind{number}", slots, 2000 + number))
        scheduler.decide()
        scheduler.release(name)
        scheduler.decide()
    assert scheduler.placement("first"), "it was overtaken"
