"""Endpoints behind the page of an experiment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.schemas.views import (
    BracketView,
    Curves,
    ExperimentBoard,
    ExperimentHead,
    GitAnswer,
    GitView,
    MetricName,
    RungView,
    StoryAnswer,
    StoryEvent,
)
from trainmaster.master.db.tables import Story
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.views.board import Board, CurvesRequest
from trainmaster.master.services.views.curves import CurveGrid
from trainmaster.master.services.views.experiment_story import EventsRequest
from trainmaster.master.services.views.experiment_table import cell

router = APIRouter(prefix="/api/x1", tags=["experiments"])

Metric = Annotated[str, Query(max_length=1000, description="default: the searcher's")]
Group = Annotated[str, Query(max_length=1000)]
Across = Annotated[str, Query(max_length=1000, description="batches, seconds, or a metric of the same reports")]
Since = Annotated[int, Query(ge=0, le=2**62, description="the seq of earlier curves: only those that have more")]
Points = Annotated[int, Query(ge=2, le=1000)]


@router.get("/experiments/{experiment_id}/board")
def board(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    curves: bool = False,
    metric: Metric = "",
    group: Group = "validation",
    x: Across = "",
    points: Points = 200,
    since: Since = 0,
) -> ExperimentBoard:
    """All trials of an experiment as slim rows, its rungs, and with `curves` the curves of one metric."""
    wanted = CurvesRequest(_named(group, metric), x, points, since) if curves else None
    stored = master.boards.read(experiment_id, wanted)
    return ExperimentBoard(
        experiment=_head(stored),
        metrics=[MetricName(group=group, name=name) for group, name in stored.metrics],
        hparams=list(stored.hparams),
        hparam_types=dict(stored.hparam_types),
        constants=dict(stored.constants),
        columns=list(stored.columns),
        rows=[list(row) for row in stored.rows],
        brackets=_brackets(stored),
        curves=None if stored.curves is None else curves_of(stored.curves),
    )


@router.get("/experiments/{experiment_id}/curves")
def curves(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    metric: Metric = "",
    group: Group = "validation",
    x: Across = "",
    points: Points = 200,
    since: Since = 0,
) -> Curves:
    """Curves of all trials over one grid; with `since` those of trials that have reported more."""
    return curves_of(master.curves.of_experiment(experiment_id, _named(group, metric), x, points, since))


@router.get("/experiments/{experiment_id}/story")
def story(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    before: Annotated[int, Query(ge=0, le=2**62)] = 0,
    newest: Annotated[bool, Query(description="the newest first")] = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 2000,
    trial: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    subject: Annotated[str, Query(max_length=50, description="search, trial or experiment; default: all")] = "",
) -> StoryAnswer:
    """Why everything happened, in order: decisions of the search, of people, and ends of jobs."""
    wanted = EventsRequest(limit, after, before, newest, trial, subject)
    rows, more = master.experiment_story.page(experiment_id, wanted)
    return StoryAnswer(events=[event(row) for row in rows], more=more)


@router.get("/experiments/{experiment_id}/git")
def git(experiment_id: int, master: UsesMaster, caller: UserCaller) -> GitAnswer:
    """Return the commit that the experiment's code is of, and what was changed since."""
    state = master.git_states.get(experiment_id)
    return GitAnswer(git=None if state is None else GitView(**state.to_json(), changed_lines=state.changed_lines))


def event(row: Story) -> StoryEvent:
    return StoryEvent(
        id=row.id,
        at=epoch(row.at),
        trial=row.trial_id,
        subject=row.subject,
        event=row.event,
        before=row.before,
        after=row.after,
        why=row.why,
        decisions=list(row.decisions),
    )


def curves_of(grid: CurveGrid) -> Curves:
    return Curves(
        group=grid.metric.group,
        metric=grid.metric.name,
        x_name=grid.x_name,
        x=list(grid.x),
        trials=list(grid.trials),
        y=[list(row) for row in grid.y],
        last=list(grid.last),
        pauses=[list(row) for row in grid.pauses],
        whole=grid.whole,
        seq=grid.seq,
    )


def _named(group: str, metric: str) -> Named | None:
    return Named(group or "validation", metric) if metric else None


def _head(board: Board) -> ExperimentHead:
    view, row, goal = board.view, board.view.row, board.goal
    resources = row.config.resources
    state = row.state
    if state == "ACTIVE":
        state = "RUNNING" if row.unmanaged else view.phase
    return ExperimentHead(
        id=row.id,
        name=row.name,
        state=state,
        why=board.why,
        description=row.description or "",
        notes=row.notes,
        labels=list(row.labels),
        archived=row.archived,
        unmanaged=row.unmanaged,
        user=view.username,
        user_id=row.owner_id,
        project_id=row.project_id,
        project=view.project_name,
        workspace_id=view.workspace_id,
        workspace=view.workspace_name,
        parent=row.parent_id,
        job_id=str(row.job_id),
        pool=row.resource_pool,
        started=epoch(row.start_time),
        ended=None if row.end_time is None else epoch(row.end_time),
        progress=row.progress,
        searcher=row.searcher_type,
        metric=row.searcher_metric,
        smaller_is_better=row.smaller_is_better,
        time_metric=goal.units,
        max_time=goal.length,
        max_trials=goal.max_trials,
        planned=goal.planned,
        slots=resources.slots_per_trial,
        priority=resources.priority,
        weight=resources.weight,
        max_slots=resources.max_slots,
        trials=row.num_trials,
        counts=dict(board.counts),
        best=cell(row.best_metric),
        best_trial=row.best_trial_id,
        checkpoints=row.checkpoint_count,
        checkpoint_size=row.checkpoint_size,
        slot_seconds=round(board.slot_seconds, 1),
        seconds_saved=None if board.seconds_saved is None else round(board.seconds_saved, 1),
    )


def _brackets(board: Board) -> list[BracketView]:
    ids = board.trial_ids
    return [
        BracketView(
            rungs=[
                RungView(
                    units=rung.units,
                    trials=[ids[trial] for trial in rung.trials if trial in ids],
                    values=[value for trial, value in zip(rung.trials, rung.values, strict=True) if trial in ids],
                    cut=rung.cut,
                    stopped=rung.stopped,
                    paused=rung.paused,
                )
                for rung in bracket.rungs
            ],
            trials=len(bracket.trials),
            running=bracket.running,
        )
        for bracket in board.brackets
    ]
