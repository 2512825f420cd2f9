"""Gang scheduler for the jobs of Docker hosts. Pure: no I/O, no clock, no randomness.

**Order.** With `priority` (1 before 99), then the queue position of the group, then the order of submission. With
`fair_share` the group that holds the fewest slots for its weight comes first.

**Gangs** start whole or not at all. A job that fits on one agent runs on one agent, and waits for one. A larger job is
split evenly over the smallest number of agents that divides it and that are large enough: 16 slots on agents of 8 are
2 x 8 (Determined's "whole identical agents"), 12 are 2 x 6. A job whose number cannot be split so can never run.

**Fitting.** `best` packs: the agent with the fewest free slots that suffice; `worst` spreads.

**Backfill** never delays the first job that waits for slots. Run times are unknown, so it holds agents: those that
come closest to what it needs take no other job until it has started there. What they lack can only shrink, so it starts
when enough of others' jobs have ended, whatever keeps arriving behind it. A job that is held back by its group's
`max_slots`, or that no set of open agents could ever hold, holds nothing.

**Preemption** only where it makes a whole gang fit, of jobs of strictly lower priority, the least important and then
the youngest first, as few as suffice. Slots that become free by it are kept for the job they were freed for. Under fair
share a group gives way only to one that is still no better off afterwards.
"""

from trainmaster.dispatchers.docker.scheduler.model import (
    AgentNode,
    Decisions,
    Fitting,
    Gang,
    Placement,
    PreemptGang,
    SchedulingPolicy,
    Sharing,
    StartGang,
    Why,
)
from trainmaster.dispatchers.docker.scheduler.scheduler import Scheduler
from trainmaster.dispatchers.docker.scheduler.shape import GangShape, shape_of

__all__ = [
    "AgentNode",
    "Decisions",
    "Fitting",
    "Gang",
    "GangShape",
    "Placement",
    "PreemptGang",
    "Scheduler",
    "SchedulingPolicy",
    "Sharing",
    "StartGang",
    "Why",
    "shape_of",
]
