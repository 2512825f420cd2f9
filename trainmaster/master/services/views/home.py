"""What one user needs to know first: what went wrong, what runs, what waits and why and until when."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ARRAY, Double, Integer, and_, any_, case, cast, func, literal, select
from sqlalchemy.orm import Session

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import METRICS_OF, Allocation, Experiment, Project, Trial
from trainmaster.master.lifecycle.states import AllocationState, State
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.experiments import experiments
from trainmaster.master.services.experiments.experiments import ExperimentView
from trainmaster.master.services.views import attempts_view
from trainmaster.master.values.observed import ObservedJob

MOST = 50  # of each list
LATELY = dt.timedelta(days=7)  # for which a failure needs its owner
JUST = dt.timedelta(days=1)  # for which an end is news
RECENT = 30  # values of a sparkline
RECENT_REPORTS = 300  # of the best trial, among which they are looked for
SLOWEST = 0.02  # progress from which an end is foretold
MINUTE = 60
_RUNNING = (AllocationState.RUNNING.value, AllocationState.TERMINATING.value, AllocationState.STARTING.value)


@dataclass(frozen=True)
class Entry:
    """An experiment with what its jobs do. Times are seconds since 1970."""

    view: ExperimentView
    state: str
    why: str
    since: float
    running: int = 0
    waiting: int = 0
    slots_used: int = 0
    slot_seconds: float = 0.0
    expected_start: float | None = None
    expected_error: float | None = None
    recent: Sequence[float] = ()
    failed_trial: int | None = None
    eta: float | None = None


@dataclass(frozen=True)
class TaskEntry:
    row: Standalone
    latest: Allocation | None


@dataclass(frozen=True)
class Home:
    """`total`: the user's experiments; `others`: experiments of others, which the user may see, that are active."""

    needs: Sequence[Entry]
    runs: Sequence[Entry]
    waits: Sequence[Entry]
    done: Sequence[Entry]
    tasks: Sequence[TaskEntry]
    total: int
    others: int


@dataclass
class _Jobs:
    """The live jobs of an experiment, and what all of its jobs have used."""

    running: int = 0
    waiting: int = 0
    slots: int = 0
    slot_seconds: float = 0.0
    why: str = ""
    since: float | None = None
    expected: float | None = None


class HomePages(BoundService):
    """A user's home page."""

    def read(self, caller: Caller) -> Home:
        """Return what its caller's experiments and tasks do, with a bounded number of statements."""
        with self._store.transaction() as session:
            e = Experiment
            visible = and_(e.owner_id == caller.user_id, ~e.archived, _seen(caller))
            joined = select(e.id).join(Project, Project.id == e.project_id).where(visible)
            live = joined.where(e.end_time.is_(None)).order_by(e.id.desc()).limit(MOST * 2)
            failed = joined.where(e.state == State.ERROR.value, e.end_time > now() - LATELY).order_by(e.end_time.desc())
            ended = joined.where(
                e.state.in_((State.COMPLETED.value, State.CANCELED.value)), e.end_time > now() - JUST
            ).order_by(e.end_time.desc())
            ids = [key for query in (live, failed.limit(MOST), ended.limit(10)) for key in session.scalars(query)]
            views = {view.row.id: view for view in experiments.views_of(session, ids)}
            entries = _entries(session, [views[key] for key in ids if key in views])
            total = session.scalar(select(func.count()).select_from(e).where(e.owner_id == caller.user_id)) or 0
            others = session.scalar(
                select(func.count())
                .select_from(e)
                .join(Project, Project.id == e.project_id)
                .where(e.owner_id != caller.user_id, e.state == State.ACTIVE.value, _seen(caller))
            )
            tasks = _tasks(session, caller)
        needs, runs, waits, done = _sorted(entries)
        return Home(needs[:MOST], runs[:MOST], waits[:MOST], done[:10], tasks, total, others or 0)


def _seen(caller: Caller) -> Any:
    return literal(True) if caller.workspaces is None else Project.workspace_id.in_(caller.workspaces)


def _sorted(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry], list[Entry], list[Entry]]:
    needs, runs, waits, done = [], [], [], []
    for entry in entries:
        state = entry.view.row.state
        if state in (State.ERROR, State.DELETE_FAILED):
            needs.append(entry)
        elif state in (State.COMPLETED, State.CANCELED):
            done.append(entry)
        elif entry.state == "QUEUED":
            waits.append(entry)
        else:
            runs.append(entry)
    return needs, runs, waits, done


def _entries(session: Session, views: Sequence[ExperimentView]) -> list[Entry]:
    ids = [view.row.id for view in views]
    if not ids:
        return []
    jobs = _jobs(session, ids)
    recent = _recent(session, [view.row for view in views])
    failed = _failed(session, [view.row.id for view in views if view.row.state == State.ERROR])
    errors: dict[str, float | None] = {}
    entries = []
    for view in views:
        row, use = view.row, jobs[view.row.id]
        state = row.state
        if state == State.ACTIVE:
            state = "RUNNING" if row.unmanaged else view.phase
        waits = state == "QUEUED"
        entry = Entry(
            view=view,
            state=state,
            why=use.why if state in experiments.PHASES else row.reason,
            since=use.since if waits and use.since is not None else epoch(row.end_time or row.start_time),
            running=use.running,
            waiting=use.waiting,
            slots_used=use.slots,
            slot_seconds=round(use.slot_seconds, 1),
            recent=recent.get(row.id, ()),
            eta=None if waits else _end_of(row),
        )
        if waits and use.expected is not None:
            if row.resource_pool not in errors:
                errors[row.resource_pool] = attempts_view.expected_error(session, row.resource_pool)
            entry = replace(entry, expected_start=use.expected, expected_error=errors[row.resource_pool])
        if row.id in failed:
            entry = replace(entry, failed_trial=failed[row.id])
        entries.append(entry)
    return entries


