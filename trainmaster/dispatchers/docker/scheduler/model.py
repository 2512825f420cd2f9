"""Input and output types of the scheduler."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Placement = Mapping[str, int]
"""Agent -> slots on it. A job without slots has one agent with 0."""


class Sharing(enum.StrEnum):
    """How jobs are ordered."""

    PRIORITY = "priority"
    FAIR_SHARE = "fair_share"


class Fitting(enum.StrEnum):
    """Which of several fitting agents a job gets."""

    BEST = "best"  # the one with the fewest free slots: keeps large gaps for large jobs
    WORST = "worst"  # the one with the most free slots: spreads load and heat


@dataclass(frozen=True)
class SchedulingPolicy:
    sharing: Sharing = Sharing.PRIORITY
    fitting: Fitting = Fitting.BEST
    preemption: bool = False


@dataclass(frozen=True)
class AgentNode:
    """An agent as the scheduler sees it. `slots` counts usable slots and those in use. One that is not `open`
    gets no new jobs."""

    id: str
    slots: int
    aux: int = 0  # jobs without slots that it may hold at once
    open: bool = True


@dataclass(frozen=True)
class Gang:
    """A job that needs `slots` at the same time; 0 is a job that only needs a place on an agent."""

    id: str
    slots: int
    number: int  # of submission, ascending and unique
    position: float = 0.0  # of its group in the queue
    priority: int = 42  # 1 is served first
    group: str = ""
    weight: float = 1.0
    max_slots: int | None = None  # that its group may hold at once
    preemptible: bool = True
    single_node: bool = False
    slots_per_node: int | None = None
    avoid: frozenset[str] = frozenset()  # agents on which it must not run


@dataclass(frozen=True)
class StartGang:
    job_id: str
    placement: Placement


@dataclass(frozen=True)
class PreemptGang:
    """Decision to ask a running job to leave, for `beneficiary`."""

    job_id: str
    beneficiary: str


@dataclass(frozen=True)
class Decisions:
    starts: Sequence[StartGang] = ()
    preemptions: Sequence[PreemptGang] = ()

    def __bool__(self) -> bool:
        return bool(self.starts or self.preemptions)


class Why(enum.Enum):
    """Why a job has not started."""

    NEW = "not considered yet"
    SLOTS = "not enough free slots"
    FIRST = "first in the queue; agents are being kept free for it"
    PROMISED = "others were asked to leave for it"
    CAPPED = "its group holds as many slots as it may"
    TOO_LARGE = "no set of open agents could hold it"
    PLACES = "no agent has room for another job without slots"
