"""Endpoints to create, list, get, steer and delete experiments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from trainmaster.config.experiment import parse_experiment
from trainmaster.config.git_state import GitState
from trainmaster.config.messages import ConfigError
from trainmaster.config.secrets import masked
from trainmaster.config.source import Document, check_size
from trainmaster.master.api.schemas.entities import Experiment, Pagination, Trial
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import AnyCaller, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.parameters import Descending, ExperimentStates, TrialStates, sort_key
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.experiments import experiments, trials
from trainmaster.master.services.experiments.creation import ExperimentRequest, refusal
from trainmaster.master.services.files.context_archive import ContextFile
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["experiments"])


class File(Body):
    path: str
    type: int
    content: str
    mtime: int = Field(0, ge=-(2**40), le=2**40)  # seconds since 1970, often as a string
    mode: int = Field(0o644, ge=0)
    uid: int = 0
    gid: int = 0


class GitBody(Body):
    """The commit that the code is of, and what was changed since: `trainmaster.config.git_state`."""

    commit: str
    committer: str = ""
    committed: str = ""
    branch: str = ""
    remote: str = ""
    untracked: int = Field(0, ge=0, le=2**31 - 1)
    diff: str = ""
    diff_cut: bool = False


class CreateRequest(Body):
    model_definition: list[File] = []  # noqa: RUF012
    config: str = ""
    validate_only: bool = False
    parent_id: int = 0
    activate: bool = True
    project_id: int = 0
    template: str | None = None
    unmanaged: bool | None = None
    git: GitBody | None = None  # ours
    # What some of Determined's clients say instead.
    git_remote: str | None = None
    git_commit: str | None = None
    git_committer: str | None = None
    git_commit_date: str | None = None
    config_source: str | None = None  # ours: the file's name, for messages


class CreateAnswer(Shape):
    experiment: Experiment
    config: Json
    warnings: list[str] = []  # noqa: RUF012
    remarks: list[str] = []  # noqa: RUF012 - ours: what of the configuration has no effect, a sentence each


class ExperimentAnswer(Shape):
    experiment: Experiment
    config: Json
    job_summary: Json | None = None


class ExperimentsAnswer(Shape):
    experiments: list[Experiment]
    pagination: Pagination


class TrialsAnswer(Shape):
    trials: list[Trial]
    pagination: Pagination


def request_of(body: CreateRequest) -> ExperimentRequest:
    return ExperimentRequest(
        body.config,
        [ContextFile(f.path, f.type, f.content, f.mtime, f.mode) for f in body.model_definition],
        activate=body.activate,
        parent_id=body.parent_id or None,
        project_id=body.project_id or None,
        template=body.template or "",
        validate_only=body.validate_only,
        source=body.config_source or "experiment.yaml",
        git=_git_of(body),
    )


def _git_of(body: CreateRequest) -> GitState | None:
    try:
        if body.git is not None:
            return GitState.of(**body.git.model_dump())
        if body.git_commit:
            return GitState.of(
                commit=body.git_commit,
                committer=body.git_committer or "",
                committed=body.git_commit_date or "",
                remote=body.git_remote or "",
            )
    except ValueError as error:
        raise Invalid(str(error)) from None
    return None


@router.post("/experiments")
def create(body: CreateRequest, master: UsesMaster, caller: UserCaller) -> CreateAnswer:
    request = request_of(body)
    if body.unmanaged:
        number, _ = master.unmanaged.create_experiment(caller, request)
        view = master.experiments.get(number)
        return CreateAnswer(experiment=Experiment.of(view), config=masked(view.row.config.to_json()))
    made = master.experiment_creation.create(caller, request)
    row = made.row
    if body.validate_only:
        view = experiments.ExperimentView(row, caller.username, None, "", 1, "", (), "QUEUED")
    else:
        view = master.experiments.get(row.id)
    warnings = master.feasibility.launch_warnings(row.config)
    return CreateAnswer(
        experiment=Experiment.of(view),
        config=masked(row.config.to_json()),
        warnings=warnings,
        remarks=list(made.remarks),
    )


@router.get("/experiments")
def list_experiments(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    states: ExperimentStates,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_ID",
    archived: bool | None = None,
    users: Annotated[list[str], Query()] = [],  # noqa: B006
    user_ids: Annotated[list[int], Query(alias="userIds")] = [],  # noqa: B006
    labels: Annotated[list[str], Query()] = [],  # noqa: B006
    name: str = "",
    description: str = "",
    project_id: Annotated[int | None, Query(alias="projectId")] = None,
    ids: Annotated[list[int], Query(alias="experimentIdFilter.incl")] = [],  # noqa: B006
    not_ids: Annotated[list[int], Query(alias="experimentIdFilter.notIn")] = [],  # noqa: B006
    gt: Annotated[int | None, Query(alias="experimentIdFilter.gt")] = None,
    gte: Annotated[int | None, Query(alias="experimentIdFilter.gte")] = None,
    lt: Annotated[int | None, Query(alias="experimentIdFilter.lt")] = None,
    lte: Annotated[int | None, Query(alias="experimentIdFilter.lte")] = None,
) -> ExperimentsAnswer:
    query = experiments.ListQuery(
        archived=archived,
        states=states,
        users=users,
        user_ids=user_ids,
        name=name,
        description=description,
        labels=labels,
        project_id=project_id or None,
        ids=ids,
        not_ids=not_ids,
        id_above=max((bound for bound in (gt, None if gte is None else gte - 1) if bound is not None), default=None),
        id_below=min((bound for bound in (lt, None if lte is None else lte + 1) if bound is not None), default=None),
        sort_by=sort_key(sort_by, experiments.SORTS, "id", enums.EXPERIMENTS),
        descending=bool(descending),
    )
    page = master.experiments.list_page(caller, query, offset, limit)
    shown = [Experiment.of(view) for view in page.items]
    return ExperimentsAnswer(experiments=shown, pagination=Pagination.of(page.window))


@router.get("/experiments/{experiment_id}")
def get(experiment_id: int, master: UsesMaster, caller: AnyCaller) -> ExperimentAnswer:
    view = master.experiments.get(experiment_id)
    return ExperimentAnswer(experiment=Experiment.of(view), config=masked(view.row.config.to_json()))


@router.delete("/experiments/{experiment_id}")
def delete(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.experiments.delete(caller, experiment_id)
    return {}


@router.post("/experiments/{experiment_id}/pause")
def pause(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Trials save their work and release their resources."""
    master.experiments.command(caller, experiment_id, lifecycle.Pause())
    return {}


