"""Creates commands, notebooks, shells, TensorBoards and generic tasks: from a user's request to rows that the
controller acts on."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.limits import Limits
from trainmaster.config.masks import MASK
from trainmaster.config.messages import ConfigError
from trainmaster.config.secrets import masked, masks
from trainmaster.config.source import Document
from trainmaster.config.task import TaskConfig, parse_task, seconds_of, task_document
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Job, Task, Workspace
from trainmaster.master.lifecycle.standalone import Created, TaskState
from trainmaster.master.services import bounds
from trainmaster.master.services.access import locations
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clusters.clusters import ServedPool
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.experiments.creation import UNCATEGORIZED, pet_name, refusal
from trainmaster.master.services.files import archives, event_files
from trainmaster.master.services.files.context_archive import ContextFile, pack
from trainmaster.master.services.orchestration.task_orchestrator import (
    COMMAND,
    GENERIC,
    NOTEBOOK,
    SHELL,
    TENSORBOARD,
    locked_task,
)
from trainmaster.master.services.organisation import pool_bindings, site_policies, templates
from trainmaster.master.services.organisation.projects import open_for
from trainmaster.master.services.scheduling import effects
from trainmaster.master.services.scheduling.feasibility import Feasibility
from trainmaster.master.services.tasks import ssh_keys
from trainmaster.master.values.configs import StoredTask
from trainmaster.master.values.stored import Json

_ENDED = [state.value for state in TaskState if state.terminal]
HOME = 1  # the workspace of tasks that name none
WORDS: Mapping[str, str] = {
    COMMAND: "Command",
    NOTEBOOK: "JupyterLab",
    SHELL: "Shell",
    TENSORBOARD: "TensorBoard",
    GENERIC: "Task",
}


@dataclass(frozen=True)
class TaskOrder:
    """A user's request. `forked_from`: the task whose configuration and files it gets; `inherits`: it gets its
    parent's files. `experiment_ids` and `trial_ids`: what a TensorBoard shows."""

    kind: str
    config: str | Mapping[str, Any]
    files: Sequence[ContextFile] = ()
    template: str = ""
    workspace_id: int = 0
    project_id: int = 0
    parent_id: str = ""
    forked_from: str = ""
    inherits: bool = False
    pausable: bool = False
    experiment_ids: Sequence[int] = ()
    trial_ids: Sequence[int] = ()


@dataclass(frozen=True)
class Plan:
    """An order with everything that the workspace and the site decide about it. `given`: what was asked for, as it
    was."""

    given: Json
    config: StoredTask
    served: ServedPool
    workspace_id: int
    project_id: int | None
    unused: Sequence[str]  # keys that have no effect, a sentence each
    remarks: Sequence[str]  # what it asks for that its place ignores


@dataclass(frozen=True)
class CreatedTask:
    """A new task. `remarks`: what its owner should know, a sentence each."""

    task_id: str
    remarks: Sequence[str]


