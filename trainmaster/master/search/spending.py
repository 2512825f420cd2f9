"""What a search may still begin: slot-hours and time that are left, by the speed of its own trials.

A trial trains in legs, from one rung to the next. A leg is begun only if it fits: what is spent, what the legs under
way still take, and what it takes itself stay within the slot-hours, and it ends before the deadline. So slot-hours are
exceeded by no more than the error of the estimates, and by less than a leg of each trial under way.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RECENT = 50  # legs, from which waits are estimated


@dataclass
class Leg:
    """A trial on its way to a rung. `at`: when that was granted; `start`, `end`: units; `units`, `now`: as of its last
    report."""

    at: float
    start: float
    end: float
    units: float
    now: float


@dataclass(frozen=True)
class Forecast:
    """`trials`: that will have been begun in all; `slot_seconds`: that will have been used; `end`: seconds since 1970.
    None: it is not known yet."""

    trials: int | None = None
    slot_seconds: float | None = None
    end: float | None = None


@dataclass
class Spending:
    """`slot_seconds`, `deadline` (seconds since 1970): the budget; None: without limit. `wait`: seconds in the queue to
    expect before any job has started."""

    slot_seconds: float | None
    deadline: float | None
    wait: float = 0.0
    began: float = 0.0
    now: float = 0.0
    spent: float = 0.0
    legs: dict[int, Leg] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)  # by trial: slot-seconds of a unit
    paces: dict[int, float] = field(default_factory=dict)  # by trial: seconds of a unit, while it runs
    starts: list[list[float]] = field(default_factory=list)  # seconds until a leg's first report, and its units

    def grant(self, trial: int, start: float, end: float) -> None:
        """Record that a leg begins."""
        self.legs[trial] = Leg(self.now, start, end, start, self.now)

    def report(self, trial: int, units: float, spent: float) -> None:
        """Record how far a trial has come, and what it has used in all."""
        leg = self.legs.get(trial)
        if leg is None or units <= 0:
            return
        self.costs[trial] = spent / units
        if leg.units > leg.start and units > leg.units:  # its job ran all the time between two reports
            pace = (self.now - leg.now) / (units - leg.units)
            self.paces[trial] = pace if trial not in self.paces else min(pace, self.paces[trial])
        elif units > leg.start:
            self.starts = [*self.starts, [self.now - leg.at, units - leg.start]][-RECENT:]
        leg.units, leg.now = units, self.now

    def release(self, trial: int) -> None:
        """Record that a trial runs no longer."""
        self.legs.pop(trial, None)

    @property
    def expected_wait(self) -> float:
        """Median seconds until a job begins to train."""
        if not self.starts or (pace := self.pace) is None:
            return self.wait
        return statistics.median(max(seconds - pace * units, 0.0) for seconds, units in self.starts)

    @property
    def cost(self) -> float | None:
        """Mean slot-seconds of a unit, over all trials."""
        return statistics.fmean(self.costs.values()) if self.costs else None

    @property
    def pace(self) -> float | None:
        """Mean seconds of a unit, over all trials; where none has reported twice from one job, less exactly: the wait
        that was to be expected is taken off."""
        if self.paces:
            return statistics.fmean(self.paces.values())
        if not self.starts:
            return None
        return statistics.median(max(seconds - self.wait, 0.0) / units for seconds, units in self.starts)

    def _pace(self, trial: int | None) -> float | None:
        own = self.paces.get(trial) if trial is not None else None
        return self.pace if own is None else own

    def committed(self) -> float:
        """Slot-seconds that the legs under way still take."""
        mean = self.cost or 0.0
        return sum(max(leg.end - leg.units, 0.0) * self.costs.get(trial, mean) for trial, leg in self.legs.items())

    def excess(self, trial: int | None, units: float, *, reserve: float = 0.0, until: float | None = None) -> str:
        """Return why a leg may not begin; empty: it may.

        Args:
            trial: whose leg; None: of a new trial.
            units: of the leg.
            reserve: units for which slot-hours must remain.
            until: units that must fit before the deadline, where these are more than the leg's.
        """
        if self.slot_seconds is not None:
            mean = self.cost or 0.0
            wanted = units * (self.costs.get(trial, mean) if trial is not None else mean) + reserve * mean
            left = self.slot_seconds - self.spent - self.committed()
            if wanted > left or left <= 0:
                return f"{_hours(self.spent)} of {_hours(self.slot_seconds)} slot-hours are spent"
        if self.deadline is not None:
            pace = self._pace(trial)
            takes = 0.0 if pace is None else self.expected_wait + pace * max(units, until or 0.0)
            if self.now + takes >= self.deadline:
                return f"the deadline is in {_hours(self.deadline - self.now)} hours"
        return ""

    def shortfall(self, full: int, unit: str) -> str:
        """Return why not one trial can be trained to its end; empty: one can, or it is not known yet."""
        cost, pace = self.cost, self.pace
        if self.slot_seconds is not None and cost is not None and full * cost > self.slot_seconds:
            return (
                f"searcher.slot_hours is {_hours(self.slot_seconds)}, and a trial of {full} {unit} takes about "
                f"{_hours(full * cost)}: none is trained to its end; {_hours(self.slot_seconds)} suffice for "
                f"{int(self.slot_seconds / cost)} {unit}"
            )
        if self.deadline is not None and pace is not None:
            takes, there = self.expected_wait + full * pace, self.deadline - self.began
            if takes > there:
                possible = max(int((there - self.expected_wait) / pace), 0) if pace else 0
                return (
                    f"searcher.deadline cannot be met: a trial of {full} {unit} takes about {_hours(takes)} hours, of "
                    f"which {_hours(self.expected_wait)} in the queue, and there were {_hours(there)}: none is trained "
                    f"to its end; {possible} {unit} can be"
                )
        return ""

    def fraction(self) -> float | None:
        """How much of the budget is used, 0..1; None where there is none."""
        parts = []
        if self.slot_seconds:
            parts.append(self.spent / self.slot_seconds)
        if self.deadline is not None and self.deadline > self.began:
            parts.append((self.now - self.began) / (self.deadline - self.began))
        return min(max(parts), 1.0) if parts else None

    def describe(self) -> str:
        """Return what is used, as one line."""
        parts = []
        if self.slot_seconds is not None:
            parts.append(f"{_hours(self.spent)} of {_hours(self.slot_seconds)} slot-hours spent")
        if self.deadline is not None:
            left = self.deadline - self.now
            parts.append(f"{_hours(left)} hours until the deadline" if left > 0 else "the deadline is over")
        return ", ".join(parts)

    def forecast(self, created: int, most: int | None, at_once: int, units: float, legs: float) -> Forecast:
        """Estimate how the search ends.

        Args:
            created: trials so far.
            most: trials there may be; None: without limit.
            at_once: trials at the same time.
            units: that a new trial trains on average, with those that are continued.
            legs: how many legs that are, on average.
        """
        cost, pace = self.cost, self.pace
        if cost is None or pace is None:
            return Forecast()
        rest = self.committed()
        seconds = units * pace + legs * self.expected_wait  # of one trial
        more: list[float] = [] if most is None else [most - created]
        if self.slot_seconds is not None:
            more.append((self.slot_seconds - self.spent - rest) / (units * cost))
        if self.deadline is not None and seconds > 0:
            more.append((self.deadline - self.now) / seconds * at_once)
        further = max(min(more, default=0.0), 0.0)
        takes = further * seconds / max(at_once, 1) + (rest / cost * pace / max(len(self.legs), 1) if cost else 0.0)
        return Forecast(created + int(further), self.spent + rest + further * units * cost, self.now + takes)

    def state(self) -> dict[str, Any]:
        """Return all of it as JSON values, for `load`."""
        return {
            "began": self.began,
            "now": self.now,
            "spent": self.spent,
            "legs": [[trial, *asdict(leg).values()] for trial, leg in self.legs.items()],
            "costs": [list(pair) for pair in self.costs.items()],
            "paces": [list(pair) for pair in self.paces.items()],
            "starts": self.starts,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from a result of `state`."""
        self.began, self.now, self.spent = (float(state[key]) for key in ("began", "now", "spent"))
        self.legs = {int(trial): Leg(*map(float, rest)) for trial, *rest in state["legs"]}
        self.costs = {int(trial): float(cost) for trial, cost in state["costs"]}
        self.paces = {int(trial): float(pace) for trial, pace in state["paces"]}
        self.starts = [[float(seconds), float(units)] for seconds, units in state["starts"]]


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.3g}"
