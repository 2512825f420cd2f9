"""The board of an experiment: all its trials as slim rows, who is on which rung, what it waits for and what it costs.

A handful of statements, however many trials there are, in one snapshot of the database. Durations
are rounded to the minute, so that an unchanged board keeps its ETag.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Double, cast, func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.lifecycle.states import AllocationState, State
from trainmaster.master.search import BracketRanking, SearchError
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.experiments import experiments
from trainmaster.master.services.experiments.experiments import ExperimentView
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.orchestration import stored_search
from trainmaster.master.services.orchestration.experiment_orchestrator import PAUSED
from trainmaster.master.services.views import curves, search_pauses
from trainmaster.master.services.views.curves import CurveGrid
from trainmaster.master.services.views.experiment_table import LONGEST_TEXT, cell
from trainmaster.master.services.views.search_pauses import SearchPause
from trainmaster.master.values.observed import ObservedJob
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.validation import StoredValidation

BASE = (
    "id",
    "state",
    "why",
    "stop",
    "searchPause",
    "pauses",
    "parent",
    "best",
    "bestSteps",
    "last",
    "steps",
    "units",
    "unitsFrom",
    "progress",
    "bracket",
    "rung",
    "rank",
    "attempts",
    "restarts",
    "job",
    "nodes",
    "waits",
    "waitingSince",
    "expectedStart",
    "started",
    "ended",
    "slotSeconds",
    "secondsPerUnit",
    "checkpoints",
    "size",
)
MOST_HPARAMS = 200
MOST_METRICS = 10_000
SEARCHER = "searcher"  # who stops a trial
PAUSED_BY_SEARCH = "PAUSED_BY_SEARCH"  # as what such a trial is counted
MINUTE = 60


@dataclass(frozen=True)
class JobUse:
    """The latest attempt of a trial, and what all of them have used, in seconds."""

    state: str = ""
    job: str | None = None
    nodes: Sequence[str] = ()
    waits: str = ""
    since: float | None = None
    expected_start: float | None = None
    seconds: float = 0.0
    slot_seconds: float = 0.0


@dataclass(frozen=True)
class Board:
    view: ExperimentView
    goal: SearchGoal
    why: str
    counts: Mapping[str, int]
    slot_seconds: float
    seconds_saved: float | None
    metrics: Sequence[tuple[str, str]]
    hparams: Sequence[str]
    hparam_types: Mapping[str, str]
    constants: Mapping[str, Any]
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    brackets: Sequence[BracketRanking]
    trial_ids: Mapping[int, int]  # of the search's numbers
    curves: CurveGrid | None


@dataclass(frozen=True)
class CurvesRequest:
    metric: Named | None = None
    x_name: str = ""
    points: int = 200
    since: int = 0  # the `seq` of earlier curves: only those that have more


class Boards(BoundService):
    """Boards of experiments."""

    def read(self, experiment_id: int, wanted: CurvesRequest | None) -> Board:
        """All of it; the curves only if wanted. Raises NotFound, Invalid."""
        with self._store.transaction() as session:
            series.one_moment(session)
            views = experiments.views_of(session, [experiment_id])
            if not views:
                raise NotFound(f"There is no experiment {experiment_id}.")
            view, row = views[0], views[0].row
            goal = row.config.searcher
            trials = search_trials(session, row.id, goal)
            jobs = job_uses(session, Trial.experiment_id == row.id)
            pauses = search_pauses.read(session, row.id)
            brackets, numbers = _ranking(session, row)
            grid = (
                curves.read(session, row, wanted.metric, wanted.x_name, wanted.points, wanted.since) if wanted else None
            )
            metrics = _metrics(session, row.id)
        by_request = {trial.request_id: trial.id for trial in trials}
        trial_ids = {at: by_request[key] for at, key in enumerate(numbers) if key in by_request}
        places = _places(brackets, trial_ids)
        flat = {trial.id: flattened(trial.hparams) for trial in trials}
        names, constants = _varying(list(flat.values()))
        rows, saved = [], 0.0
        for trial in trials:
            use = jobs.get(trial.id, JobUse())
            stood = pauses.get(trial.id, ())
            values, spared = _row(trial, goal, use, places.get(trial.id), row.config.slots, stood)
            rows.append([*values, *(cell(flat[trial.id].get(name)) for name in names)])
            saved += spared
        counts = Counter(_counted(dict(zip(BASE, values, strict=False)), goal) for values in rows)
        return Board(
            view=view,
            goal=goal,
            why=_why(view, goal, counts, brackets, [jobs[trial.id] for trial in trials if trial.id in jobs]),
            counts=counts,
            slot_seconds=sum(use.slot_seconds for use in jobs.values()),
            seconds_saved=saved if brackets else None,
            metrics=metrics,
            hparams=names,
            hparam_types=types_of(row.config.hyperparameters),
            constants=constants,
            columns=[*BASE, *(f"hp.{name}" for name in names)],
            rows=rows,
            brackets=brackets,
            trial_ids=trial_ids,
            curves=grid,
        )


# -- reading ------------------------------------------------------------------------------------------------------


def search_trials(session: Session, experiment_id: int, goal: SearchGoal) -> Sequence[Any]:
    """Return the trials of an experiment, as slim rows."""
    t = Trial.__table__.c
    validations = t.summary_metrics["validation_metrics"]
    query = (
        select(
            t.id,
            t.request_id,
            t.state,
            t.reason,
            t.stop,
            t.search_pause,
            t.parent_id,
            t.hparams,
            t.searcher_metric.label("best"),
            t.best_validation[StoredValidation.STEPS].label("best_steps"),
            validations[goal.metric]["last"].label("last"),
            validations[goal.units]["max"].label("units"),
            validations[goal.units]["min"].label("units_from"),
            t.total_batches,
            t.progress,
            t.attempts,
            t.restarts,
            cast(func.extract("epoch", t.start_time), Double).label("started"),
            cast(func.extract("epoch", t.end_time), Double).label("ended"),
            t.checkpoint_count,
            t.checkpoint_size,
        )
        .where(t.experiment_id == experiment_id)
        .order_by(t.id)
    )
    return session.execute(query).all()


def job_uses(session: Session, of_jobs: Any) -> dict[int, JobUse]:
    """Return the latest attempt of each trial that fits a condition, and what its attempts have used up to this
    minute."""
    a = Allocation
    moment = now()
    this_minute = moment - dt.timedelta(seconds=moment.timestamp() % MINUTE)
    ran = cast(func.greatest(func.extract("epoch", func.coalesce(a.ended_at, this_minute) - a.leased_at), 0.0), Double)
    used = (
        select(a.trial_id, func.sum(ran).label("seconds"), func.sum(ran * a.slots).label("slot_seconds"))
        .join(Trial, Trial.id == a.trial_id)
        .where(of_jobs, a.leased_at.is_not(None))
        .group_by(a.trial_id)
    )
    sums = {row.trial_id: (row.seconds, row.slot_seconds) for row in session.execute(used)}
    latest = (
        select(a.trial_id, a.state, a.native_id, a.observed, a.explanation, a.created_at, a.leased_at, a.ended_at)
        .ext(distinct_on(a.trial_id))
        .join(Trial, Trial.id == a.trial_id)
        .where(of_jobs)
        .order_by(a.trial_id, a.created_at.desc())
    )
    uses = {}
    for row in session.execute(latest):
        observed = row.observed or ObservedJob()
        waits = row.ended_at is None and row.leased_at is None
        seconds, slot_seconds = sums.get(row.trial_id, (0.0, 0.0))
        uses[row.trial_id] = JobUse(
            state="" if row.ended_at is not None else row.state,
            job=row.native_id,
            nodes=list(observed.nodes),
            waits=row.explanation if waits else "",
            since=epoch(row.created_at) if waits else None,
            expected_start=observed.expected_start if waits else None,
            seconds=seconds,
            slot_seconds=slot_seconds,
        )
    return uses


def _ranking(session: Session, row: Experiment) -> tuple[Sequence[BracketRanking], Sequence[str]]:
    """Return the rungs, and the request ids of the search's trials; nothing where there is no search that can be
    read."""
    if row.unmanaged:
        return (), ()
    try:
        search = stored_search.read(session, row)
    except SearchError:  # of an older release, or of a plugin that is gone: the trials can be shown all the same
        return (), ()
    rankings = search.rankings()
    return rankings, search.request_ids if rankings else ()


def _metrics(session: Session, experiment_id: int) -> list[tuple[str, str]]:
    t = Trial.__table__.c
    group = func.jsonb_object_keys(t.summary_metrics)
    each = select(t.summary_metrics, group.label("key")).where(t.experiment_id == experiment_id).subquery().c
    name = func.jsonb_object_keys(each.summary_metrics[each.key])
    rows = session.execute(select(each.key, name).distinct().limit(MOST_METRICS))
    return sorted((GROUPS.get(key, key), metric) for key, metric in rows)


GROUPS = {"avg_metrics": "training", "validation_metrics": "validation"}


# -- shaping ------------------------------------------------------------------------------------------------------


@dataclass
class _Place:
    bracket: int
    rung: int | None = None  # the highest it has reached
    rank: int | None = None  # there, from 1


def _places(brackets: Sequence[BracketRanking], ids: Mapping[int, int]) -> dict[int, _Place]:
    places: dict[int, _Place] = {}
    for number, bracket in enumerate(brackets):
        for trial in bracket.trials:
            if trial in ids:
                places[ids[trial]] = _Place(number)
        for at, rung in enumerate(bracket.rungs):
            for rank, trial in enumerate(rung.trials, 1):
                if trial in ids and ids[trial] in places:
                    place = places[ids[trial]]
                    place.rung, place.rank = at, rank
    return places


def _row(
    trial: Any, goal: SearchGoal, use: JobUse, place: _Place | None, slots: int, pauses: Sequence[SearchPause]
) -> tuple[list[Any], float]:
    """Return the values of a trial in the order of BASE, and the slot-seconds that stopping it has saved."""
    units, pace = units_of(trial), pace_of(trial, use)
    values = [
        trial.id,
        state_of(trial.state, use.state),
        why_of(trial, pauses)[:LONGEST_TEXT],
        trial.stop or "",
        trial.search_pause,
        len(pauses),
        trial.parent_id,
        cell(trial.best),
        trial.best_steps,
        cell(trial.last),
        trial.total_batches,
        units,
        trial.units_from if isinstance(trial.units_from, int | float) else None,
        round(trial.progress, 4),
        None if place is None else place.bracket,
        None if place is None else place.rung,
        None if place is None else place.rank,
        trial.attempts,
        trial.restarts,
        use.job,
        list(use.nodes),
        use.waits[:LONGEST_TEXT],
        use.since,
        use.expected_start,
        trial.started,
        trial.ended,
        round(use.slot_seconds, 1),
        None if pace is None else round(pace, 3),
        trial.checkpoint_count,
        trial.checkpoint_size,
    ]
    return values, spared(trial, goal, use, slots) or 0.0


def units_of(trial: Any) -> float:
    """Return how many units a row of `search_trials` has trained."""
    return trial.units if isinstance(trial.units, int | float) else int(trial.total_batches)


def pace_of(trial: Any, use: JobUse) -> float | None:
    """Return the seconds that a unit took; None where that is not known."""
    units = units_of(trial)
    return use.seconds / units if units and use.seconds else None


def cut_short(trial: Any, goal: SearchGoal) -> bool:
    """Whether the search stopped a trial before its full length."""
    return trial.stop == SEARCHER and goal.length is not None and units_of(trial) < goal.length


def spared(trial: Any, goal: SearchGoal, use: JobUse, slots: int) -> float | None:
    """Return the slot-seconds that a trial would have used further, at its own speed, had the search not cut it short;
    None where its speed is not known. `webui/app/lib/savings.js` counts the same."""
    if goal.length is None or not cut_short(trial, goal):
        return 0.0
    pace = pace_of(trial, use)
    return None if pace is None else (goal.length - units_of(trial)) * pace * slots


def why_of(trial: Any, pauses: Sequence[SearchPause]) -> str:
    """Return why a trial is in its state: for one that the search has paused, the reason of the pause."""
    return pauses[-1].why if trial.search_pause == PAUSED and pauses else str(trial.reason)


def state_of(state: str, job: str) -> str:
    """Return a trial's state, with the phase of one that is active: that of its job."""
    return experiments.phase_of(AllocationState(job)) if state == State.ACTIVE and job else _queued(state)


