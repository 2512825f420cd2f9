"""What another searcher would have found: the recorded curves of an experiment, replayed through it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.config.searcher import keys_of as searcher_keys
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.search.methods import make_method
from trainmaster.master.search.simulated import CPU_SECONDS
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.experiments.search_limits import refuse_excess
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.stored import Json

MOST_TRIALS, MOST_UNITS = 5_000, 2_000_000  # recorded ones; units of all their curves together
PATIENCE = 90.0  # seconds, of which a simulation may calculate `CPU_SECONDS`
TURN = 10.0  # seconds that a request waits for another simulation
_turn = threading.BoundedSemaphore(1)


@dataclass(frozen=True)
class WhatIf:
    """`searcher`: keys that replace those of the experiment's section. `delay`: median seconds in the queue, and the
    standard deviation of their logarithm."""

    searcher: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None
    seeds: int = 5
    delay: tuple[float, float] = (0.0, 0.0)
    deaths: float = 0.0


@dataclass(frozen=True)
class Replayed:
    """`recorded`: what the experiment itself found, as a run. `short`: recorded trials that the search stopped, whose
    curves end there. `runs`: as `simulated.simulate` returns them."""

    goal: SearchGoal
    searcher: str
    workers: int
    recorded: Json
    trials: int
    short: int
    runs: Sequence[Json]


class WhatIfs(BoundService):
    """Searches on the curves of earlier ones."""

    def run(self, experiment_id: int, asked: WhatIf) -> Replayed:
        """Simulate a search on an experiment's curves. Raises NotFound; Invalid where there is nothing to learn from,
        or the searcher cannot be; Conflict while another simulation runs."""
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            goal, space = row.config.searcher, row.config.hyperparameters
            curves = _Curves(session, row, goal)
            section = _section(goal, asked.searcher, len(curves.points))
            refuse_excess(self._settings.limits, StoredConfig({**row.config.to_json(), "searcher": section}))
        if asked.workers and "max_concurrent_trials" in searcher_keys(section):
            section["max_concurrent_trials"] = asked.workers
        workers = asked.workers or min(make_method(section, space).max_concurrent, 1024)
        request = {
            "searcher": section,
            "space": space,
            "points": curves.points,
            "values": curves.values,
            "seconds": curves.seconds,
            "workers": workers,
            "delay": asked.delay,
            "deaths": asked.deaths,
            "seeds": asked.seeds,
        }
        answer = _calculate(request)
        if "error" in answer:
            raise Invalid(f"searcher: {answer['error']}.")
        return Replayed(
            goal, str(section["name"]), workers, curves.recorded, len(curves.points), curves.short, answer["runs"]
        )


def _section(goal: SearchGoal, changes: Mapping[str, Any], trials: int) -> dict[str, Any]:
    """Return the section of the other searcher: what it shares with the experiment's, and the changes."""
    kept = goal.to_json()
    if changes.get("name") not in (None, goal.name):
        shared = ("metric", "smaller_is_better", "max_time", "time_metric", "max_trials", "max_concurrent_trials")
        kept = {key: kept[key] for key in shared if kept.get(key) is not None}
        kept |= {"time_metric": goal.units, "max_time": goal.length, "max_trials": kept.get("max_trials", trials)}
        known = searcher_keys({"name": changes["name"]})
        kept = {key: value for key, value in kept.items() if key in known and value is not None}
    return {**kept, **{key: value for key, value in changes.items() if value is not None}}


class _Curves:
    """Trials of an experiment as a simulation takes them: a value for each unit of the time metric, the last one that
    was reported by then."""

    def __init__(self, session: Session, row: Experiment, goal: SearchGoal) -> None:
        self.points: list[Json] = []
        self.values: list[list[float]] = []
        self.seconds: list[float] = []
        self.short = 0
        trials = list(
            session.scalars(
                select(Trial).where(Trial.experiment_id == row.id).order_by(Trial.id).limit(MOST_TRIALS + 1)
            )
        )
        if len(trials) > MOST_TRIALS:
            raise Invalid(f"Experiment {row.id} has more than {MOST_TRIALS} trials: too many to simulate here.")
        used = _used(session, row.id)
        blocks = series.blocks(session, [trial.id for trial in trials], Named("validation", goal.metric), goal.units)
        improvements: list[tuple[float, float]] = []
        total = 0
        for trial in trials:
            reports = [
                (piece.epoch(place) or piece.steps[place], piece.times[place] / 1e6, piece.values[place])
                for piece in blocks.get(trial.id, ())
                for place in range(len(piece.steps))
            ]
            last = int(max((units for units, _, _ in reports), default=0))
            if last < 1 or not used.get(trial.id):
                continue
            total += last
            if total > MOST_UNITS:
                raise Invalid(f"The curves of experiment {row.id} are too long to simulate here.")
            improvements += [(at, value) for _, at, value in reports]
            self.points.append(trial.hparams)
            self.values.append(_by_unit(reports, last))
            self.seconds.append(used[trial.id] / last)
            self.short += trial.stop == "searcher" and (goal.length is None or last < goal.length)
        if not self.points:
            raise Invalid(
                f"No trial of experiment {row.id} has reported {goal.metric} yet: there is nothing to replay."
            )
        slots = max(row.config.slots, 1)
        self.recorded: Json = {
            "bests": _bests(improvements, goal.smaller_is_better),
            "seconds": max(at for at, _ in improvements) - min(at for at, _ in improvements),
            "slot_seconds": sum(used.values()) * slots,
            "trials": len(trials),
            "lengths": [],
        }


def _used(session: Session, experiment_id: int) -> dict[int, float]:
    """Return the seconds that the jobs of each trial ran."""
    until = func.coalesce(Allocation.ended_at, func.now())
    query = (
        select(Allocation.trial_id, func.sum(func.extract("epoch", until - Allocation.leased_at)))
        .join(Trial, Trial.id == Allocation.trial_id)
        .where(Trial.experiment_id == experiment_id, Allocation.leased_at.is_not(None))
        .group_by(Allocation.trial_id)
    )
    return {int(trial): float(seconds) for trial, seconds in session.execute(query) if trial is not None}


def _by_unit(reports: Sequence[tuple[float, float, float]], last: int) -> list[float]:
    ordered = sorted(reports)
    values, place, now = [], 0, ordered[0][2]
    for unit in range(1, last + 1):
        while place < len(ordered) and ordered[place][0] <= unit:
            now = ordered[place][2]
            place += 1
        values.append(now)
    return values


def _bests(reports: Sequence[tuple[float, float]], smaller: bool) -> list[tuple[float, float]]:
    bests: list[tuple[float, float]] = []
    first = min(at for at, _ in reports)
    for at, value in sorted(reports):
        if not bests or (value < bests[-1][1] if smaller else value > bests[-1][1]):
            bests.append((at - first, value))
    return bests


def _calculate(request: Json) -> Json:
    if not _turn.acquire(timeout=TURN):
        raise Conflict("Another simulation runs: try again in a minute.")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster.master.search.simulated"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        done = None
    finally:
        _turn.release()
    if done is None or done.returncode != 0:
        raise Invalid(
            f"The simulation needs more than {CPU_SECONDS} s of a processor or too much memory: ask for fewer seeds."
        )
    answer: Json = json.loads(done.stdout)
    return answer
