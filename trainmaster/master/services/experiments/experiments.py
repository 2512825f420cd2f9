"""Lists, gets, steers and deletes experiments. `creation` creates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Integer, any_, func, literal, or_, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.limits import Limits
from trainmaster.master.db.tables import (
    Allocation,
    Experiment,
    Project,
    Story,
    Trial,
    User,
    Workspace,
)
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.lifecycle.states import AllocationState, State
from trainmaster.master.search import SearchError, simulate
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.experiments.search_limits import refuse_excess
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.organisation.workspaces import refuse_registered
from trainmaster.master.services.paging import Page, cut
from trainmaster.master.services.store import wake
from trainmaster.master.values.configs import StoredConfig


@dataclass(frozen=True)
class ExperimentView:
    """An experiment with the details of its owner, project and present allocations that a list shows."""

    row: Experiment
    username: str
    display_name: str | None
    project_name: str
    workspace_id: int
    workspace_name: str
    trial_ids: Sequence[int]
    phase: str  # ACTIVE experiments: QUEUED, PULLING, STARTING, RUNNING by their most advanced allocation
    project_owner_id: int = 0
    parent_archived: bool = False


class Experiments(BoundService):
    """Experiments: lists, states and removal."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def command(self, caller: Caller, experiment_id: int, event: lifecycle.Event) -> None:
        """Pause, activate, cancel or kill."""
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            _own(caller, orchestrator.row)
            orchestrator.experiment_event(event)

    def get(self, experiment_id: int) -> ExperimentView:
        with self._store.transaction() as session:
            views = views_of(session, [experiment_id])
            trials = select(func.array_agg(aggregate_order_by(Trial.id, Trial.id)))  # one row: there may be 100,000
            trial_ids = session.scalar(trials.where(Trial.experiment_id == experiment_id)) or [] if views else []
        if not views:
            raise NotFound(f"There is no experiment {experiment_id}.")
        return replace(views[0], trial_ids=trial_ids)

    def list_page(self, caller: Caller, query: ListQuery, offset: int, limit: int) -> Page[ExperimentView]:
        """One page of the list; `limit` 0 is everything, a negative offset counts from the end.

        It counts and sorts ids; only the page's rows are read."""
        e = Experiment
        statement = select(e.id)
        if query.users or query.sort_by == "user":
            statement = statement.join(User, User.id == e.owner_id)
        if caller.workspaces is not None:
            visible = select(Project.id).where(Project.workspace_id.in_(caller.workspaces))
            statement = statement.where(e.project_id.in_(visible))
        if query.archived is not None:
            statement = statement.where(e.archived == query.archived)
            if query.archived is False and query.project_id is None:
                shown = select(Project.id).join(Workspace, Workspace.id == Project.workspace_id)
                statement = statement.where(e.project_id.in_(shown.where(~Project.archived, ~Workspace.archived)))
        if query.users or query.user_ids:
            named = [User.username.in_(query.users)] if query.users else []
            statement = statement.where(or_(*named, e.owner_id.in_(query.user_ids)))
        if query.name:
            statement = statement.where(e.name.icontains(query.name, autoescape=True))
        if query.description:
            statement = statement.where(e.description.icontains(query.description, autoescape=True))
        for label in query.labels:
            statement = statement.where(e.labels.contains([label]))
        if query.project_id is not None:
            statement = statement.where(e.project_id == query.project_id)
        if query.ids:
            statement = statement.where(e.id.in_(query.ids))
        if query.not_ids:
            statement = statement.where(e.id.not_in(query.not_ids))
        if query.id_above is not None:
            statement = statement.where(e.id > query.id_above)
        if query.id_below is not None:
            statement = statement.where(e.id < query.id_below)
        column = SORTS[query.sort_by]
        with self._store.transaction() as session:
            if query.states:
                statement = statement.where(in_states(session, query.states))
            total = session.scalar(select(func.count()).select_from(statement.subquery())) or 0
            window = cut(offset, limit, total)
            order = column.desc().nulls_last() if query.descending else column.asc().nulls_last()
            statement = statement.order_by(order, e.id.desc() if query.descending else e.id)
            ids = list(session.scalars(statement.offset(window.start).limit(window.size)))
            views = {view.row.id: view for view in views_of(session, ids)}
        return Page([views[key] for key in ids if key in views], window)

    def delete(self, caller: Caller, experiment_id: int) -> None:
        """Mark an experiment for deletion; the controller removes checkpoints, then rows."""
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = orchestrator.row
            _own(caller, row)
            state = State(row.state)
            if state is State.DELETING:
                return
            if not (state.terminal or state is State.DELETE_FAILED):
                action = "wait until it has ended" if state.stopping else "kill it"
                raise Conflict(f"Experiment {experiment_id} is {state.value}: {action} before deleting it.")
            refuse_registered(orchestrator.session, [experiment_id])
            orchestrator.story("experiment", "Delete", state, State.DELETING, f"asked by {caller.username}")
            row.state, row.reason = State.DELETING.value, ""
            wake(orchestrator.session, "janitor")

    def story(self, trial_id: int) -> list[Story]:
        """Return the story of a trial: its own events, and those of its experiment as a whole."""
        with self._store.transaction() as session:
            trial = session.get(Trial, trial_id)
            if trial is None:
                raise NotFound(f"There is no trial {trial_id}.")
            of_trial = (Story.experiment_id == trial.experiment_id) & (
                Story.trial_id.is_(None) | (Story.trial_id == trial_id)
            )
            return list(session.scalars(select(Story).where(of_trial).order_by(Story.id)))