def _jobs(session: Session, ids: Sequence[int]) -> dict[int, _Jobs]:
    a = Allocation
    moment = now()
    this_minute = moment - dt.timedelta(seconds=moment.timestamp() % MINUTE)
    ran = func.greatest(func.extract("epoch", func.coalesce(a.ended_at, this_minute) - a.leased_at), 0.0)
    of_experiments = Trial.experiment_id == any_(literal(list(ids), ARRAY(Integer)))
    used = (
        select(Trial.experiment_id, cast(func.sum(ran * a.slots), Double))
        .join(Trial, Trial.id == a.trial_id)
        .where(of_experiments, a.leased_at.is_not(None))
        .group_by(Trial.experiment_id)
    )
    jobs: dict[int, _Jobs] = defaultdict(_Jobs)
    for key, seconds in session.execute(used):
        jobs[key].slot_seconds = seconds or 0.0
    expected = cast(a.observed[ObservedJob.EXPECTED_START].as_string(), Double)
    waits = and_(a.leased_at.is_(None), a.state.not_in(_RUNNING))
    live = (
        select(
            Trial.experiment_id,
            func.count().filter(a.state.in_(_RUNNING)).label("running"),
            func.count().filter(waits).label("waiting"),
            func.coalesce(func.sum(a.slots).filter(a.state.in_(_RUNNING)), 0).label("slots"),
            func.min(a.created_at).filter(waits).label("since"),
            func.min(expected).filter(waits).label("expected"),
            func.max(case((waits, a.explanation), else_="")).label("why"),
        )
        .join(Trial, Trial.id == a.trial_id)
        .where(of_experiments, a.ended_at.is_(None))
        .group_by(Trial.experiment_id)
    )
    for row in session.execute(live):
        use = jobs[row.experiment_id]
        use.running, use.waiting, use.slots = row.running, row.waiting, int(row.slots)
        use.since = None if row.since is None else epoch(row.since)
        use.expected, use.why = row.expected, row.why or ""
    return jobs


def _recent(session: Session, rows: Sequence[Experiment]) -> dict[int, list[float]]:
    """Return the searcher's metric of the best trials, the newest value last."""
    wanted = {row.best_trial_id: row for row in rows if row.best_trial_id is not None and row.searcher_metric}
    if not wanted:
        return {}
    m = METRICS_OF["validation"].c
    best = func.unnest(literal(list(wanted), ARRAY(Integer))).column_valued("trial")
    latest = (
        select(m.steps, m.metrics["validation_metrics"].label("reported"))
        .where(m.trial_id == best, ~m.archived)
        .order_by(m.steps.desc(), m.id.desc())
        .limit(RECENT_REPORTS)
        .lateral()
    )
    recent: dict[int, list[float]] = defaultdict(list)
    for trial, steps, reported in session.execute(
        select(best, latest.c.steps, latest.c.reported).join(latest, literal(True)).order_by(best, latest.c.steps)
    ):
        del steps
        value = (reported or {}).get(wanted[trial].searcher_metric)
        if isinstance(value, int | float):
            recent[wanted[trial].id].append(float(value))
    return {key: values[:: max(1, len(values) // RECENT)][-RECENT:] for key, values in recent.items()}


def _failed(session: Session, ids: Sequence[int]) -> Mapping[int, int]:
    """Return the first trial of each experiment that failed."""
    if not ids:
        return {}
    query = (
        select(Trial.experiment_id, func.min(Trial.id))
        .where(Trial.experiment_id.in_(ids), Trial.state == State.ERROR.value)
        .group_by(Trial.experiment_id)
    )
    return {key: trial for key, trial in session.execute(query)}


def _end_of(row: Experiment) -> float | None:
    """When it will have ended at the speed that it has had so far."""
    if row.state != State.ACTIVE or not SLOWEST < row.progress < 1:
        return None
    moment = now().timestamp()
    passed = moment - epoch(row.start_time)
    return round((moment + passed * (1 - row.progress) / row.progress) / MINUTE) * MINUTE


def _tasks(session: Session, caller: Caller) -> list[TaskEntry]:
    latest = and_(Allocation.task_id == Standalone.task_id, Allocation.attempt == Standalone.attempts)
    live = [Standalone.owner_id == caller.user_id, Standalone.end_time.is_(None)]
    if caller.workspaces is not None:
        live.append(Standalone.workspace_id.in_(caller.workspaces))
    query = select(Standalone, Allocation).outerjoin(Allocation, latest).where(*live)
    rows = session.execute(query.order_by(Standalone.start_time.desc()).limit(MOST))
    return [TaskEntry(row[0], row[1]) for row in rows]
