"""Endpoints for what Determined's registry lacks: aliases of models' versions, and where a version comes from."""

from __future__ import annotations

from fastapi import APIRouter

from trainmaster.master.api.schemas.views import GitView
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.model_registry.lineage import Lineage, Training
from trainmaster.master.services.views.experiment_table import cell
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/x1", tags=["models"])


class Aliases(Shape):
    """Alias -> number of the version that it leads to."""

    aliases: dict[str, int]


class PutAlias(Body):
    version: int


class TrainingOrigin(Shape):
    """The experiment and the trial that wrote the checkpoint. `config` has masks for secrets; `images`: by kind of
    slot; `image_digests`: which content they had, as the jobs found it; `data`: folders of the cluster that the jobs
    saw, and what they copied; `jobs`: of the trial, as `cluster:number`; `created`: seconds since 1970."""

    experiment: int
    experiment_name: str
    owner: str
    created: float
    trial: int
    hparams: Json
    seed: int
    parent: int | None
    metric_name: str
    smaller_is_better: bool
    config: Json
    git: GitView | None
    images: dict[str, str]
    image_digests: list[str]
    data: list[str]
    jobs: list[str]


class VersionOrigin(Shape):
    """`metric`: the searcher's, at the checkpoint's `steps`; `saved`: seconds since 1970; `training` is null where
    there is none that the caller may see."""

    checkpoint: str
    steps: int
    saved: float
    size: int
    metric: float | str | None
    validation: Json
    metadata: Json
    training: TrainingOrigin | None


@router.get("/models/{model_name}/aliases")
def aliases(model_name: str, master: UsesMaster, caller: UserCaller) -> Aliases:
    """List the names of a model's versions."""
    return Aliases(aliases=master.model_aliases.of_model(model_name))


@router.put("/models/{model_name}/aliases/{alias}")
def put_alias(model_name: str, alias: str, body: PutAlias, master: UsesMaster, caller: UserCaller) -> Aliases:
    """Let an alias lead to a version, wherever it led before."""
    return Aliases(aliases=master.model_aliases.put(caller, model_name, alias, body.version))


@router.delete("/models/{model_name}/aliases/{alias}")
def delete_alias(model_name: str, alias: str, master: UsesMaster, caller: UserCaller) -> Aliases:
    """Remove an alias; its version stays."""
    return Aliases(aliases=master.model_aliases.remove(caller, model_name, alias))


@router.get("/models/{model_name}/versions/{version}/lineage")
def lineage(model_name: str, version: int, master: UsesMaster, caller: UserCaller) -> VersionOrigin:
    """Say where a version comes from: checkpoint, trial, experiment, code, configuration, data and image."""
    found: Lineage = master.lineages.read(caller, model_name, version)
    row = found.checkpoint
    return VersionOrigin(
        checkpoint=str(row.uuid),
        steps=row.steps_completed,
        saved=epoch(row.report_time),
        size=row.size,
        metric=cell(row.metric),
        validation=row.validation or {},
        metadata=row.ckpt_metadata,
        training=None if found.training is None else _training(found.training),
    )


def _training(found: Training) -> TrainingOrigin:
    experiment, trial, git = found.experiment, found.trial, found.git
    return TrainingOrigin(
        experiment=experiment.id,
        experiment_name=experiment.name,
        owner=found.owner,
        created=epoch(experiment.start_time),
        trial=trial.id,
        hparams=trial.hparams,
        seed=experiment.seed,
        parent=experiment.parent_id,
        metric_name=experiment.searcher_metric,
        smaller_is_better=experiment.smaller_is_better,
        config=dict(found.config),
        git=None if git is None else GitView(**git.to_json(), changed_lines=git.changed_lines),
        images=dict(found.images),
        image_digests=found.image_digests,
        data=found.data,
        jobs=found.jobs,
    )
