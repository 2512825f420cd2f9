"""Recorded curves of trials, for searches that are simulated on them: those of an experiment, or of a user's table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.learning_curves import by_unit
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.search.axes import Axes
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.views.board import flattened
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.stored import Json

MOST_TRIALS, MOST_UNITS = 5_000, 2_000_000  # recorded ones; units of all their curves together
MOST_NAMES = 200  # hyperparameters of a table
LONGEST, LARGEST = 1_000, 1e300  # a text of a table, in characters; a number
SHOWN = 5  # values that a sentence names


@dataclass(frozen=True)
class RecordedTrials:
    """By trial: hyperparameters; a value for each unit; seconds of a unit. `units`: their name; empty for a table.
    `short`: trials that their search stopped, whose curves end there. `recorded`: what that search found, as a run;
    None for a table."""

    points: Sequence[Json]
    values: Sequence[Sequence[float]]
    seconds: Sequence[float]
    units: str = ""
    short: int = 0
    recorded: Json | None = None


def of_experiment(session: Session, row: Experiment, goal: SearchGoal) -> RecordedTrials:
    """Read the trials of an experiment that reported the goal's metric: for each unit the value that was reported last.
    The units are the goal's, or the experiment's where it names none. Raises Invalid where there are no such trials, or
    too many."""
    own = row.config.searcher
    units = goal.units if is_timed(goal) else own.units
    trials = list(
        session.scalars(select(Trial).where(Trial.experiment_id == row.id).order_by(Trial.id).limit(MOST_TRIALS + 1))
    )
    if len(trials) > MOST_TRIALS:
        raise Invalid(f"Experiment {row.id} has more than {MOST_TRIALS} trials: too many to simulate here.")
    used = _used(session, row.id)
    blocks = series.blocks(session, [trial.id for trial in trials], Named("validation", goal.metric), units)
    points, values, seconds, improvements, total, short = [], [], [], [], 0, 0
    for trial in trials:
        reports = [
            (piece.epoch(place) or piece.steps[place], piece.times[place] / 1e6, piece.values[place])
            for piece in blocks.get(trial.id, ())
            for place in range(len(piece.steps))
        ]
        last = int(max((done for done, _, _ in reports), default=0))
        if last < 1 or not used.get(trial.id):
            continue
        improvements += [(at, value) for _, at, value in reports]
        if trial.parent_id is not None:
            continue  # a copy: how its point would have begun is not known
        total += last
        if total > MOST_UNITS:
            raise Invalid(f"The curves of experiment {row.id} are too long to simulate here.")
        points.append(trial.hparams)
        values.append(by_unit([(done, value) for done, _, value in reports], last))
        seconds.append(used[trial.id] / last)
        short += trial.stop == "searcher" and (own.length is None or last < own.length)
    if not points:
        raise Invalid(f"No trial of experiment {row.id} has reported {goal.metric} yet: there is nothing to replay.")
    recorded = {
        "bests": _bests(improvements, goal.smaller_is_better),
        "spent": [],
        "seconds": max(at for at, _ in improvements) - min(at for at, _ in improvements),
        "slot_seconds": sum(used.values()) * max(row.config.slots, 1),
        "trials": len(trials),
        "lengths": [],
    }
    return RecordedTrials(points, values, seconds, units, short, recorded)


def of_table(
    points: Sequence[Json], values: Sequence[Sequence[float | None]], seconds: Sequence[float]
) -> RecordedTrials:
    """Check a table that a user sent; a value that is None was not a number. Raises Invalid."""
    if not points:
        raise Invalid("The table has no trials: points is empty.")
    if not len(points) == len(values) == len(seconds):
        raise Invalid(
            f"The table has {len(points)} points, {len(values)} lists of values and {len(seconds)} seconds: each trial "
            "needs one of each."
        )
    if len(points) > MOST_TRIALS:
        raise Invalid(f"The table has {len(points)} trials; at most {MOST_TRIALS} can be simulated here.")
    units = sum(map(len, values))
    if units > MOST_UNITS:
        raise Invalid(f"The table has {units} values; at most {MOST_UNITS} can be simulated here.")
    for place, (point, row, pace) in enumerate(zip(points, values, seconds, strict=True), 1):
        if len(point) > MOST_NAMES:
            raise Invalid(f"Trial {place} of the table has {len(point)} hyperparameters; at most {MOST_NAMES} may be.")
        odd = next((name for name, value in point.items() if not _is_plain(value)), None)
        if odd is not None:
            raise Invalid(
                f"Trial {place} of the table: {odd:.100} must be a text of at most {LONGEST} characters, a finite "
                "number, true or false."
            )
        if not row:
            raise Invalid(f"Trial {place} of the table has no values: leave it out.")
        if not 0 < pace < math.inf:
            raise Invalid(f"Trial {place} of the table: seconds of a unit must be above 0, found {pace:g}.")
    numbers = [[math.nan if value is None else value for value in row] for row in values]
    return RecordedTrials(points, numbers, seconds)


def is_timed(goal: SearchGoal) -> bool:
    """Whether a search says in which units its trials are measured."""
    return bool(goal.time_metric) or goal.length is not None


def refuse_unlike(recorded: RecordedTrials, space: Mapping[str, Any], goal: SearchGoal) -> None:
    """Raise Invalid where a space has what the curves say nothing of."""
    points = [flattened(point) for point in recorded.points]
    for axis in Axes(space).all:
        name = ".".join(axis.path)
        known = [point[name] for point in points if name in point]
        if not known:
            raise Invalid(f"hyperparameters.{name}: no recorded trial has it. Record it, or make it a constant.")
        listed = axis.steps if axis.steps is not None and axis.kind == "categorical" else axis.categories
        if listed is not None and not any(value in listed for value in known):
            shown = ", ".join(map(repr, sorted(set(map(str, known)))[:SHOWN]))
            raise Invalid(f"hyperparameters.{name}: no recorded trial has one of its values; they have {shown}.")
    longest = max(map(len, recorded.values))
    if recorded.recorded is None and goal.length is not None and longest < goal.length:
        raise Invalid(
            f"searcher.max_time is {goal.length}, but the curves of the table end at {longest} {goal.units}: set it to "
            "that, or record longer ones."
        )


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= LONGEST
    return isinstance(value, bool | int | float) and -LARGEST <= value <= LARGEST


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


def _bests(reports: Sequence[tuple[float, float]], smaller: bool) -> list[tuple[float, float]]:
    bests: list[tuple[float, float]] = []
    first = min(at for at, _ in reports)
    for at, value in sorted(reports):
        if math.isfinite(value) and (not bests or (value < bests[-1][1] if smaller else value > bests[-1][1])):
            bests.append((at - first, value))
    return bests
