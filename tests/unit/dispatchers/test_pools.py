"""The cache of pools under several threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.dispatchers.base import SlotType
from trainmaster.dispatchers.batch.pools import KnownPools


@dataclass(frozen=True)
class Some:
    slot_type: SlotType = SlotType.CUDA


def test_an_answer_that_comes_late_does_not_hide_a_newer_one() -> None:
    asked, released = threading.Event(), threading.Event()
    first = threading.Lock()

    def ask(_before: Mapping[str, Some]) -> dict[str, Some]:
        if not first.acquire(blocking=False):
            return {"old": Some(), "new": Some()}
        asked.set()
        assert released.wait(60)
        return {"old": Some()}

    pools = KnownPools(ask, 60)
    late = threading.Thread(target=pools.all)
    late.start()
    assert asked.wait(60)
    assert set(pools.all()) == {"old", "new"}
    released.set()
    late.join()
    assert set(pools.all()) == {"old", "new"}
    assert pools.find("new") == Some()


def test_cached_pools_are_returned_unless_fresh_is_requested() -> None:
    questions: list[Mapping[str, Some]] = []

    def ask(before: Mapping[str, Some]) -> dict[str, Some]:
        questions.append(before)
        return {f"pool-{len(questions)}": Some()}

    pools = KnownPools(ask, 0)
    assert set(pools.all()) == {"pool-1"}
    assert set(pools.all()) == {"pool-1"}
    assert set(pools.all(fresh=True)) == {"pool-2"}
    assert [set(before) for before in questions] == [set(), {"pool-1"}]
