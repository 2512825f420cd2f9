"""Creates experiments: from a user's file to rows that the controller acts on."""

from __future__ import annotations

import random
import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.experiment import ExperimentConfig, parse_experiment, parse_unfinished, without_effect
from trainmaster.config.git_state import GitState
from trainmaster.config.limits import Limits
from trainmaster.config.masks import MASK
from trainmaster.config.messages import ConfigError
from trainmaster.config.secrets import masks, unmasked
from trainmaster.config.source import Document, read
from trainmaster.config.storage import without_credentials
from trainmaster.master.db.tables import Experiment, Job, Project, Trial, Workspace
from trainmaster.master.lifecycle.states import State
from trainmaster.master.search import SearchError
from trainmaster.master.services import bounds
from trainmaster.master.services.access import locations
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import now
from trainmaster.master.services.clusters.clusters import ServedPool
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.experiments import warm_start
from trainmaster.master.services.experiments.search_limits import refuse_excess, refuse_late
from trainmaster.master.services.files import archives, git_states
from trainmaster.master.services.files.context_archive import ContextFile, pack
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration.experiment_lock import locked_experiment_in
from trainmaster.master.services.organisation import pool_bindings, site_policies, templates
from trainmaster.master.services.organisation.projects import open_for
from trainmaster.master.services.scheduling import effects
from trainmaster.master.services.scheduling.feasibility import Feasibility
from trainmaster.master.services.scheduling.pool_waits import median_wait
from trainmaster.master.values.configs import StoredConfig

UNCATEGORIZED = 1  # the project of experiments that name none


@dataclass(frozen=True)
class ExperimentRequest:
    """A user's request. `project_id` overrides the names in the file; without `files` a fork has its parent's."""

    text: str
    files: Sequence[ContextFile] = ()
    activate: bool = True
    parent_id: int | None = None
    project_id: int | None = None
    template: str = ""
    validate_only: bool = False
    source: str = "experiment.yaml"
    git: GitState | None = None


@dataclass(frozen=True)
class ResolvedRequest:
    """A request with everything that the workspace and the site decide about it."""

    document: Document
    config: StoredConfig
    served: ServedPool
    project_id: int
    workspace_id: int


@dataclass(frozen=True)
class Created:
    """A new experiment. `remarks`: what its configuration asks for without effect, a sentence each."""

    row: Experiment
    remarks: Sequence[str]