@router.post("/experiments/{experiment_id}/activate")
def activate(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Resume a paused experiment."""
    master.experiments.command(caller, experiment_id, lifecycle.Activate())
    return {}


@router.post("/experiments/{experiment_id}/cancel")
def cancel(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Stop gracefully: trials save their work first."""
    master.experiments.command(caller, experiment_id, lifecycle.Cancel())
    return {}


@router.post("/experiments/{experiment_id}/kill")
def kill(experiment_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Stop at once."""
    master.experiments.command(caller, experiment_id, lifecycle.Kill())
    return {}


@router.get("/experiments/{experiment_id}/trials")
def list_trials(
    experiment_id: int,
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    states: TrialStates,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_ID",
) -> TrialsAnswer:
    page = master.trials.list_page(
        experiment_id, states, sort_key(sort_by, trials.SORTS, "id", enums.TRIALS), bool(descending), offset, limit
    )
    time = now()
    shown = [Trial.of(row, now=time) for row in page.items]
    return TrialsAnswer(trials=shown, pagination=Pagination.of(page.window))


@router.get("/experiments/{experiment_id}/searcher/best_searcher_validation_metric")
def best_validation(experiment_id: int, master: UsesMaster, caller: AnyCaller) -> Json:
    best = master.trials.best_validation(experiment_id)
    if best is None:
        raise NotFound(f"Experiment {experiment_id} has no validation yet.")
    return {"metric": best}


class PreviewRequest(Body):
    config: Json
    seed: int = 0


@router.post("/preview-hp-search")
def preview(body: PreviewRequest, master: UsesMaster, caller: UserCaller) -> Json:
    try:
        check_size(master.settings.limits, body.config, "experiment.yaml")
        document = Document("experiment.yaml", body.config)
        config = parse_experiment(document, defaults=master.defaults.of_pool(""))
    except ConfigError as error:
        raise refusal(error) from None
    resolved = config.to_json()["searcher"]
    trials = experiments.preview(master.settings.limits, config, body.seed)
    unit = str(resolved.get("time_metric") or "batches")
    return {"summary": {"config": resolved, "trials": list(_summaries(trials, unit))}}


def _summaries(trials: list[tuple[int, int | None]], unit: str) -> Iterator[Json]:
    for count, length in trials:
        shown: Json = {"maxLength": True} if length is None else {"maxLength": False, "name": unit, "value": length}
        yield {"count": count, "unit": shown}
