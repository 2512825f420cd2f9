"""Changes that an experiment's owner makes: name, notes, labels, limits, archiving, and its project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.config.names import only_dots
from trainmaster.dispatchers.base import DispatcherError
from trainmaster.dispatchers.cluster.jobfolder import trees
from trainmaster.master.db.tables import Experiment, Project, Workspace
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid
from trainmaster.master.services.files import user_files
from trainmaster.master.services.files.user_files import EVERYTHING, NoFolder, UserFiles
from trainmaster.master.services.orchestration.attempts import keep_workspace
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.services.organisation import site_policies
from trainmaster.master.services.organisation.projects import open_for
from trainmaster.master.services.scheduling import queue_control
from trainmaster.master.services.scheduling.queue_control import QueueChange, QueueControl
from trainmaster.master.services.store import wake
from trainmaster.storage.contract import StorageFault


@dataclass(frozen=True)
class ExperimentChange:
    """Values to set; None leaves a value as it is. `storage` and `resources` hold keys of these sections of the
    configuration; the value None takes `max_slots` away."""

    name: str | None = None
    description: str | None = None
    notes: str | None = None
    labels: Sequence[str] | None = None
    storage: Mapping[str, int] | None = None
    resources: Mapping[str, float | None] | None = None


class ExperimentEdits(BoundService):
    """Changes of an experiment by its owner."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._files = UserFiles(master)
        self._experiment_lock = ExperimentLock(master)
        self._queue_control = QueueControl(master)

    def patch(self, caller: Caller, experiment_id: int, change: ExperimentChange) -> None:
        """Raise Invalid, NotFound, Forbidden."""
        given = dict(change.resources or {})
        _check(change, given)
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = _own(orchestrator, caller)
            config = row.config
            if change.name is not None:
                row.name, config = change.name, config.updated(name=change.name)
            if change.description is not None:
                row.description, config = change.description, config.updated(description=change.description)
            if change.notes is not None:
                row.notes = change.notes
            if change.labels is not None:
                row.labels = _distinct(change.labels)
                config = config.updated(labels=row.labels)
            if change.storage is not None:
                config = config.with_storage(**change.storage)
                row.gc_due = True
                wake(orchestrator.session, "janitor")
            config = config.with_resources(**given)
            if given:
                home = orchestrator.session.get_one(Project, row.project_id).workspace_id
                site_policies.refuse(orchestrator.session, home, config.to_json())
            row.config = config
            job_id, over, pool = str(row.job_id), row.end_time is not None, row.resource_pool
        live = {key: given[key] for key in ("priority", "weight") if given.get(key) is not None}
        slots = config.slots
        if live and not over and self._clusters.resolve(pool, slots).cluster.dispatcher.traits.agents:
            priority = int(live["priority"] or 0) if "priority" in live else None
            wanted = QueueChange(job_id, priority=priority, weight=live.get("weight"))
            self._queue_control.change(caller, [wanted])

    def set_archived(self, caller: Caller, experiment_id: int, archived: bool) -> None:
        """Archive or unarchive experiments; only ended ones can be archived."""
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = _own(orchestrator, caller)
            if archived and not State(row.state).terminal:
                raise Conflict(f"Experiment {row.id} is {row.state}: only one that has ended can be archived.")
            row.archived = archived

    def add_label(self, caller: Caller, experiment_id: int, label: str) -> list[str]:
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            return _relabel(_own(orchestrator, caller), [*orchestrator.row.labels, label])

    def remove_label(self, caller: Caller, experiment_id: int, label: str) -> list[str]:
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            return _relabel(_own(orchestrator, caller), [known for known in orchestrator.row.labels if known != label])

    def labels(self, caller: Caller, project_id: int | None) -> list[str]:
        """Labels in use, the most frequent first."""
        used = select(func.jsonb_array_elements_text(Experiment.labels).label("label"))
        if project_id is not None:
            used = used.where(Experiment.project_id == project_id)
        if caller.workspaces is not None:
            visible = select(Project.id).where(Project.workspace_id.in_(caller.workspaces))
            used = used.where(Experiment.project_id.in_(visible))
        label = used.subquery().c.label
        query = select(label).group_by(label).order_by(func.count().desc(), label)
        with self._store.transaction() as session:
            return list(session.scalars(query))

    def move(self, caller: Caller, experiment_id: int, project_id: int) -> None:
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = _own(orchestrator, caller)
            project = _target(orchestrator.session, caller, project_id)
            if row.archived:
                raise Conflict(f"Experiment {row.id} is archived; unarchive it before moving it.")
            session = orchestrator.session
            before = session.get_one(Project, row.project_id)
            if before.workspace_id != project.workspace_id:
                keep_workspace(session, Experiment.id == row.id, session.get_one(Workspace, before.workspace_id))
            row.project_id = project.id

    def remove_tensorboard_files(self, caller: Caller, experiment_id: int) -> None:
        """Remove the event files that its trials copied to the checkpoint storage."""
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = _own(orchestrator, caller)
            if not State(row.state).terminal:
                raise Conflict(f"Experiment {row.id} is {row.state}: its TensorBoard files can go when it has ended.")
            try:
                place = user_files.events_of(orchestrator.session, self._settings, row)
            except NoFolder as error:
                raise Invalid(str(error)) from None
        try:
            self._files.remove(place, [EVERYTHING])
        except NoFolder as error:
            raise Conflict(str(error)) from None
        except (trees.Unfinished, DispatcherError, StorageFault) as error:
            raise Conflict(f"{place.folder} is not removed yet: {error}. Ask again.") from None
        except OSError as error:
            raise Conflict(f"{place.folder} could not be removed: {error.strerror}.") from None


# -- inside -------------------------------------------------------------------------------------------------------


def _own(orchestrator: ExperimentOrchestrator, caller: Caller) -> Experiment:
    row = orchestrator.row
    caller.require_owner(f"Experiment {row.id}", row.owner_id)
    return row


def _target(session: Session, caller: Caller, project_id: int) -> Project:
    return open_for(session, caller, project_id)


def _relabel(row: Experiment, labels: Sequence[str]) -> list[str]:
    distinct = _distinct(labels)
    row.labels = distinct
    row.config = row.config.updated(labels=distinct)
    return distinct


def _distinct(labels: Sequence[str]) -> list[str]:
    distinct = list(dict.fromkeys(label.strip() for label in labels))
    if "" in distinct:
        raise Invalid("A label must not be empty.")
    if dots := next(filter(only_dots, distinct), None):
        raise Invalid(f"{dots!r} cannot be a label: {only_dots(dots)}.")
    return distinct


def _check(change: ExperimentChange, given: Mapping[str, Any]) -> None:
    if change.name is not None and not change.name.strip():
        raise Invalid("An experiment's name must not be empty.")
    for key, value in (change.storage or {}).items():
        if value < 0:
            raise Invalid(f"{key} is a number of checkpoints from 0 on, not {value}.")
    if (priority := given.get("priority")) is not None and priority not in queue_control.PRIORITIES:
        raise Invalid(f"A priority is a number from 1 (served first) to 99, not {priority:g}.")
    if (weight := given.get("weight")) is not None and not 0 < weight <= queue_control.MAX_WEIGHT:
        raise Invalid(f"A weight is a number above 0, not {weight:g}.")
    if (slots := given.get("max_slots")) is not None and slots < 0:
        raise Invalid(f"max_slots is a number from 0 on, not {slots:g}.")