@dataclass(frozen=True)
class ListQuery:
    """Filters of the list; empty means no restriction. `states` may hold PHASES; `sort_by` is one of SORTS. What is
    archived with its project or workspace counts as archived, unless one project is asked for."""

    archived: bool | None = None
    states: Sequence[str] = ()
    users: Sequence[str] = ()
    user_ids: Sequence[int] = ()
    name: str = ""
    description: str = ""
    labels: Sequence[str] = ()
    project_id: int | None = None
    ids: Sequence[int] = ()
    not_ids: Sequence[int] = ()
    id_above: int | None = None  # only higher ones
    id_below: int | None = None  # only lower ones
    sort_by: str = "id"
    descending: bool = False


SORTS: Mapping[str, ColumnElement[Any]] = {
    "id": Experiment.__table__.c.id,
    "name": Experiment.__table__.c.name,
    "description": Experiment.__table__.c.description,
    "start_time": Experiment.__table__.c.start_time,
    "end_time": Experiment.__table__.c.end_time,
    "state": Experiment.__table__.c.state,
    "num_trials": Experiment.__table__.c.num_trials,
    "progress": Experiment.__table__.c.progress,
    "user": User.__table__.c.username,
    "forked_from": Experiment.__table__.c.parent_id,
    "resource_pool": Experiment.__table__.c.resource_pool,
    "project_id": Experiment.__table__.c.project_id,
    "checkpoint_size": Experiment.__table__.c.checkpoint_size,
    "checkpoint_count": Experiment.__table__.c.checkpoint_count,
    "searcher_metric_val": Experiment.__table__.c.best_metric,
}


def preview(limits: Limits, config: ExperimentConfig, seed: int) -> list[tuple[int, int | None]]:
    """How many trials of which length the search would run."""
    resolved = StoredConfig.of(config)
    refuse_excess(limits, resolved)
    try:
        return simulate(resolved.searcher.section, resolved.hyperparameters, seed)
    except SearchError as error:
        raise Invalid(f"searcher: {error}") from None


# -- inside -------------------------------------------------------------------------------------------------------


def views_of(session: Session, ids: Sequence[int]) -> list[ExperimentView]:
    """In no particular order."""
    rows = list(session.scalars(select(Experiment).where(Experiment.id == any_(literal(list(ids), ARRAY(Integer))))))
    if not rows:
        return []
    owners = {
        user.id: user for user in session.scalars(select(User).where(User.id.in_({row.owner_id for row in rows})))
    }
    projects = {
        project.id: (project, workspace)
        for project, workspace in session.execute(
            select(Project, Workspace)
            .join(Workspace, Workspace.id == Project.workspace_id)
            .where(Project.id.in_({row.project_id for row in rows}))
        )
    }
    in_phases = phases(session, [row.id for row in rows if row.state == State.ACTIVE])
    views = []
    for row in rows:
        owner, (project, workspace) = owners[row.owner_id], projects[row.project_id]
        views.append(
            ExperimentView(
                row,
                owner.username,
                owner.display_name,
                project.name,
                workspace.id,
                workspace.name,
                (),  # lists do not show them, and a long search has thousands
                in_phases.get(row.id, "QUEUED"),
                project.user_id,
                project.archived or workspace.archived,
            )
        )
    return views


PHASES = ("QUEUED", "PULLING", "STARTING", "RUNNING")
_PHASE = {
    AllocationState.PENDING: "QUEUED",
    AllocationState.ASSIGNED: "QUEUED",
    AllocationState.STARTING: "STARTING",
    AllocationState.RUNNING: "RUNNING",
    AllocationState.TERMINATING: "RUNNING",
}


def in_states(session: Session, wanted: Sequence[str]) -> ColumnElement[bool]:
    """Condition on experiments in one of these states, or of these phases of ACTIVE ones."""
    chosen: ColumnElement[bool] = Experiment.state.in_(wanted)
    if set(wanted) & set(PHASES):
        active = list(session.scalars(select(Experiment.id).where(Experiment.state == State.ACTIVE.value)))
        in_phases = phases(session, active)
        chosen |= Experiment.id.in_([key for key in active if in_phases.get(key, "QUEUED") in wanted])
    return chosen


def phases(session: Session, ids: Sequence[int]) -> dict[int, str]:
    if not ids:
        return {}
    query = (
        select(Trial.experiment_id, Allocation.state)
        .join(Allocation, Allocation.trial_id == Trial.id)
        .where(Trial.experiment_id.in_(ids), Allocation.ended_at.is_(None))
        .distinct()
    )
    best: dict[int, AllocationState] = {}
    for experiment_id, state in session.execute(query):
        phase = AllocationState(state)
        if experiment_id not in best or phase.rank > best[experiment_id].rank:
            best[experiment_id] = phase
    return {key: phase_of(state) for key, state in best.items()}


def phase_of(state: AllocationState) -> str:
    """Return the phase of what is active, by the state of its job."""
    return _PHASE.get(state, "RUNNING")


def _own(caller: Caller, row: Experiment) -> None:
    caller.require_owner(f"Experiment {row.id}", row.owner_id)
