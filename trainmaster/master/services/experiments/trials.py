"""Lists, gets and kills trials, and lists their checkpoints."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Double,
    Integer,
    Select,
    Text,
    Uuid,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import METRICS_OF, Allocation, Checkpoint, Experiment, Project, Task, Trial
from trainmaster.master.lifecycle import trial as lifecycle
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.metrics.metric_reports import StoredReport, stored_reports
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.paging import Page, Window, cut
from trainmaster.master.values.configs import StoredConfig

# The searcher's metric in the latest validation; `metric` is bound by the list.
_LATEST = func.jsonb_extract_path(
    Trial.__table__.c.latest_validation, "metrics", "avgMetrics", bindparam("metric", type_=Text), type_=JSONB
)
SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": Trial.__table__.c.id,
    "start_time": Trial.__table__.c.start_time,
    "end_time": Trial.__table__.c.end_time,
    "state": Trial.__table__.c.state,
    "best_validation_metric": Trial.__table__.c.searcher_metric,
    "latest_validation_metric": case((func.jsonb_typeof(_LATEST) == "number", _LATEST)),  # all other states come last
    "batches_processed": Trial.__table__.c.total_batches,
    "duration": func.coalesce(Trial.__table__.c.end_time, func.now()) - Trial.__table__.c.start_time,
    "restarts": Trial.__table__.c.restarts,
    "checkpoint_size": Trial.__table__.c.checkpoint_size,
    "log_retention_days": Trial.__table__.c.log_retention_days,
}


@dataclass(frozen=True)
class CheckpointView:
    row: Checkpoint
    trial: Trial | None
    config: StoredConfig | None


@dataclass(frozen=True)
class Workload:
    """One line of a trial's history; exactly one member is set."""

    training: StoredReport | None = None
    validation: StoredReport | None = None
    checkpoint: Checkpoint | None = None


WORKLOADS = ("training", "validation", "checkpoint")


