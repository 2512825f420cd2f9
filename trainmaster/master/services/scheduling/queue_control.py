"""Changes entries of the queue: priority, weight, position and pool of experiments, and the first three of standalone
tasks. The first three take effect only where the master schedules itself; a pool can be changed anywhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import Rejected
from trainmaster.dispatchers.contract.agents import AgentHub, NotLeading, agent_hub
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Experiment, Project, Task, Trial
from trainmaster.master.lifecycle.standalone import TaskState
from trainmaster.master.lifecycle.states import SubmissionState
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clusters.clusters import ServedPool
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound, Unavailable
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock, locked_experiment_in
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.services.orchestration.task_orchestrator import locked_task
from trainmaster.master.services.organisation import pool_bindings, site_policies
from trainmaster.master.services.scheduling.feasibility import Feasibility
from trainmaster.master.services.store import wake
from trainmaster.master.values.configs import StoredConfig, StoredTask

ABSENT = "There is no job {} that has not ended; `det job list` shows those there are."
PRIORITIES = range(1, 100)
MAX_WEIGHT = 1e6


@dataclass(frozen=True)
class QueueChange:
    """Changes for one job (an experiment or standalone task); None leaves a value as it is."""

    job_id: str
    priority: int | None = None
    weight: float | None = None
    resource_pool: str | None = None
    ahead_of: str | None = None
    behind_of: str | None = None


@dataclass(frozen=True)
class _Entry:
    """An entry of the queue: an experiment, or a standalone task. `group`: its name in our own schedulers."""

    group: str
    experiment_id: int | None
    owner_id: int
    workspace_id: int
    pool: str
    slots: int
    config: StoredConfig | StoredTask

    @property
    def name(self) -> str:
        return f"Experiment {self.group}" if self.experiment_id is not None else f"Task {self.group}"

    @property
    def workload(self) -> str:
        return site_policies.EXPERIMENT if self.experiment_id is not None else site_policies.NTSC


class QueueControl(BoundService):
    """Changes of the queue."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)
        self._feasibility = Feasibility(master)

    def change(self, caller: Caller, wanted: Sequence[QueueChange]) -> None:
        """Make the changes in their order, after all of them have been checked: a refusal changes nothing. Raises
        Invalid, NotFound, Forbidden, Unavailable."""
        planned = [self._planned(caller, one) for one in wanted]
        for one, plan in zip(wanted, planned, strict=True):
            self._apply(one, plan)

    def prioritise_task(self, caller: Caller, row: Standalone, job_id: str, priority: int) -> None:
        """Set the priority of a standalone task. One that has ended or is being ended accepts it without effect, as in
        Determined: its owner may have killed it a moment ago. Raises Invalid, NotFound, Forbidden, Unavailable."""
        wanted = QueueChange(job_id=job_id, priority=priority)
        state = TaskState(row.state)
        if not state.terminal and state is not TaskState.STOPPING_CANCELED:
            self.change(caller, [wanted])
            return
        self._refuse_others(caller, _entry_of(row), job_id)
        _check(wanted)

    def _planned(self, caller: Caller, wanted: QueueChange) -> _Plan:
        entry = self._find(wanted.job_id)
        self._refuse_others(caller, entry, wanted.job_id)
        _check(wanted)
        anchor_id = wanted.ahead_of or wanted.behind_of
        anchor = self._find(anchor_id) if anchor_id else None
        # A job that goes ahead of another takes its priority.
        priority = anchor.config.resources.priority if anchor else wanted.priority
        self._apply_policies(entry, priority)
        target = None
        if wanted.resource_pool is not None and wanted.resource_pool != entry.pool:
            target = self._refuse_move(entry, wanted.resource_pool)
        if wanted.priority is None and wanted.weight is None and anchor is None:
            return _Plan(entry, target, None, None)
        return _Plan(entry, target, anchor, _hub_of(target or self._clusters.resolve(entry.pool, entry.slots)))

    def _refuse_others(self, caller: Caller, entry: _Entry, job_id: str) -> None:
        """Raise Forbidden for a caller who may not change the entry, NotFound for one who may not see it."""
        if entry.experiment_id is None and self._settings.roles:
            caller.require(Permission.UPDATE_NSC, entry.workspace_id, ABSENT.format(job_id))
        else:
            caller.check(entry.workspace_id, ABSENT.format(job_id))
        caller.require_owner(f"{entry.name}", entry.owner_id)
        if self._settings.roles and self._settings.strict_queue:
            caller.require(Permission.CONTROL_STRICT_JOB_QUEUE)

    def _apply(self, wanted: QueueChange, plan: _Plan) -> None:
        entry, hub = plan.entry, plan.hub
        if plan.target is not None and entry.experiment_id is not None:
            with self._experiment_lock.hold(entry.experiment_id) as orchestrator:
                _move_to_pool(orchestrator, plan.target.pool.name)
        if hub is not None and (wanted.priority is not None or wanted.weight is not None):
            _ask(lambda: hub.reprioritise(entry.group, priority=wanted.priority, weight=wanted.weight))
            self._configure(entry, priority=wanted.priority, weight=wanted.weight)
        if hub is not None and (anchor := plan.anchor) is not None:
            _ask(lambda: hub.move(entry.group, anchor.group, ahead=bool(wanted.ahead_of)))
            priority = anchor.config.resources.priority
            if priority is not None:
                self._configure(entry, priority=priority)

    def _find(self, job_id: str) -> _Entry:
        try:
            key = uuid.UUID(job_id)
        except ValueError:
            raise NotFound(f"There is no job {job_id!r}; `det job list` shows those there are.") from None
        experiments = select(Experiment, Project.workspace_id).join(Project, Project.id == Experiment.project_id)
        tasks = select(Standalone).join(Task, Task.task_id == Standalone.task_id)
        with self._store.transaction() as session:
            experiment = session.execute(
                experiments.where(Experiment.job_id == key, Experiment.end_time.is_(None))
            ).first()
            task = (
                session.scalar(tasks.where(Task.job_id == key, Standalone.end_time.is_(None)))
                if not experiment
                else None
            )
        if experiment is not None:
            row, workspace_id = experiment
            slots = row.config.slots
            return _Entry(str(row.id), row.id, row.owner_id, workspace_id, row.resource_pool, slots, row.config)
        if task is not None:
            return _entry_of(task)
        raise NotFound(ABSENT.format(job_id))

    def _apply_policies(self, entry: _Entry, priority: float | None) -> None:
        """Raise Invalid."""
        if priority is None:
            return
        asked = entry.config.with_resources(priority=priority).to_json()
        with self._store.transaction() as session:
            site_policies.refuse(session, entry.workspace_id, asked, entry.workload)

    def _configure(self, entry: _Entry, **changes: float | None) -> None:
        """Change the configuration for future attempts."""
        given = {key: value for key, value in changes.items() if value is not None}
        with self._store.transaction() as session, self._changing(session, entry) as row:
            row.config = row.config.with_resources(**given)

    @contextmanager
    def _changing(self, session: Session, entry: _Entry) -> Iterator[Experiment | Standalone]:
        if entry.experiment_id is not None:
            with locked_experiment_in(session, self._settings, entry.experiment_id) as orchestrator:
                yield orchestrator.row
        else:
            with locked_task(session, self._settings, entry.group) as task:
                yield task.row

    def _refuse_move(self, entry: _Entry, pool: str) -> ServedPool:
        """Check a move to another pool. Raises Invalid, NotFound."""
        if entry.experiment_id is None:
            raise Invalid(f"{entry.name} stays in the pool {entry.pool}: only experiments can be moved to another one.")
        served = self._clusters.resolve(pool, entry.slots)
        with self._store.transaction() as session:
            pool_bindings.refuse_closed(session, served.pool.name, entry.workspace_id)
        self._feasibility.refuse_impossible(served, entry.config, entry.owner_id, entry.workspace_id)
        return served


