"""The endpoint behind the page of usage: who used the slots, and which nodes lost jobs."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import now

router = APIRouter(prefix="/api/x1", tags=["cluster"])

USUAL = dt.timedelta(days=29)  # before today
MOST = 1000  # users, labels or pools


class UsageShare(Shape):
    name: str
    slot_seconds: float


class UsageDay(Shape):
    """`day`: its first second in UTC, as seconds since 1970."""

    day: float
    slot_seconds: float


class NodeTrouble(Shape):
    """Jobs that a node lost in the last seven days, and of how many trials; `at`, `why` and `trial` are of the last."""

    node: str
    cluster: str
    jobs: int
    trials: int
    at: float
    why: str
    trial: int


class UsageAnswer(Shape):
    """Slot-seconds of the days from `first` to `last` (YYYY-MM-DD, UTC, both included), the largest shares first."""

    first: str
    last: str
    slot_seconds: float
    days: list[UsageDay]
    users: list[UsageShare]
    pools: list[UsageShare]
    labels: list[UsageShare]
    nodes: list[NodeTrouble]


@router.get("/usage")
def usage(
    master: UsesMaster,
    caller: UserCaller,
    first: Annotated[dt.date | None, Query(description="default: 30 days up to `last`")] = None,
    last: Annotated[dt.date | None, Query(description="default: today, in UTC")] = None,
) -> UsageAnswer:
    """Who used the slots in some days, and which nodes lost jobs in the last seven."""
    end = last or now().astimezone(dt.UTC).date()
    start = first or end - USUAL
    days = master.slot_usage.aggregated(start, end, monthly=False)
    users, pools, labels = Counter[str](), Counter[str](), Counter[str]()
    for day in days:
        users.update(day.by_user)
        pools.update(day.by_pool)
        labels.update(day.by_label)
    return UsageAnswer(
        first=str(start),
        last=str(end),
        slot_seconds=round(sum(one.seconds for one in days), 1),
        days=[UsageDay(day=_epoch(one.start), slot_seconds=round(one.seconds, 1)) for one in days],
        users=_shares(users),
        pools=_shares(pools),
        labels=_shares(labels),
        nodes=[
            NodeTrouble(
                node=one.node,
                cluster=one.cluster,
                jobs=one.jobs,
                trials=len(one.trials),
                at=one.at,
                why=one.why[:1000],
                trial=one.trial,
            )
            for one in master.node_failure_list.lately(caller.where(Permission.VIEW_EXPERIMENT_METADATA))
        ],
    )


def _epoch(day: dt.date) -> float:
    return dt.datetime.combine(day, dt.time(), dt.UTC).timestamp()


def _shares(slot_seconds: Counter[str]) -> list[UsageShare]:
    return [UsageShare(name=name, slot_seconds=round(seconds, 1)) for name, seconds in slot_seconds.most_common(MOST)]