def _queued(state: str) -> str:
    return "QUEUED" if state == State.ACTIVE else state


def _counted(values: Mapping[str, Any], goal: SearchGoal) -> str:
    """Return the state by which a trial is counted: STOPPED for one that the search stopped before its end, another one
    for those that it has paused than for those that a person has."""
    if values["state"] == State.PAUSED and values["searchPause"] == PAUSED:
        return PAUSED_BY_SEARCH
    early = values["stop"] == SEARCHER and goal.length is not None and values["units"] < goal.length
    return "STOPPED" if early and values["state"] == State.COMPLETED else str(values["state"])


def flattened(hparams: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested hyperparameters by dotted names."""
    flat: dict[str, Any] = {}
    for name, value in hparams.items():
        if isinstance(value, dict) and value:
            flat |= flattened(value, f"{above}{name}.")
        else:
            flat[above + name] = value
    return flat


def types_of(hyperparameters: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Return what a configuration says of hyperparameters, by dotted names; nothing of those that are plain values."""
    types: dict[str, str] = {}
    for name, value in list(hyperparameters.items())[:MOST_HPARAMS]:
        if isinstance(value, dict) and isinstance(value.get("type"), str):
            types[above + name] = value["type"]
        elif isinstance(value, dict):
            types |= types_of(value, f"{above}{name}.")
    return types


def _varying(each: Sequence[Mapping[str, Any]]) -> tuple[list[str], dict[str, Any]]:
    """Names of hyperparameters that differ between trials, and the others with their value."""
    values: dict[str, set[str]] = {}
    for hparams in each:
        for name, value in hparams.items():
            values.setdefault(name, set()).add(json.dumps(value, sort_keys=True))
    everywhere = Counter(name for hparams in each for name in hparams)
    varying = [name for name in values if len(values[name]) > 1 or everywhere[name] < len(each)][:MOST_HPARAMS]
    first = each[0] if each else {}
    rest = {name: cell(first[name]) for name in values if name in first and name not in varying}
    return varying, dict(list(rest.items())[:MOST_HPARAMS])


def _why(
    view: ExperimentView,
    goal: SearchGoal,
    counts: Mapping[str, int],
    brackets: Sequence[BracketRanking],
    jobs: Iterable[JobUse],
) -> str:
    row = view.row
    if row.state != State.ACTIVE:
        return row.reason
    waits = Counter(use.waits for use in jobs if use.since is not None)
    parts = [f"{counts[state]:,} {word}" for state, word in _WORDS.items() if counts.get(state)]
    sentence = ", ".join(parts) + (f" of {goal.max_trials:,} trials" if goal.max_trials else "")
    reached = [at + 1 for bracket in brackets for at, rung in enumerate(bracket.rungs) if rung.trials]
    if reached:
        sentence += f"; the furthest have reached rung {max(reached)} of {max(len(one.rungs) for one in brackets)}"
    why = next((text for text, _ in waits.most_common() if text), "")
    return sentence + (f"; waiting: {why}" if why else "")


_WORDS = {
    "RUNNING": "running",
    "STARTING": "starting",
    "PULLING": "pulling their image",
    "QUEUED": "waiting",
    "PAUSED": "paused",
    PAUSED_BY_SEARCH: "paused by the search",
    "STOPPED": "stopped by the search",
    "COMPLETED": "completed",
    "ERROR": "failed",
    "CANCELED": "canceled",
}
