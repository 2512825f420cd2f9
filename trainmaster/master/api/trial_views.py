"""Endpoints behind the page of a trial."""

from __future__ import annotations

import math
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Query

from trainmaster.master.api.schemas.views import (
    Attempt,
    AttemptCheckpoint,
    AttemptsAnswer,
    LogLine,
    MetricName,
    RankExit,
    TrialBoard,
    TrialCurve,
    TrialCurves,
    TrialHead,
)
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.logs.log_store import StoredLine
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.views import trial_view
from trainmaster.master.services.views.attempts_view import AttemptView
from trainmaster.master.services.views.experiment_table import cell
from trainmaster.master.services.views.trial_view import TrialView

router = APIRouter(prefix="/api/x1", tags=["trials"])


@router.get("/trials/{trial_id}/board")
def board(trial_id: int, master: UsesMaster, caller: UserCaller) -> TrialBoard:
    """Return what a trial's page shows first: its state and why, its jobs, its metric, the last lines of its log to who
    may read that."""
    view = master.trial_views.read(trial_id)
    curve = view.curve
    readable = caller.holds(Permission.VIEW_EXPERIMENT_ARTIFACTS, view.workspace_id)
    return TrialBoard(
        trial=_head(view),
        attempts=[attempt(one, view.expected_error) for one in view.attempts],
        metrics=[MetricName(group=group, name=name) for group, name in view.metrics],
        curve=None if curve is None else _curve(curve),
        log=[log_line(line) for line in view.log] if readable else [],
    )


@router.get("/trials/{trial_id}/attempts")
def attempts(trial_id: int, master: UsesMaster, caller: UserCaller) -> AttemptsAnswer:
    """Return a trial's life over its jobs."""
    view, error = master.attempts_views.of_trial(trial_id)
    return AttemptsAnswer(attempts=[attempt(one, error) for one in view])


@router.get("/trials/{trial_id}/curves")
def curves(
    trial_id: int,
    master: UsesMaster,
    caller: UserCaller,
    metrics: Annotated[str, Query(max_length=20_000, description="GROUP:NAME with commas, each percent-encoded")] = "",
    x: Annotated[str, Query(max_length=1000, description="batches, seconds, or a metric of the same reports")] = "",
    points: Annotated[int, Query(ge=2, le=5000)] = 500,
) -> TrialCurves:
    """Several metrics of a trial over its own steps, thinned so that no spike is lost."""
    wanted = [_named(part) for part in metrics.split(",") if part]
    metric_curves = master.trial_views.metric_curves(trial_id, wanted, x, points)
    return TrialCurves(x_name=x or "batches", curves=[_curve(metric_curve) for metric_curve in metric_curves])


def _named(text: str) -> Named:
    group, colon, name = text.partition(":")
    if not colon or not name:
        raise Invalid(f"metrics: write each as GROUP:NAME, as validation:loss, not {text[:100]!r}.")
    return Named(unquote(group), unquote(name))


def _curve(one: trial_view.Curve) -> TrialCurve:
    return TrialCurve(group=one.metric.group, metric=one.metric.name, x=list(one.x), y=list(one.y))


def attempt(one: AttemptView, expected_error: float | None) -> Attempt:
    row = one.row
    waits = row.ended_at is None and row.leased_at is None
    return Attempt(
        id=row.id,
        attempt=row.attempt,
        state=row.state,
        created=epoch(row.created_at),
        submitted=None if row.submitted_at is None else epoch(row.submitted_at),
        started=None if row.leased_at is None else epoch(row.leased_at),
        ended=None if row.ended_at is None else epoch(row.ended_at),
        ends_at=one.ends_at,
        expected_start=one.expected_start,
        expected_error=expected_error if one.expected_start is not None else None,
        waits=row.explanation if waits else "",
        job=row.native_id,
        cluster=row.cluster or row.dispatcher,
        pool=row.pool,
        slots=row.slots,
        nodes=list(one.nodes),
        outcome=row.outcome,
        how=row.exit_text or (row.explanation if row.ended_at is not None else ""),
        preempt_reason=row.preempt_reason,
        preempted_at=None if row.preempt_at is None else epoch(row.preempt_at),
        exits=[RankExit(rank=e.rank, node=e.node, code=e.code, text=e.text) for e in one.exits],
        checkpoints=[
            AttemptCheckpoint(uuid=c.uuid, at=c.at, steps=c.steps, size=c.size, state=c.state) for c in one.checkpoints
        ],
        trained_from=one.trained_from,
        trained_to=one.trained_to,
        lost_steps=one.lost_steps,
        slot_seconds=one.slot_seconds,
    )


def log_line(line: StoredLine) -> LogLine:
    tail = (line.allocation_id or "").rpartition(".")[2]
    return LogLine(
        id=line.id,
        at=epoch(line.at),
        level=line.level,
        rank=line.rank_id,
        node=line.agent_id,
        attempt=int(tail) if tail.isascii() and tail.isdigit() else None,
        stream=line.stdtype,
        text=line.log,
    )


def _head(view: TrialView) -> TrialHead:
    row, experiment = view.row, view.experiment
    best = row.best_validation
    return TrialHead(
        id=row.id,
        experiment_id=experiment.id,
        experiment=experiment.name,
        task_id=row.task_id,
        state=view.state,
        why=view.why,
        stop=row.stop,
        search_pause=row.search_pause,
        parent=row.parent_id,
        copies=list(view.copies),
        user=view.username,
        user_id=experiment.owner_id,
        workspace_id=view.workspace_id,
        unmanaged=experiment.unmanaged,
        metric=experiment.searcher_metric,
        smaller_is_better=experiment.smaller_is_better,
        hparams=row.hparams,
        best=cell(row.searcher_metric),
        best_steps=best.steps if best else None,
        best_checkpoint=view.best_checkpoint,
        steps=row.total_batches,
        progress=row.progress if math.isfinite(row.progress) else 0.0,
        restarts=row.restarts,
        max_restarts=experiment.config.max_restarts,
        started=epoch(row.start_time),
        ended=None if row.end_time is None else epoch(row.end_time),
        slot_seconds=round(sum(one.slot_seconds for one in view.attempts), 1),
        checkpoints=row.checkpoint_count,
        checkpoint_size=row.checkpoint_size,
        refused_reports=row.refused_reports,
    )
