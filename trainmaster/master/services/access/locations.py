"""Finds the workspace of an entity, given the entity's kind in a URL and its key."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from sqlalchemy import ColumnElement, Select, func, select

from trainmaster.master.db.model_registry import Model, Template
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Project, Trial, Workspace
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound

_OF_EXPERIMENT = select(Project.workspace_id).join(Experiment, Experiment.project_id == Project.id)
_OF_TRIAL = _OF_EXPERIMENT.join(Trial, Trial.experiment_id == Experiment.id)
_OF_CHECKPOINT = _OF_EXPERIMENT.join(Checkpoint, Checkpoint.experiment_id == Experiment.id)


def _task(task_id: ColumnElement[str] | str) -> Select[int]:
    """Workspace of a trial's present or earlier task, or of a standalone task."""
    alone = select(Standalone.workspace_id).where(Standalone.task_id == task_id)
    before = select(Allocation.trial_id).where(Allocation.task_id == task_id).limit(1).scalar_subquery()
    return select(
        func.coalesce(
            _OF_TRIAL.where(Trial.task_id == task_id).scalar_subquery(),
            alone.scalar_subquery(),
            _OF_TRIAL.where(Trial.id == before).scalar_subquery(),
        )
    )


def _standalone(key: str) -> Select[int]:
    return select(Standalone.workspace_id).where(Standalone.task_id == key)


def _model(key: str) -> Select[int]:
    number = key.isdecimal() and len(key) < 10
    return select(Model.workspace_id).where(Model.id == int(key) if number else Model.name == key)


QUERIES: Mapping[str, Callable[[str], Select[int]]] = {
    "workspace_id": lambda key: select(Workspace.id).where(Workspace.id == int(key)),
    "project_id": lambda key: select(Project.workspace_id).where(Project.id == int(key)),
    "experiment_id": lambda key: _OF_EXPERIMENT.where(Experiment.id == int(key)),
    "trial_id": lambda key: _OF_TRIAL.where(Trial.id == int(key)),
    "task_id": _task,
    "allocation_id": lambda key: _task(select(Allocation.task_id).where(Allocation.id == key).scalar_subquery()),
    **{f"{word}_id": _standalone for word in ("command", "notebook", "shell", "tensorboard")},
    "uuid": lambda key: _OF_CHECKPOINT.where(Checkpoint.uuid == uuid.UUID(key)),
    "checkpoint_uuid": lambda key: _OF_CHECKPOINT.where(Checkpoint.uuid == uuid.UUID(key)),
    "model_name": _model,
    "template_name": lambda key: select(Template.workspace_id).where(Template.name == key),
}
ABSENT = "There is no template {!r}; `det template list` shows those there are."
ALL = "0"  # instead of a workspace's or project's id: everything that the caller may see


class Locations(BoundService):
    """The workspaces that entities in addresses belong to."""

    def workspace_of(self, names: Mapping[str, str]) -> int | None:
        """Return the workspace of the first entity in `names` (the parts of a URL) that has one; None when the URL
        names no such entity, or a new template. Raises NotFound for an unknown key, Invalid for a malformed one: a key
        that is parsed differently here than by the endpoint must not pass."""
        for name, key in names.items():
            if name not in QUERIES or (key == ALL and name in ("workspace_id", "project_id")):
                continue
            try:
                query = QUERIES[name](key)
            except ValueError:
                raise Invalid(f"{key!r} is not the number or UUID of a {_word(name)}.") from None
            with self._store.autocommit() as session:
                home = session.scalar(query)
            if home is None and name != "template_name":  # may be the name of a new one
                raise NotFound(absent(names))
            return home
        return None


def absent(names: Mapping[str, str]) -> str:
    """Return the sentence for an entity that is not there, or that the caller must not learn of."""
    name, key = next((name, key) for name, key in names.items() if name in QUERIES)
    if name == "template_name":
        return ABSENT.format(key)
    return f"There is no {_word(name)} {key}."


def _word(name: str) -> str:
    return name.removesuffix("_id").removesuffix("_name").replace("_", " ")