class TaskCreation(BoundService):
    """Creation of standalone tasks."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._feasibility = Feasibility(master)

    def create(self, caller: Caller, order: TaskOrder) -> CreatedTask:
        """Create the task and its allocation in one transaction. Returns the task's id. Raises Invalid, NotFound,
        Forbidden, Conflict."""
        plan = self.plan(caller, order)
        self._feasibility.refuse_impossible(plan.served, plan.config, caller.user_id, plan.workspace_id)
        archive = pack(order.files, self._settings.limits.context * 2**20)
        source = ""  # whose files it gets
        task_id = str(uuid.uuid4())
        config = plan.config
        with self._store.transaction() as session:
            # It cannot be deleted before the task is in it.
            home = session.get(Workspace, plan.workspace_id, with_for_update={"key_share": True})
            if home is None or home.state:
                raise NotFound(f"The workspace {plan.workspace_id} has just been deleted.")
            if order.parent_id:
                _parent(session, caller, order.parent_id)
                source = order.parent_id if order.inherits else source
            if order.forked_from and not order.files:
                _own_task(session, caller, order.forked_from)
                source = order.forked_from
            live = (Standalone.owner_id == caller.user_id, Standalone.state.not_in(_ENDED))
            bounds.check_count(session, "tasks", "You have {} tasks that have not ended", *live)
            job = Job(job_id=uuid.uuid4(), job_type=order.kind, owner_id=caller.user_id)
            session.add(job)
            session.flush()
            session.add(Task(task_id=task_id, task_type=order.kind, job_id=job.job_id))
            session.flush()
            row = Standalone(
                task_id=task_id,
                kind=order.kind,
                workspace_id=plan.workspace_id,
                project_id=plan.project_id,
                owner_id=caller.user_id,
                parent_id=order.parent_id or None,
                forked_from=order.forked_from or None,
                state=TaskState.ACTIVE.value,
                description=config.description or "",
                config=config,
                given=plan.given if order.kind == GENERIC else None,
                pool=plan.served.pool.name,
                secrets=ssh_keys.make() if order.kind == SHELL else None,
                pausable=order.pausable and order.kind == GENERIC,
                idle_timeout=seconds_of(config.idle_timeout or 0) or None,
                attempts=0,
                setbacks=0,
            )
            if order.kind == TENSORBOARD:
                row.shows = event_files.shown(session, self._settings, caller, order.experiment_ids, order.trial_ids)
                row.config = config.updated(bind_mounts=event_files.mounts(config.bind_mounts, row.shows))
            session.add(row)
            session.flush()
            if source:
                archives.inherit(session, task_id, source)
            else:
                archives.put(session, task_id, archive)
            with locked_task(session, self._settings, task_id) as orchestrator:
                orchestrator.event(Created())
                for sentence in plan.unused:
                    orchestrator.say(sentence)
        return CreatedTask(task_id, [*plan.unused, *plan.remarks])

    def plan(self, caller: Caller, order: TaskOrder) -> Plan:
        """Plan a task. Raises Invalid with everything that is wrong, NotFound, Forbidden, Conflict."""
        document = _document(self._settings.limits, order.config)
        shared: list[Mapping[str, Any]] = []
        with self._store.transaction() as session:
            if order.forked_from:
                merged = {**_copied(session, caller, order.forked_from), **document.data}
                document = _document(self._settings.limits, merged)
            if order.template:
                row = templates.find(session, order.template)
                caller.require(Permission.VIEW_TEMPLATES, row.workspace_id, locations.ABSENT.format(order.template))
                shared = [templates.for_tasks(row)]
        # Workspace and pool decide which defaults apply, so they are read before those are merged.
        first = _parsed(document, [*shared, *self._defaults.of_pool("")])
        if order.kind == GENERIC and not first.entrypoint:
            raise Invalid("entrypoint: is required: the command that is to run, such as python3 job.py")
        with self._store.transaction() as session:
            workspace, project_id = _home(session, caller, order, first)
            governing = site_policies.of_workspace(session, workspace.id, site_policies.NTSC)
            resources = site_policies.govern(first, governing).resources
            slots = 0 if order.kind == TENSORBOARD else resources.slots
            usual = workspace.compute_pool if slots else workspace.aux_pool
            served = self._clusters.resolve(resources.resource_pool or usual, slots)
            pool_bindings.refuse_closed(session, served.pool.name, workspace.id)
        fragments = [*shared, *self._defaults.of_pool(served.pool.name)]
        config = StoredTask.of(site_policies.govern(_parsed(document, fragments), governing))
        if left := masks(config.to_json()):
            raise Invalid(f"{left[0]} holds {MASK}, which tasks are shown with instead of the real value: write that.")
        self._defaults.check(config)
        one_node = {"is_single_node": True} if order.kind != GENERIC else {}
        config = config.with_resources(slots=slots, resource_pool=served.pool.name, **one_node)
        site = served.cluster.settings_of(served.pool.name, served.partition)
        usual_idle = {NOTEBOOK: self._settings.notebook_timeout, TENSORBOARD: self._settings.tensorboard_timeout}
        usual_timeout = usual_idle.get(order.kind) or None
        config = config.updated(
            work_dir=config.work_dir or site.work_dir or None,
            description=config.description or pet_name(WORDS[order.kind]),
            idle_timeout=usual_timeout if config.idle_timeout is None else config.idle_timeout,
        )
        place = effects.JobPlace.of(served.cluster, schedules=self._clusters.schedules(served.cluster))
        unused = [*effects.unused(place, document.data, order.kind), *_folder_goes(order.kind, config)]
        remarks = effects.remarks(place, config)
        return Plan(dict(document.data), config, served, workspace.id, project_id, unused, remarks)


def _folder_goes(kind: str, config: StoredTask) -> list[str]:
    """Return what to know about the folder that a notebook or shell begins in."""
    if kind not in (NOTEBOOK, SHELL) or config.work_dir:
        return []
    return [
        f"The folder in which the {kind.lower()} begins is removed when it ends. Keep what is to stay in another one, "
        "such as your home: --config work_dir=~ begins there."
    ]


# -- inside -------------------------------------------------------------------------------------------------------


def _parsed(document: Document, defaults: Sequence[Mapping[str, Any]]) -> TaskConfig:
    try:
        return parse_task(document, defaults=defaults)
    except ConfigError as error:
        raise refusal(error) from None


def _document(limits: Limits, given: str | Mapping[str, Any]) -> Document:
    try:
        return task_document(given, limits)
    except ConfigError as error:
        raise refusal(error) from None


def _home(session: Session, caller: Caller, order: TaskOrder, config: TaskConfig) -> tuple[Workspace, int | None]:
    """Return the task's workspace: the request overrides the names in the configuration."""
    if order.project_id or (order.kind == GENERIC and not order.workspace_id):
        project = open_for(session, caller, order.project_id or UNCATEGORIZED)
        return session.get_one(Workspace, project.workspace_id), project.id
    workspace = session.get(Workspace, order.workspace_id) if order.workspace_id else None
    if not order.workspace_id:
        named = select(Workspace).where(Workspace.name == config.workspace)
        workspace = session.scalar(named) if config.workspace else session.get(Workspace, HOME)
    if workspace is None:
        raise NotFound(f"There is no workspace {order.workspace_id or config.workspace!r}.")
    caller.check(workspace.id, f"There is no workspace {order.workspace_id or config.workspace!r}.")
    if workspace.archived:
        raise NotFound(
            f"The workspace {workspace.name!r} is not found among those that take tasks: it is archived; unarchive it."
        )
    if workspace.state:
        raise Conflict(f"The workspace {workspace.name!r} is being deleted.")
    return workspace, None


def _parent(session: Session, caller: Caller, task_id: str) -> Standalone:
    """Load the parent under a lock: while it is being ended it gets no further children."""
    parent = _own_task(session, caller, task_id, lock=True)
    if parent.kind != GENERIC or parent.state != TaskState.ACTIVE:
        raise Conflict(f"Task {task_id} is {parent.state}: only a generic task that is ACTIVE can get children.")
    return parent


def _own_task(session: Session, caller: Caller, task_id: str, *, lock: bool = False) -> Standalone:
    task = session.get(Standalone, task_id, with_for_update=lock)
    if task is None:
        raise NotFound(f"There is no task {task_id}.")
    caller.check(task.workspace_id, f"There is no task {task_id}.")
    caller.require_owner(f"Task {task_id}", task.owner_id)
    return task


def _copied(session: Session, caller: Caller, task_id: str) -> Json:
    source = _own_task(session, caller, task_id)
    config = source.config.to_json() if source.given is None else source.given
    shown = config if caller.user_id == source.owner_id else masked(config)
    return {key: value for key, value in shown.items() if TaskConfig.has(key)}
