"""A trial as its page shows it first: its state and why, its jobs, the searcher's metric, the last lines of its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Checkpoint, Experiment, Project, Trial, User
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.experiments.trials import Trials
from trainmaster.master.services.logs.log_store import LogFilter, LogStore, StoredLine
from trainmaster.master.services.metrics import series
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.views import attempts_view, curves, search_pauses
from trainmaster.master.services.views.attempts_view import AttemptView
from trainmaster.master.services.views.board import GROUPS, state_of, why_of

MOST_METRICS = 10_000
LAST_LINES = 20
MOST_CURVES = 50
MOST_COPIES = 200


@dataclass(frozen=True)
class Curve:
    metric: Named
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class TrialView:
    row: Trial
    experiment: Experiment
    username: str
    workspace_id: int
    state: str
    why: str
    copies: Sequence[int]
    best_checkpoint: str | None
    attempts: Sequence[AttemptView]
    expected_error: float | None
    metrics: Sequence[tuple[str, str]]
    curve: Curve | None
    log: Sequence[StoredLine]


class TrialViews(BoundService):
    """A trial as its page shows it."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._log_store = LogStore(master)
        self._trials = Trials(master)

    def read(self, trial_id: int) -> TrialView:
        """Raise NotFound."""
        with self._store.transaction() as session:
            series.one_moment(session)
            row, experiment, username, workspace_id = _row(session, trial_id)
            attempts, error = attempts_view.read(session, trial_id)
            named = Named("validation", experiment.searcher_metric)
            x, y = curves.of_trial(session, row, named, "", 400) if experiment.searcher_metric else ([], [])
            best = _best_checkpoint(session, row, experiment)
            why = why_of(row, search_pauses.read(session, experiment.id, [trial_id]).get(trial_id, ()))
            copies = _copies(session, row)
        log = [
            line
            for task_id in self._trials.tasks_of_trial(trial_id)[-1:]
            for line in self._log_store.read(task_id, LogFilter(), limit=LAST_LINES, newest_first=True)
        ][::-1]
        latest = attempts[-1] if attempts else None
        live = latest.row.state if latest is not None and latest.row.ended_at is None else ""
        return TrialView(
            row=row,
            experiment=experiment,
            username=username,
            workspace_id=workspace_id,
            state="RUNNING" if experiment.unmanaged and row.state == State.ACTIVE else state_of(row.state, live),
            why=why,
            copies=copies,
            best_checkpoint=best,
            attempts=attempts,
            expected_error=error,
            metrics=_metrics(row.summary_metrics),
            curve=Curve(named, x, y) if x else None,
            log=log,
        )

    def metric_curves(self, trial_id: int, wanted: Sequence[Named], x_name: str, points: int) -> list[Curve]:
        """Several metrics of a trial over its own steps. Raises NotFound, Invalid."""
        if len(wanted) > MOST_CURVES:
            raise Invalid(
                f"metrics: there are {len(wanted)}, more than the {MOST_CURVES} that are allowed in one call."
            )
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Trial, trial_id)
            if row is None:
                raise NotFound(f"There is no trial {trial_id}.")
            return [Curve(one, *curves.of_trial(session, row, one, x_name, points)) for one in wanted]


def _row(session: Session, trial_id: int) -> tuple[Trial, Experiment, str, int]:
    query = (
        select(Trial, Experiment, User.username, Project.workspace_id)
        .join(Experiment, Experiment.id == Trial.experiment_id)
        .join(User, User.id == Experiment.owner_id)
        .join(Project, Project.id == Experiment.project_id)
        .where(Trial.id == trial_id)
    )
    row = session.execute(query).first()
    if row is None:
        raise NotFound(f"There is no trial {trial_id}.")
    return row[0], row[1], row[2], row[3]


def _copies(session: Session, trial: Trial) -> Sequence[int]:
    """Return the trials that the search began from a checkpoint of this one."""
    query = select(Trial.id).where(Trial.experiment_id == trial.experiment_id, Trial.parent_id == trial.id)
    return session.scalars(query.order_by(Trial.id).limit(MOST_COPIES)).all()


def _best_checkpoint(session: Session, trial: Trial, experiment: Experiment) -> str | None:
    c = Checkpoint.__table__.c
    metric = c.metric if experiment.smaller_is_better else -c.metric
    query = select(c.uuid).where(c.trial_id == trial.id, c.state == "COMPLETED")
    checkpoint = session.scalar(query.order_by(metric.asc().nulls_last(), c.steps_completed.desc()).limit(1))
    return None if checkpoint is None else str(checkpoint)


def _metrics(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    metrics = [(GROUPS.get(key, key), name) for key, values in summary.items() for name in values]
    return sorted(metrics)[:MOST_METRICS]
