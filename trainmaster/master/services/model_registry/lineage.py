"""Where a version of a model comes from: its checkpoint, trial, experiment, code, configuration, data and image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, func, select

from trainmaster.config.git_state import GitState
from trainmaster.config.secrets import masked
from trainmaster.master.db.tables import Allocation, AllocationNode, Checkpoint, Experiment, Project, Trial, User
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.files import git_states
from trainmaster.master.services.model_registry import registered_models
from trainmaster.master.values.configs import StoredConfig


@dataclass(frozen=True)
class Training:
    """The experiment and the trial that wrote a checkpoint. `config` has masks for secrets; `images`: by kind of slot;
    `image_digests`: which content they had, as the jobs found it; `data`: folders of the cluster that the jobs saw, and
    what they copied. `jobs`: of the trial, `cluster:number`."""

    experiment: Experiment
    trial: Trial
    owner: str
    config: Mapping[str, Any]
    git: GitState | None
    images: Mapping[str, str]
    image_digests: list[str]
    data: list[str]
    jobs: list[str]


@dataclass(frozen=True)
class Lineage:
    """`training` is None where there is none that the caller may see."""

    checkpoint: Checkpoint
    training: Training | None


class Lineages(BoundService):
    """The origins of models' versions."""

    def read(self, caller: Caller, key: str, number: int) -> Lineage:
        """Return the origin of a version. Raises NotFound."""
        with self._store.transaction() as session:
            version = registered_models.find_version(session, registered_models.find(session, key), number)
            checkpoint = session.get_one(Checkpoint, version.checkpoint)
            trial = session.get(Trial, checkpoint.trial_id) if checkpoint.trial_id is not None else None
            experiment = session.get(Experiment, trial.experiment_id) if trial is not None else None
            if trial is None or experiment is None:
                return Lineage(checkpoint, None)
            if not caller.sees(session.get_one(Project, experiment.project_id).workspace_id):
                return Lineage(checkpoint, None)
            config = masked(experiment.config.to_json())
            ran = (Allocation.trial_id == trial.id, Allocation.native_id.is_not(None))
            jobs = select(Allocation.cluster, Allocation.native_id).where(*ran).order_by(Allocation.attempt)
            training = Training(
                experiment,
                trial,
                session.get_one(User, experiment.owner_id).username,
                config,
                git_states.of_experiments(session, [experiment.id]).get(experiment.id),
                _images(experiment.config),
                list(session.scalars(_DIGESTS, {"trial": trial.id})),
                _data(experiment.config),
                [f"{cluster}:{job}" if cluster else str(job) for cluster, job in session.execute(jobs)],
            )
            return Lineage(checkpoint, training)


# Of the images that a trial's jobs ran in, the newest first.
_DIGESTS = (
    select(AllocationNode.image_digest)
    .join(Allocation, Allocation.id == AllocationNode.allocation_id)
    .where(Allocation.trial_id == bindparam("trial"), AllocationNode.image_digest != "")
    .group_by(AllocationNode.image_digest)
    .order_by(func.max(Allocation.attempt).desc(), AllocationNode.image_digest)
)


def _images(config: StoredConfig) -> dict[str, str]:
    return {kind: image for kind, image in config.environment.image.model_dump().items() if image}


def _data(config: StoredConfig) -> list[str]:
    return [*(mount.host_path for mount in config.bind_mounts), *(item.source for item in config.data_items)]