@dataclass(frozen=True)
class _Plan:
    """A change that may be made. `hub` is set where a scheduler of ours is involved."""

    entry: _Entry
    target: ServedPool | None
    anchor: _Entry | None
    hub: AgentHub | None


def _entry_of(task: Standalone) -> _Entry:
    slots = task.config.slots
    return _Entry(task.task_id, None, task.owner_id, task.workspace_id, task.pool, slots, task.config)


def _check(wanted: QueueChange) -> None:
    if wanted.priority is not None and wanted.priority not in PRIORITIES:
        raise Invalid(f"A priority is a number from 1 (served first) to 99, not {wanted.priority}.")
    if wanted.weight is not None and not 0 < wanted.weight <= MAX_WEIGHT:
        raise Invalid(f"A weight is a number above 0, not {wanted.weight:g}.")
    if wanted.ahead_of and wanted.behind_of:
        raise Invalid("A job can be put ahead of another or behind another, not both at once.")


def _hub_of(served: ServedPool) -> AgentHub:
    hub = agent_hub(served.cluster.dispatcher)
    if hub is None:
        raise Invalid(
            f"The pool {served.pool.name} is scheduled by {served.cluster.kind}, which keeps its own order: priority, "
            "weight and place cannot be changed here."
        )
    return hub


def _ask(work: Callable[[], None]) -> None:
    try:
        work()
    except Rejected as error:
        raise Invalid(str(error)) from None
    except NotLeading as error:
        raise Unavailable(str(error)) from None


def _move_to_pool(orchestrator: ExperimentOrchestrator, pool: str) -> None:
    """Move attempts to a pool: unsubmitted ones at once, waiting ones after a withdrawal, running ones after a
    preemption."""
    row = orchestrator.row
    row.resource_pool = pool
    row.config = row.config.with_resources(resource_pool=pool)
    query = (
        select(Allocation)
        .join(Trial, Trial.id == Allocation.trial_id)
        .where(Trial.experiment_id == row.id, Allocation.ended_at.is_(None))
        .order_by(Allocation.trial_id)
    )
    why = f"the experiment was moved to pool {pool}"
    for allocation in orchestrator.session.scalars(query.with_for_update(of=Allocation)):
        if allocation.submission == SubmissionState.NEW:
            allocation.pool, allocation.dispatcher = pool, ""
        else:
            timeout = row.config.preemption_timeout or orchestrator.settings.preemption_timeout
            orchestrator.preempt(allocation, why, float(timeout))
        orchestrator.say(allocation.task_id, f"It goes to pool {pool} from now on.")
    wake(orchestrator.session, "controller")