class Trials(BoundService):
    """Trials, their tasks, attempts and checkpoints."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def get(self, trial_id: int) -> tuple[Trial, Checkpoint | None]:
        """Return the trial and its best checkpoint."""
        with self._store.transaction() as session:
            trial = session.get(Trial, trial_id)
            if trial is None:
                raise NotFound(f"There is no trial {trial_id}.")
            return trial, _best_checkpoint(session, trial)

    def list_page(
        self, experiment_id: int, states: Sequence[str], sort_by: str, descending: bool, offset: int, limit: int
    ) -> Page[Trial]:
        statement = select(Trial.id).where(Trial.experiment_id == experiment_id)
        if states:
            statement = statement.where(Trial.state.in_(states))
        column = SORTS[sort_by]
        with self._store.transaction() as session:
            metric = session.scalar(select(Experiment.searcher_metric).where(Experiment.id == experiment_id))
            if metric is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            order = column.desc().nulls_last() if descending else column.asc().nulls_last()
            ordered = statement.order_by(order, Trial.id.desc() if descending else Trial.id)
            ids = list(session.scalars(ordered.offset(window.start).limit(window.size).params(metric=metric)))
            rows = {
                row.id: row
                for row in session.scalars(select(Trial).where(Trial.id == any_(literal(ids, ARRAY(Integer)))))
            }
            return Page([rows[key] for key in ids if key in rows], window)

    def kill(self, caller: Caller, trial_id: int) -> None:
        with self._store.transaction() as session:
            experiment_id = session.scalar(select(Trial.experiment_id).where(Trial.id == trial_id))
        if experiment_id is None:
            raise NotFound(f"There is no trial {trial_id}.")
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            caller.require_owner(f"Trial {trial_id}", orchestrator.row.owner_id)
            trial = orchestrator.session.get_one(Trial, trial_id)
            orchestrator.trial_event(trial, lifecycle.Stop(lifecycle.StopCause.KILL, f"killed by {caller.username}"))

    def workloads(
        self,
        trial_id: int,
        offset: int,
        limit: int,
        kinds: Collection[str] = WORKLOADS,
        *,
        descending: bool = False,
        without_deleted: bool = False,
        by: MetricOrder | None = None,
    ) -> Page[Workload]:
        """List reports and checkpoints of a trial by their steps; for the same steps reports as they came, then
        checkpoints. `kinds`: some of WORKLOADS; `without_deleted`: no deleted checkpoints; `by`: first by the values of
        a metric, rows without one last."""
        c = Checkpoint.__table__.c
        with self._store.transaction() as session:
            if session.scalar(select(Trial.id).where(Trial.id == trial_id)) is None:
                raise NotFound(f"There is no trial {trial_id}.")
            parts = _parts(trial_id, kinds, by, without_deleted=without_deleted)
            total = sum(session.scalar(select(func.count()).select_from(part.subquery())) or 0 for part in parts)
            window = cut(offset, limit, total)
            page = session.execute(_history(parts, window, descending, by_value=by is not None)).all()
            stored = stored_reports(session, [row.turn for row in page if row.uuid is None], list(_REPORTS))
            wanted = [row.uuid for row in page if row.uuid is not None]
            checkpoints = {row.uuid: row for row in session.scalars(select(Checkpoint).where(c.uuid.in_(wanted)))}
        loads = (
            _workload(stored[r.turn]) if r.uuid is None else Workload(checkpoint=checkpoints[r.uuid]) for r in page
        )
        return Page(list(loads), window)

    def get_checkpoint(self, key: str) -> CheckpointView:
        try:
            wanted = uuid.UUID(key)
        except ValueError:
            raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
        with self._store.transaction() as session:
            row = session.get(Checkpoint, wanted)
            if row is None:
                raise NotFound(f"There is no checkpoint {key}.")
            return view_of_checkpoint(session, row)

    def list_checkpoints(
        self,
        *,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        states: Sequence[str] = (),
        sort_by: str = "end_time",
        metric: str = "",
        descending: bool | None = None,
        offset: int = 0,
        limit: int = 0,
    ) -> Page[CheckpointView]:
        """List checkpoints. `metric`: a validation metric to sort by. It and the searcher's put the best first by
        default."""
        statement = select(Checkpoint)
        if experiment_id is not None:
            statement = statement.where(Checkpoint.experiment_id == experiment_id)
        if trial_id is not None:
            statement = statement.where(Checkpoint.trial_id == trial_id)
        if states:
            statement = statement.where(Checkpoint.state.in_(states))
        with self._store.transaction() as session:
            owner = experiment_id or session.scalar(select(Trial.experiment_id).where(Trial.id == (trial_id or 0)))
            experiment = session.get(Experiment, owner) if owner else None
            if experiment is None:
                raise NotFound(
                    f"There is no experiment {experiment_id}." if experiment_id else f"There is no trial {trial_id}."
                )
            if descending is None:
                descending = bool(metric or sort_by == "searcher_metric") and not experiment.smaller_is_better
            column = _validation_metric(metric) if metric else CHECKPOINT_SORTS[sort_by]
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            order = column.desc().nulls_last() if descending else column.asc().nulls_last()
            rows = list(
                session.scalars(statement.order_by(order, Checkpoint.uuid).offset(window.start).limit(window.size))
            )
            trials = {
                t.id: t for t in session.scalars(select(Trial).where(Trial.id.in_({row.trial_id for row in rows})))
            }
            views = [CheckpointView(row, trials.get(row.trial_id or 0), experiment.config) for row in rows]
            return Page(views, window)

    def check_all(self, caller: Caller, trial_ids: Sequence[int]) -> None:
        """Raise NotFound for one that is not there, Forbidden when one of them is in a workspace where the caller
        lacks the request's permission."""
        query = select(Trial.id, Project.workspace_id).join(Experiment, Experiment.id == Trial.experiment_id)
        query = query.join(Project, Project.id == Experiment.project_id).where(Trial.id.in_(trial_ids))
        with self._store.transaction() as session:
            homes = {trial_id: workspace_id for trial_id, workspace_id in session.execute(query)}
        for trial_id in trial_ids:
            absent = f"There is no trial {trial_id}."
            if trial_id not in homes:
                raise NotFound(absent)
            caller.check(homes[trial_id], absent)

    def tasks_of_trial(self, trial_id: int) -> list[str]:
        """Return the tasks of a trial: one more for each time that it was continued, the latest one last."""
        with self._store.autocommit() as session:
            row = session.execute(select(Trial.earlier_tasks, Trial.task_id).where(Trial.id == trial_id)).first()
        if row is None:
            raise NotFound(f"There is no trial {trial_id}.")
        return [*row.earlier_tasks, row.task_id]

    def task_with_allocations(self, task_id: str) -> tuple[Task, list[Allocation]]:
        with self._store.transaction() as session:
            task = session.get(Task, task_id)
            if task is None:
                raise NotFound(f"There is no task {task_id}.")
            query = select(Allocation).where(Allocation.task_id == task_id).order_by(Allocation.attempt)
            return task, list(session.scalars(query))

    def get_allocation(self, allocation_id: str) -> Allocation:
        with self._store.autocommit() as session:
            allocation = session.get(Allocation, allocation_id)
        if allocation is None:
            raise NotFound(f"There is no allocation {allocation_id}.")
        return allocation

    def is_over(self, task_id: str) -> bool:
        """Whether a task will write no more logs."""
        with self._store.transaction() as session:
            task = session.get(Task, task_id)
            return task is None or task.end_time is not None

    def best_validation(self, experiment_id: int) -> float | None:
        with self._store.transaction() as session:
            row = session.execute(select(Experiment.best_metric).where(Experiment.id == experiment_id)).first()
        if row is None:
            raise NotFound(f"There is no experiment {experiment_id}.")
        best: float | None = row.best_metric
        return best


