"""Changing the queue: priority, weight, place and pool of experiments. The first three have a meaning only where we
schedule ourselves; a pool can be changed anywhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import select

from trainmaster.dispatchers.base import Rejected
from trainmaster.dispatchers.hub import AgentHub, NotLeading
from trainmaster.master.db.tables import Allocation, Experiment, Project, Trial
from trainmaster.master.lifecycle.states import Submission
from trainmaster.master.services import bindings, policies
from trainmaster.master.services.clusters import Clusters
from trainmaster.master.services.conductor import Conductor, conducting
from trainmaster.master.services.errors import Forbidden, Invalid, NotFound, Unavailable
from trainmaster.master.services.feasibility import refuse_impossible
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.permissions import Permission
from trainmaster.master.services.store import Settings, Store, wake

PRIORITIES = range(1, 100)
MAX_WEIGHT = 1e6


@dataclass(frozen=True)
class QueueChange:
    """What is to be different for one job (an experiment); None leaves it."""

    job_id: str
    priority: int | None = None
    weight: float | None = None
    resource_pool: str | None = None
    ahead_of: str | None = None
    behind_of: str | None = None


def change(store: Store, settings: Settings, clusters: Clusters, caller: Caller, wanted: QueueChange) -> None:
    """Raises Invalid, NotFound, Forbidden, Unavailable."""
    experiment = _find(store, wanted.job_id)
    with store.transaction() as session:
        caller.check(session.get_one(Project, experiment.project_id).workspace_id)
    if not caller.may_change(experiment.owner_id):
        raise Forbidden(f"Experiment {experiment.id} belongs to somebody else; only its owner or an administrator may.")
    if settings.roles and settings.strict_queue:
        caller.require(Permission.CONTROL_STRICT_JOB_QUEUE)
    _check(wanted)
    _heed_policies(store, experiment, wanted)
    slots = int(experiment.config["resources"]["slots_per_trial"])
    if wanted.resource_pool is not None and wanted.resource_pool != experiment.resource_pool:
        served = clusters.resolve(wanted.resource_pool, slots)
        with store.transaction() as session:
            workspace_id = session.get_one(Project, experiment.project_id).workspace_id
            bindings.refuse_closed(session, served.pool.name, workspace_id)
        refuse_impossible(store, settings, served, experiment.config, experiment.owner_id, workspace_id)
        with conducting(store, settings, experiment.id) as conductor:
            _move_to_pool(conductor, served.pool.name)
    if wanted.priority is not None or wanted.weight is not None:
        hub = _hub_of(clusters, experiment, slots)
        _configure(store, settings, experiment.id, priority=wanted.priority, weight=wanted.weight)
        _ask(lambda: hub.reprioritise(str(experiment.id), priority=wanted.priority, weight=wanted.weight))
    anchor_id = wanted.ahead_of or wanted.behind_of
    if anchor_id:
        anchor = _find(store, anchor_id)
        hub = _hub_of(clusters, experiment, slots)
        _ask(lambda: hub.move(str(experiment.id), str(anchor.id), ahead=bool(wanted.ahead_of)))
        priority = anchor.config["resources"].get("priority")
        if priority is not None:
            _configure(store, settings, experiment.id, priority=priority)


def _find(store: Store, job_id: str) -> Experiment:
    try:
        key = uuid.UUID(job_id)
    except ValueError:
        raise NotFound(f"There is no job {job_id!r}; `det job list` shows those there are.") from None
    with store.transaction() as session:
        found = session.scalar(select(Experiment).where(Experiment.job_id == key, Experiment.end_time.is_(None)))
    if found is None:
        raise NotFound(f"There is no job {job_id} that has not ended; `det job list` shows those there are.")
    return found


def _check(wanted: QueueChange) -> None:
    if wanted.priority is not None and wanted.priority not in PRIORITIES:
        raise Invalid(f"A priority is a number from 1 (served first) to 99, not {wanted.priority}.")
    if wanted.weight is not None and not 0 < wanted.weight <= MAX_WEIGHT:
        raise Invalid(f"A weight is a number above 0, not {wanted.weight:g}.")
    if wanted.ahead_of and wanted.behind_of:
        raise Invalid("A job can be put ahead of another or behind another, not both at once.")


def _heed_policies(store: Store, experiment: Experiment, wanted: QueueChange) -> None:
    """A job that goes ahead of another takes its priority. Raises Invalid."""
    anchor = wanted.ahead_of or wanted.behind_of
    priority = _find(store, anchor).config["resources"].get("priority") if anchor else wanted.priority
    if priority is None:
        return
    asked = {**experiment.config, "resources": {**experiment.config["resources"], "priority": priority}}
    with store.transaction() as session:
        home = session.get_one(Project, experiment.project_id).workspace_id
        policies.refuse(session, home, asked)


def _hub_of(clusters: Clusters, experiment: Experiment, slots: int) -> AgentHub:
    served = clusters.resolve(experiment.resource_pool, slots)
    dispatcher = served.cluster.dispatcher
    if not isinstance(dispatcher, AgentHub):
        raise Invalid(
            f"The pool {served.pool.name} is scheduled by {served.cluster.kind}, which keeps its own order: priority, "
            "weight and place cannot be changed here."
        )
    return dispatcher


def _ask(work: Callable[[], None]) -> None:
    try:
        work()
    except Rejected as error:
        raise Invalid(str(error)) from None
    except NotLeading as error:
        raise Unavailable(str(error)) from None


def _configure(store: Store, settings: Settings, experiment_id: int, **changes: float | None) -> None:
    """For the attempts that are still to come."""
    with conducting(store, settings, experiment_id) as conductor:
        given = {key: value for key, value in changes.items() if value is not None}
        config = conductor.row.config
        conductor.row.config = {**config, "resources": {**config["resources"], **given}}


def _move_to_pool(conductor: Conductor, pool: str) -> None:
    """What has not been submitted goes there at once, what waits is withdrawn and what runs is asked to leave first."""
    row = conductor.row
    row.resource_pool = pool
    row.config = {**row.config, "resources": {**row.config["resources"], "resource_pool": pool}}
    query = (
        select(Allocation)
        .join(Trial, Trial.id == Allocation.trial_id)
        .where(Trial.experiment_id == row.id, Allocation.ended_at.is_(None))
        .order_by(Allocation.trial_id)
    )
    why = f"the experiment was moved to pool {pool}"
    for allocation in conductor.session.scalars(query.with_for_update(of=Allocation)):
        if allocation.submission == Submission.NEW:
            allocation.pool, allocation.dispatcher = pool, ""
        else:
            timeout = row.config.get("preemption_timeout") or conductor.settings.preemption_timeout
            conductor.preempt(allocation, why, float(timeout))
        conductor.say(allocation.task_id, f"It goes to pool {pool} from now on.")
    wake(conductor.session, "controller")