class ExperimentCreation(BoundService):
    """Creation of experiments from a user's file."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._feasibility = Feasibility(master)

    def create(self, caller: Caller, request: ExperimentRequest) -> Created:
        """Create the experiment, its first trials and their allocations in one transaction."""
        plan = self.resolve(caller, request)
        refuse_excess(self._settings.limits, plan.config)
        refuse_late(plan.config, now())
        self._feasibility.refuse_impossible(plan.served, plan.config, caller.user_id, plan.workspace_id)
        archive = pack(request.files, self._settings.limits.context * 2**20)
        source = request.parent_id if not request.files else None
        with self._store.transaction() as session:
            live = (Experiment.owner_id == caller.user_id, Experiment.end_time.is_(None))
            bounds.check_count(session, "experiments", "You have {} experiments that have not ended", *live)
            size = len(archive) if source is None else archives.size(session, source)
            job = Job(job_id=uuid.uuid4(), job_type="EXPERIMENT", owner_id=caller.user_id)
            session.add(job)
            session.flush()
            plan = replace(plan, config=_planned(session, caller, plan.config))
            row = _row(plan, request, job, caller, size)
            row.warm_start = warm_start.source_of(session, caller, plan.config.searcher)
            session.add(row)
            session.flush()
            if source is None:
                archives.put(session, row.id, archive)
            else:
                archives.inherit(session, row.id, source)
                git_states.inherit(session, row.id, source)
            if request.git is not None and source is None:
                git_states.put(session, row.id, request.git)
            with locked_experiment_in(session, self._settings, row.id) as orchestrator:
                try:
                    orchestrator.begin()
                except SearchError as error:
                    raise Invalid(f"{request.source}: searcher: {error}") from None
            place = effects.JobPlace.of(plan.served.cluster, schedules=self._clusters.schedules(plan.served.cluster))
            unused = [*without_effect(plan.document), *effects.unused(place, plan.document.data)]
            _tell_in_first_log(session, row.id, unused)
            if request.validate_only:
                session.rollback()
        return Created(row, [*unused, *effects.remarks(place, plan.config)])

    def resolve(self, caller: Caller, request: ExperimentRequest) -> ResolvedRequest:
        """Parse, find project and pool, merge what the workspace and the site add; creates nothing. Raises Invalid with
        every complaint."""
        # Project and pool decide which defaults apply, so they are read before those are merged.
        shared = self._template(caller, request.template)
        document = _read(self._settings.limits, request)
        first = _parsed(parse_unfinished, document, [*shared, *self._defaults.of_pool("")])
        with self._store.transaction() as session:
            if request.parent_id is not None:
                parent = session.get(Experiment, request.parent_id)
                absent = f"There is no experiment {request.parent_id} to fork from."
                if parent is None:
                    raise NotFound(absent)
                home = session.get_one(Project, parent.project_id).workspace_id
                caller.require(Permission.VIEW_EXPERIMENT_ARTIFACTS, home, absent)
            project = project_for(session, caller, first, request.project_id)
            workspace = session.get_one(Workspace, project.workspace_id)
            governing = site_policies.of_workspace(session, workspace.id)
            resources = site_policies.govern(first, governing).resources
            usual = workspace.compute_pool if resources.slots_per_trial else workspace.aux_pool
            served = self._clusters.resolve(resources.resource_pool or usual, resources.slots_per_trial)
            pool_bindings.refuse_closed(session, served.pool.name, workspace.id)
        own = workspace.checkpoint_storage
        storage = {"checkpoint_storage": without_credentials(own.to_json())} if own else {}
        fragments = [*shared, *([storage] if storage else []), *self._defaults.of_pool(served.pool.name)]
        parse = partial(parse_experiment, invariants=[policy.invariant for policy in governing if policy.invariant])
        config = site_policies.govern(_parsed(parse, document, fragments), governing)
        resolved = StoredConfig(self._with_secrets(caller, config.to_json(), request.parent_id))
        self._defaults.check(resolved)
        seed = random.SystemRandom().getrandbits(31) if resolved.seed is None else resolved.seed
        name = resolved.name or pet_name("Experiment")
        resolved = resolved.with_resources(resource_pool=served.pool.name).with_seed(seed).updated(name=name)
        return ResolvedRequest(document, resolved, served, project.id, workspace.id)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _template(self, caller: Caller, name: str) -> list[dict[str, Any]]:
        if not name:
            return []
        with self._store.transaction() as session:
            row = templates.find(session, name)
            caller.require(Permission.VIEW_TEMPLATES, row.workspace_id, locations.ABSENT.format(name))
            return [templates.for_experiments(row)]

    def _with_secrets(self, caller: Caller, config: dict[str, Any], parent_id: int | None) -> dict[str, Any]:
        """Replace masks in a configuration that was copied from a shown experiment by the real values, for the
        parent's owner."""
        if not masks(config):
            return config
        with self._store.transaction() as session:
            parent = session.get(Experiment, parent_id) if parent_id is not None else None
        if parent is not None and (caller.admin or caller.user_id == parent.owner_id):  # no role reveals passwords
            config = unmasked(config, parent.config.to_json())
        if left := masks(config):
            raise Invalid(
                f"{left[0]} holds {MASK}, which experiments are shown with instead of the real value: write that, or "
                "fork an experiment of yours."
            )
        return config