@dataclass(frozen=True)
class MetricOrder:
    """The metric by whose values a trial's history is sorted, in the reports of these kinds."""

    metric: str
    kinds: Collection[str] = ("training", "validation")


_REPORTS = {kind: METRICS_OF[kind].c for kind in ("training", "validation")}
_VALUES = {"training": "avg_metrics", "validation": "validation_metrics"}
_Part = Select[int, int, uuid.UUID | None, float | None]


def _parts(trial_id: int, kinds: Collection[str], by: MetricOrder | None, *, without_deleted: bool) -> Sequence[_Part]:
    """Return (steps, turn, uuid, value) of each kind of workload; a report has its id as its turn and no uuid. `value`:
    what it is sorted by before its steps, or NULL."""
    c = Checkpoint.__table__.c
    nothing = cast(null(), Double).label("value")
    after_reports = literal(2**62, BigInteger) + cast(func.extract("epoch", c.report_time) * 1_000_000, BigInteger)
    parts = [
        select(
            m.steps.label("steps"),
            m.id.label("turn"),
            cast(null(), Uuid).label("uuid"),
            _number(m.metrics[_VALUES[kind]][by.metric]).label("value") if by and kind in by.kinds else nothing,
        ).where(m.trial_id == trial_id, ~m.archived)
        for kind, m in _REPORTS.items()
        if kind in kinds
    ]
    if "checkpoint" in kinds:
        saved = select(c.steps_completed.label("steps"), after_reports.label("turn"), c.uuid.label("uuid"), nothing)
        saved = saved.where(c.trial_id == trial_id)
        parts.append(saved.where(c.state != "DELETED") if without_deleted else saved)
    return parts


def _number(value: Any) -> Any:
    """Return a value of a metric, NULL where it is no number: metrics may be texts and lists."""
    return case((func.jsonb_typeof(value) == "number", cast(value.astext, Double)))


def _history(kinds: Sequence[_Part], window: Window, descending: bool, *, by_value: bool) -> _Part:
    """Return a page of the rows of all kinds together.

    Each kind is limited before the union: PostgreSQL does not merge sorted parts of a union by itself.
    """

    def in_order(columns: Any) -> list[Any]:
        order = [column.desc() if descending else column.asc() for column in (columns.steps, columns.turn)]
        value = columns.value.desc() if descending else columns.value.asc()
        return [value.nulls_last(), *order] if by_value else order

    parts = [kind.order_by(*in_order(kind.selected_columns)).limit(window.end).subquery() for kind in kinds]
    history = union_all(*(select(part) for part in parts)).subquery()
    return select(history).order_by(*in_order(history.c)).offset(window.start).limit(window.size)


def _workload(report: StoredReport) -> Workload:
    return Workload(training=report) if report.group == "training" else Workload(validation=report)


def view_of_checkpoint(session: Session, row: Checkpoint) -> CheckpointView:
    trial = session.get(Trial, row.trial_id) if row.trial_id else None
    experiment = session.get(Experiment, trial.experiment_id) if trial else None
    return CheckpointView(row, trial, experiment.config if experiment else None)


CHECKPOINT_SORTS: Mapping[str, ColumnElement[Any]] = {
    "uuid": Checkpoint.__table__.c.uuid,
    "trial_id": Checkpoint.__table__.c.trial_id,
    "batch_number": Checkpoint.__table__.c.steps_completed,
    "end_time": Checkpoint.__table__.c.report_time,
    "state": Checkpoint.__table__.c.state,
    "searcher_metric": Checkpoint.__table__.c.metric,
}


def _validation_metric(name: str) -> ColumnElement[Any]:
    """Return a validation metric at a checkpoint's own steps; null where it is not a number."""
    value = func.jsonb_extract_path(Checkpoint.__table__.c.validation, name)
    text = func.jsonb_extract_path_text(Checkpoint.__table__.c.validation, name)
    return case((func.jsonb_typeof(value) == "number", cast(text, Double)))


def _best_checkpoint(session: Session, trial: Trial) -> Checkpoint | None:
    experiment = session.get_one(Experiment, trial.experiment_id)
    column = Checkpoint.__table__.c.metric
    order = column.asc() if experiment.smaller_is_better else column.desc()
    query = select(Checkpoint).where(Checkpoint.trial_id == trial.id, Checkpoint.state == "COMPLETED")
    return session.scalar(query.order_by(order.nulls_last(), Checkpoint.report_time.desc()).limit(1))
