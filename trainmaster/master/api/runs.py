"""Endpoints for runs (trials as a list of their own), and for the columns of a project's table."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from trainmaster.master.api.schemas.entities import Pagination
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import ServedMaster, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Int64, Shape, Time
from trainmaster.master.http.parameters import words
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.services.experiments.runs import Run, RunSelection
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["runs"])
Action = Callable[[int, int], object]


class RunExperiment(Shape):
    id: int
    name: str
    description: str
    searcher_type: str
    searcher_metric: str
    forked_from: int | None
    resource_pool: str
    progress: float
    is_multitrial: bool
    unmanaged: bool
    external_experiment_id: str | None


class FlatRun(Shape):
    id: int
    state: str
    start_time: Time
    end_time: Time | None
    duration: int | None
    labels: list[str]
    checkpoint_size: Int64
    checkpoint_count: int
    searcher_metric_value: float | None
    external_run_id: str | None
    hyperparameters: Json
    summary_metrics: Json
    metadata: Json | None
    user_id: int
    project_id: int
    project_name: str
    workspace_id: int
    workspace_name: str
    parent_archived: bool
    archived: bool
    local_id: str
    log_policy_matched: str | None
    experiment: RunExperiment

    @classmethod
    def of(cls, run: Run) -> FlatRun:
        trial, experiment, project = run.trial, run.experiment, run.project
        return cls(
            id=trial.id,
            state=f"STATE_{trial.state}",
            start_time=trial.start_time,
            end_time=trial.end_time,
            duration=run.duration,
            labels=experiment.labels,
            checkpoint_size=trial.checkpoint_size,
            checkpoint_count=trial.checkpoint_count,
            searcher_metric_value=trial.searcher_metric,
            external_run_id=trial.external_id,
            hyperparameters=trial.hparams,
            summary_metrics=trial.summary_metrics,
            metadata=trial.run_metadata,
            user_id=experiment.owner_id,
            project_id=project.id,
            project_name=project.name,
            workspace_id=run.workspace.id,
            workspace_name=run.workspace.name,
            parent_archived=project.archived or run.workspace.archived,
            archived=experiment.archived,
            local_id=f"{project.key}-{trial.id}",
            log_policy_matched=trial.log_policy,
            experiment=RunExperiment(
                id=experiment.id,
                name=experiment.name,
                description=experiment.description or "",
                searcher_type=experiment.searcher_type,
                searcher_metric=experiment.searcher_metric,
                forked_from=experiment.parent_id,
                resource_pool=experiment.resource_pool,
                progress=experiment.progress,
                is_multitrial=experiment.num_trials > 1,
                unmanaged=experiment.unmanaged,
                external_experiment_id=experiment.external_id,
            ),
        )


class RunsAnswer(Shape):
    runs: list[FlatRun]
    pagination: Pagination


class SearchRequest(Body):
    filter: str = ""
    sort: str = ""
    limit: int = 0
    offset: int = 0
    project_id: int | None = None


class BulkRequest(Body):
    run_ids: list[int] = []  # noqa: RUF012
    filter: str = ""
    project_id: int | None = None

    def selection(self) -> RunSelection:
        return RunSelection(self.run_ids, self.filter, self.project_id)


# Why an action is not done to one trial of several; clients compare the whole text.
PAUSE = "Cannot pause/unpause run '{}' (part of multi-trial)."
WHOLE = "Cannot do this to run '{}' (part of multi-trial)."
SKIPPED = "Skipping run '{}' (part of multi-trial)."


class MoveRequest(Body):
    run_ids: list[int] = []  # noqa: RUF012
    filter: str = ""
    source_project_id: int | None = None
    destination_project_id: int
    skip_multitrial: bool = False


class Outcome(Shape):
    id: int
    error: str


class ResultsAnswer(Shape):
    results: list[Outcome]


@router.post("/runs")
def search(body: SearchRequest, master: UsesMaster, caller: UserCaller) -> RunsAnswer:
    page = master.runs.search(caller, body.project_id, body.filter, body.sort, body.offset, body.limit)
    return RunsAnswer(runs=[FlatRun.of(run) for run in page.items], pagination=Pagination.of(page.window))


@router.post("/runs/pause")
def pause(body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    return _act(master, caller, body.selection(), _command(master, caller, lifecycle.Pause()), PAUSE)


@router.post("/runs/resume")
def resume(body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    return _act(master, caller, body.selection(), _command(master, caller, lifecycle.Activate()), PAUSE)


@router.post("/runs/kill")
def kill(body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(run_id: int, _: int) -> None:
        master.trials.kill(caller, run_id)

    return _act(master, caller, body.selection(), action)


@router.post("/runs/archive")
def archive(body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(_: int, experiment_id: int) -> None:
        master.experiment_edits.set_archived(caller, experiment_id, True)

    return _act(master, caller, body.selection(), action, WHOLE)


@router.post("/runs/unarchive")
def unarchive(body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(_: int, experiment_id: int) -> None:
        master.experiment_edits.set_archived(caller, experiment_id, False)

    return _act(master, caller, body.selection(), action, WHOLE)


@router.post("/runs/delete")
def delete(body: BulkRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    def action(_: int, experiment_id: int) -> None:
        master.experiments.delete(caller, experiment_id)

    return _act(master, caller, body.selection(), action, WHOLE)


@router.post("/runs/move")
def move(body: MoveRequest, master: UsesMaster, caller: UserCaller) -> ResultsAnswer:
    """Move runs with their experiments; with `skipMultitrial` runs of a search stay."""

    def action(_: int, experiment_id: int) -> None:
        master.experiment_edits.move(caller, experiment_id, body.destination_project_id)

    selection = RunSelection(body.run_ids, body.filter, body.source_project_id)
    return _act(master, caller, selection, action, SKIPPED if body.skip_multitrial else "")


def _command(master: ServedMaster, caller: UserCaller, event: lifecycle.Event) -> Action:
    def action(_: int, experiment_id: int) -> None:
        master.experiments.command(caller, experiment_id, event)

    return action


def _act(
    master: ServedMaster, caller: UserCaller, selection: RunSelection, action: Action, not_alone: str = ""
) -> ResultsAnswer:
    outcomes = master.runs.act(caller, selection, action, not_alone=not_alone)
    return ResultsAnswer(results=[Outcome(id=result.run_id, error=result.error) for result in outcomes])


# -- a project's table --------------------------------------------------------------------------------------------


@router.get("/projects/{project_id}/columns")
def columns(project_id: int, master: UsesMaster, caller: UserCaller, tableType: str = "") -> Json:
    """Return the columns by which a project's experiments or runs can be shown, sorted and filtered."""
    known = ("EXPERIMENT", "RUN")
    of_runs = bool(tableType) and words([tableType], "TABLE_TYPE_", known, enums.TABLE_TYPE) == ["RUN"]
    columns_of_project = master.project_columns.columns(project_id, of_runs=of_runs)
    return {
        "columns": [
            {
                "column": one.name,
                "location": f"LOCATION_TYPE_{one.location}",
                "type": f"COLUMN_TYPE_{one.kind}",
                "displayName": one.shown,
            }
            for one in columns_of_project
        ]
    }


@router.get("/projects/{project_id}/experiments/metric-ranges")
def ranges(project_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    ranges_of_columns = master.project_columns.ranges(project_id)
    return {
        "ranges": [
            {"metricsName": ranges_of_column.name, "min": ranges_of_column.low, "max": ranges_of_column.high}
            for ranges_of_column in ranges_of_columns
        ]
    }


@router.get("/projects/{project_id}/metadata/{key:path}")
def metadata_values(project_id: int, key: str, master: UsesMaster, caller: UserCaller) -> Json:
    return {"values": master.project_columns.metadata_values(project_id, key)}