def _planned(session: Session, caller: Caller, config: StoredConfig) -> StoredConfig:
    """Return the configuration with what its search has to know from here: the wait that is to be expected before a
    deadline, and trials of earlier experiments."""
    goal = config.searcher
    more: dict[str, Any] = {}
    if goal.deadline is not None and goal.expected_wait is None:
        wait, _ = median_wait(session, config.resources.resource_pool)
        more |= {} if wait is None else {"expected_wait": round(wait, 1)}
    if goal.learn_from and not goal.known:
        more["known"] = warm_start.known_trials(session, caller, goal)
    return config.updated(searcher={**goal.to_json(), **more}) if more else config


def refusal(error: ConfigError) -> Invalid:
    """Turn a configuration error into a refused request, with every complaint for programs too."""
    return Invalid(str(error), [_complaint(c) for c in error.complaints])


def _tell_in_first_log(session: Session, experiment_id: int, remarks: Sequence[str]) -> None:
    """Write warnings about the user's file to the first trial's log, where users look first."""
    first = select(Trial.task_id).where(Trial.experiment_id == experiment_id).order_by(Trial.id).limit(1)
    if remarks and (task_id := session.scalar(first)) is not None:
        for remark in remarks:
            log_store.say(session, task_id, remark, "WARNING")


def _read(limits: Limits, request: ExperimentRequest) -> Document:
    try:
        return read(request.text, request.source, limits)
    except ConfigError as error:
        raise refusal(error) from None


def _parsed(
    parse: Callable[..., ExperimentConfig], document: Document, defaults: Sequence[Mapping[str, Any]]
) -> ExperimentConfig:
    try:
        return parse(document, defaults=defaults)
    except ConfigError as error:
        raise refusal(error) from None


def _row(plan: ResolvedRequest, request: ExperimentRequest, job: Job, caller: Caller, context_size: int) -> Experiment:
    config, searcher = plan.config, plan.config.searcher
    return Experiment(
        job_id=job.job_id,
        owner_id=caller.user_id,
        project_id=plan.project_id,
        parent_id=request.parent_id,
        state=(State.ACTIVE if request.activate else State.PAUSED).value,
        reason="",
        name=config.name,
        description=config.description,
        notes="",
        labels=list(config.labels),
        config=config,
        original_config=request.text,
        resource_pool=plan.served.pool.name,
        searcher_type=searcher.name,
        searcher_metric=searcher.metric,
        smaller_is_better=searcher.smaller_is_better,
        seed=config.seed,
        context_size=context_size,
        start_time=now(),
        num_trials=0,
        live_trials=0,
        progress=0.0,
        archived=False,
        checkpoint_count=0,
        checkpoint_size=0,
    )


def project_for(session: Session, caller: Caller, config: ExperimentConfig, project_id: int | None) -> Project:
    """Return the project of the caller's new experiment. Raises NotFound, Forbidden, Invalid."""
    if project_id:
        return open_for(session, caller, project_id)
    names = (config.workspace or "", config.project or "")
    if not any(names):
        return open_for(session, caller, UNCATEGORIZED)
    query = select(Project.id).join(Workspace, Workspace.id == Project.workspace_id)
    project = session.scalar(query.where(Workspace.name == names[0], Project.name == names[1]))
    if project is None:
        raise Invalid(
            f"There is no project {names[1]!r} in a workspace {names[0]!r}; create it, or leave both keys out."
        )
    return open_for(session, caller, project)


def _complaint(complaint: Any) -> dict[str, Any]:
    return {
        "path": list(complaint.path),
        "message": complaint.message,
        "line": complaint.line,
        "column": complaint.column,
        "suggestion": complaint.suggestion,
    }


def pet_name(what: str) -> str:
    """Return a generated name for an experiment without one."""
    adjectives = ("quiet", "bright", "patient", "nimble", "steady", "curious", "gentle", "bold")
    animals = ("heron", "otter", "lynx", "marten", "swift", "badger", "finch", "hare")
    return f"{what} ({secrets.choice(adjectives)}-{secrets.choice(animals)})"
