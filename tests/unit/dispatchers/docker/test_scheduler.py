"""The gang scheduler's rules, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.dispatchers.docker.scheduler import (
    AgentNode,
    Decisions,
    Fitting,
    Gang,
    GangShape,
    PreemptGang,
    Scheduler,
    SchedulingPolicy,
    Sharing,
    StartGang,
    Why,
    shape_of,
)


class Pool:
    """A scheduler that is talked to briefly."""

    def __init__(self, *sizes: int, aux: int = 10, **policy: Any) -> None:
        self.scheduler = Scheduler(SchedulingPolicy(**policy))
        self._number = 0
        for number, slots in enumerate(sizes):
            self.scheduler.set_node(AgentNode(f"a{number}", slots, aux))

    def job(self, name: str, slots: int, **more: Any) -> Gang:
        self._number += 1
        return Gang(name, slots, self._number, **{"group": name, **more})

    def submit(self, name: str, slots: int, **more: Any) -> Decisions:
        self.scheduler.submit(self.job(name, slots, **more))
        return self.scheduler.decide()

    def end(self, name: str, agent: str | None = None) -> Decisions:
        self.scheduler.release(name, agent)
        return self.scheduler.decide()


def started(decisions: Decisions) -> dict[str, dict[str, int]]:
    return {start.job_id: dict(start.placement) for start in decisions.starts}


# -- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "agents", "more", "shape"),
    [
        (1, [8], {}, GangShape(1, 1)),
        (8, [8, 8], {}, GangShape(1, 8)),
        (16, [8, 8, 8], {}, GangShape(2, 8)),  # Determined's whole agents
        (12, [8, 8], {}, GangShape(2, 6)),
        (20, [8] * 4, {}, GangShape(4, 5)),
        (16, [8, 4, 4, 4], {}, GangShape(4, 4)),
        (17, [8] * 4, {}, None),  # 17 agents with one slot each would do; there are four
        (16, [8, 8], {"single_node": True}, None),
        (8, [4, 4, 4], {"slots_per_node": 4}, GangShape(2, 4)),
        (8, [8, 8], {"slots_per_node": 4}, GangShape(2, 4)),
        (6, [8, 8], {"slots_per_node": 4}, None),
        (3, [8], {"slots_per_node": 4}, GangShape(1, 3)),
        (0, [4], {}, GangShape(1, 0)),
        (0, [], {}, None),
        (9, [8], {}, None),
    ],
)
def test_gang_is_split_evenly_over_fewest_agents(
    slots: int, agents: list[int], more: dict[str, Any], shape: GangShape | None
) -> None:
    sizes = {size: agents.count(size) for size in agents}
    assert shape_of(Gang("j", slots, 1, **more), sizes) == shape


# -- agents to keep away from --------------------------------------------------------------------------------------


def test_job_avoids_excluded_agents() -> None:
    pool = Pool(4, 4, 2)
    assert started(pool.submit("small", 1, avoid=frozenset({"a2"}))) == {"small": {"a0": 1}}
    assert started(pool.submit("gang", 8, avoid=frozenset({"a0"}))) == {}
    assert pool.scheduler.why("gang") is Why.TOO_LARGE
    assert started(pool.submit("aux", 0, avoid=frozenset({"a0", "a1"}))) == {"aux": {"a2": 0}}
    pool.end("gang")
    assert started(pool.submit("waits", 4, avoid=frozenset({"a1"}))) == {}
    assert started(pool.submit("other", 4)) == {"other": {"a1": 4}}  # what the first cannot use is not kept for it
    assert started(pool.end("small")) == {"waits": {"a0": 4}}


def test_no_job_is_preempted_on_agent_that_new_job_avoids() -> None:
    pool = Pool(4, 4, preemption=True)
    pool.submit("one", 4, priority=90)
    pool.submit("two", 4, priority=80)
    decisions = pool.submit("first", 4, priority=1, avoid=frozenset({"a0"}))
    (asked,) = decisions.preemptions
    assert dict(pool.scheduler.placement(asked.job_id)) == {"a1": 4}


# -- fitting ----------------------------------------------------------------------------------------------------------


def test_best_fit_fills_up_the_fullest_agent_that_suffices() -> None:
    pool = Pool(4, 4)
    pool.submit("first", 1)
    assert started(pool.submit("second", 2)) == {"second": {"a0": 2}}
    assert started(pool.submit("third", 2)) == {"third": {"a1": 2}}


def test_worst_fit_spreads() -> None:
    pool = Pool(4, 4, fitting=Fitting.WORST)
    pool.submit("first", 1)
    assert started(pool.submit("second", 2)) == {"second": {"a1": 2}}


def test_a_job_that_fits_on_one_agent_waits_for_one() -> None:
    pool = Pool(4, 4)
    pool.submit("left", 2, slots_per_node=2)
    pool.submit("right", 4)
    pool.submit("half", 2, priority=50)
    assert not pool.submit("whole", 4)
    assert not pool.end("left")
    assert started(pool.end("half")) == {"whole": {"a0": 4}}


def test_closed_agent_keeps_its_jobs_and_gets_no_others() -> None:
    pool = Pool(4)
    pool.submit("runs", 2)
    pool.scheduler.set_node(AgentNode("a0", 4, 10, open=False))
    assert not pool.submit("waits", 1)
    assert pool.scheduler.why("waits") is Why.TOO_LARGE
    assert pool.scheduler.placement("runs") == {"a0": 2}
    pool.scheduler.set_node(AgentNode("a0", 4, 10))
    assert started(pool.scheduler.decide()) == {"waits": {"a0": 1}}


def test_jobs_without_slots_are_counted_by_place() -> None:
    pool = Pool(1, aux=2)
    pool.submit("busy", 1)
    assert started(pool.submit("one", 0)) == {"one": {"a0": 0}}
    assert started(pool.submit("two", 0)) == {"two": {"a0": 0}}
    assert not pool.submit("three", 0)
    assert pool.scheduler.why("three") is Why.PLACES
    assert started(pool.end("one")) == {"three": {"a0": 0}}


# -- order ------------------------------------------------------------------------------------------------------------


def test_priority_then_position_then_submission() -> None:
    pool = Pool(1)
    pool.submit("runs", 1)
    for name, more in (
        ("late", {"priority": 50}),
        ("second", {"position": 2.0}),
        ("first", {"position": 1.0}),
        ("third", {"position": 2.0}),
    ):
        pool.submit(name, 1, **more)
    assert list(pool.scheduler.waiting()) == ["first", "second", "third", "late"]


def test_a_job_can_be_given_another_place() -> None:
    pool = Pool(1)
    pool.submit("runs", 1)
    pool.submit("first", 1)
    pool.submit("second", 1)
    pool.scheduler.change("second", priority=1)
    assert list(pool.scheduler.waiting()) == ["second", "first"]
    pool.scheduler.change("first", priority=1, position=-1.0)
    assert started(pool.end("runs")) == {"first": {"a0": 1}}


def test_group_with_smallest_weighted_share_comes_first() -> None:
    pool = Pool(6, sharing=Sharing.FAIR_SHARE)
    pool.scheduler.submit(pool.job("blocker", 6, group="x"))
    pool.scheduler.decide()
    for number in range(6):
        pool.scheduler.submit(pool.job(f"light{number}", 1, group="light", weight=1.0))
    for number in range(6):
        pool.scheduler.submit(pool.job(f"heavy{number}", 1, group="heavy", weight=2.0))
    names = sorted(started(pool.end("blocker")))
    assert [name[:5] for name in names] == ["heavy"] * 4 + ["light"] * 2


def test_a_group_holds_no_more_than_its_cap_and_others_pass_it() -> None:
    pool = Pool(8)
    pool.submit("one", 2, group="g", max_slots=4)
    pool.submit("two", 2, group="g", max_slots=4)
    assert not pool.submit("three", 2, group="g", max_slots=4)
    assert pool.scheduler.why("three") is Why.CAPPED
    assert started(pool.submit("other", 4)) == {"other": {"a0": 4}}
    assert started(pool.end("one")) == {"three": {"a0": 2}}


# -- backfill ---------------------------------------------------------------------------------------------------------


def test_small_jobs_pass_large_one_if_it_is_not_delayed() -> None:
    pool = Pool(4, 4)
    pool.submit("a", 3)
    pool.submit("b", 2, priority=1)
    assert not pool.submit("large", 4)
    assert pool.scheduler.why("large") is Why.FIRST
    # a1 lacks least and is kept; a0 has room for those behind.
    assert started(pool.submit("small", 1)) == {"small": {"a0": 1}}
    assert not pool.submit("next", 1)
    assert started(pool.end("b")) == {"large": {"a1": 4}}


def test_impossible_job_holds_up_no_other() -> None:
    pool = Pool(4)
    assert not pool.submit("monster", 64, priority=1)
    assert pool.scheduler.why("monster") is Why.TOO_LARGE
    assert started(pool.submit("small", 1)) == {"small": {"a0": 1}}


def test_reserved_agent_stays_reserved_when_another_frees_slots() -> None:
    pool = Pool(4, 4)
    pool.submit("long", 1, priority=1)
    pool.submit("a", 3)
    pool.submit("b", 2)
    pool.submit("c", 1)
    pool.submit("large", 4, priority=5)
    # a1 (b and c run there) was kept, with one slot free. a0 now has three free slots, and small ones go there.
    pool.scheduler.release("a")
    assert started(pool.scheduler.decide()) == {}
    assert started(pool.submit("small", 1)) == {"small": {"a0": 1}}
    pool.scheduler.release("b")
    assert started(pool.end("c")) == {"large": {"a1": 4}}


# -- preemption -------------------------------------------------------------------------------------------------------


def test_preemption_asks_only_youngest_of_lowest_priority() -> None:
    pool = Pool(4, preemption=True)
    for name, priority in (("old", 60), ("young", 60), ("better", 50), ("best", 10)):
        pool.submit(name, 1, priority=priority)
    decisions = pool.submit("urgent", 1, priority=20)
    assert decisions.preemptions == (PreemptGang("young", "urgent"),)
    assert not decisions.starts
    assert pool.scheduler.why("urgent") is Why.PROMISED
    assert pool.end("young").starts == (StartGang("urgent", {"a0": 1}),)


def test_useless_preemption_asks_no_job() -> None:
    pool = Pool(4, preemption=True)
    pool.submit("low", 2, priority=60)
    pool.submit("equal", 2, priority=20)
    assert not pool.submit("urgent", 4, priority=20)
    asked = pool.submit("foremost", 3, priority=10).preemptions
    assert asked == (PreemptGang("low", "foremost"), PreemptGang("equal", "foremost"))


def test_equal_priority_and_the_unwilling_are_spared() -> None:
    pool = Pool(2, preemption=True)
    pool.submit("equal", 1, priority=20)
    pool.submit("fixed", 1, priority=90, preemptible=False)
    assert not pool.submit("urgent", 1, priority=20)


def test_freed_slots_are_kept_for_preempting_job() -> None:
    pool = Pool(2, preemption=True)
    pool.submit("low", 2, priority=60)
    pool.submit("urgent", 2, priority=20)
    assert not pool.submit("sneaky", 1, priority=30)
    assert started(pool.end("low")) == {"urgent": {"a0": 2}}


def test_a_gang_is_asked_to_leave_once_and_frees_all_its_agents() -> None:
    pool = Pool(4, 4, preemption=True)
    pool.submit("wide", 8, priority=60)
    decisions = pool.submit("urgent", 8, priority=1)
    assert decisions.preemptions == (PreemptGang("wide", "urgent"),)
    pool.scheduler.release("wide", "a0")
    assert not pool.scheduler.decide()
    assert started(pool.end("wide", "a1")) == {"urgent": {"a0": 4, "a1": 4}}


def test_several_urgent_jobs_do_not_share_a_victim() -> None:
    pool = Pool(2, 2, preemption=True)
    pool.submit("x", 2, priority=60)
    pool.submit("y", 2, priority=60)
    assert pool.submit("one", 2, priority=1).preemptions == (PreemptGang("y", "one"),)
    assert pool.submit("two", 2, priority=1).preemptions == (PreemptGang("x", "two"),)
    assert not pool.submit("three", 2, priority=1)


def test_the_cheapest_agent_is_emptied() -> None:
    pool = Pool(2, 2, preemption=True)
    pool.submit("a", 1, priority=50)
    pool.submit("b", 1, priority=60)
    pool.submit("c", 2, priority=60)
    assert pool.submit("urgent", 2, priority=1).preemptions == (PreemptGang("c", "urgent"),)


def test_fair_share_preempts_group_only_down_to_equal_share() -> None:
    pool = Pool(4, sharing=Sharing.FAIR_SHARE, preemption=True)
    for number in range(4):
        pool.submit(f"rich{number}", 1, group="rich")
    assert len(pool.submit("poor0", 1, group="poor").preemptions) == 1
    assert len(pool.submit("poor1", 1, group="poor").preemptions) == 1
    assert not pool.submit("poor2", 1, group="poor")


# -- restarts ---------------------------------------------------------------------------------------------------------


def test_new_scheduler_restores_running_jobs() -> None:
    first = Pool(4)
    job = first.job("runs", 3)
    later = Scheduler()
    later.restore(job, {"a0": 3})
    later.set_node(AgentNode("a0", 4, 10))
    later.submit(first.job("waits", 2))
    assert not later.decide()
    later.release("runs")
    assert started(later.decide()) == {"waits": {"a0": 2}}


def test_a_job_that_is_known_is_not_taken_twice() -> None:
    pool = Pool(1)
    pool.submit("one", 1)
    with pytest.raises(ValueError, match="one"):
        pool.submit("one", 1)
    pool.scheduler.release("unknown")
    pool.scheduler.change("unknown", priority=3)


def test_change_of_policy_keeps_running_jobs() -> None:
    pool = Pool(2)
    pool.submit("low", 2, priority=60)
    assert not pool.submit("urgent", 2, priority=1)
    pool.scheduler.set_policy(SchedulingPolicy(preemption=True))
    assert pool.scheduler.decide().preemptions == (PreemptGang("low", "urgent"),)
    pool.scheduler.set_policy(SchedulingPolicy())
    assert started(pool.end("low")) == {"urgent": {"a0": 2}}
