"""Continues an experiment that has ended: its one trial, or those trials of a random or grid search that did not
complete."""

from __future__ import annotations

from sqlalchemy import select

from trainmaster.config.experiment import ExperimentConfig, incomplete
from trainmaster.config.limits import Limits
from trainmaster.config.merge import merge
from trainmaster.config.messages import ConfigError
from trainmaster.config.source import read
from trainmaster.config.validation import check, in_order
from trainmaster.master.db.tables import Experiment, Project, Trial
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.lifecycle.states import State
from trainmaster.master.search import Create, SearchError
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Forbidden, Invalid
from trainmaster.master.services.experiments.creation import refusal
from trainmaster.master.services.experiments.search_limits import refuse_excess
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.services.organisation import site_policies
from trainmaster.master.values.configs import StoredConfig

SOURCE = "overrideConfig"
CONTINUED = ("single", "random", "grid")
_FIXED = ("project", "workspace")  # moving the experiment changes these


class Continuation(BoundService):
    """Continuation of experiments that have ended."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def go_on(self, caller: Caller, experiment_id: int, overrides: str) -> None:
        """Continue an experiment: its trials train again from their latest checkpoints, that of `single` under the
        configuration with `overrides` (YAML) in it.

        Raises Invalid, Conflict, NotFound, Forbidden.
        """
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = orchestrator.row
            workspace_id = orchestrator.session.get_one(Project, row.project_id).workspace_id
            caller.check(workspace_id, f"There is no experiment {row.id}.")
            caller.require_owner(f"Experiment {row.id}", row.owner_id)
            if overrides.strip() and not (caller.admin or caller.user_id == row.owner_id):
                raise Forbidden(
                    f"Experiment {row.id} runs as the account of its owner, who alone can continue it under another "
                    "configuration; fork it instead."
                )
            _check(orchestrator, overrides)
            config = (
                _overridden(orchestrator.settings.limits, row, overrides)
                if row.searcher_type == "single"
                else row.config
            )
            refuse_excess(self._settings.limits, config)
            site_policies.refuse(orchestrator.session, workspace_id, config.to_json())
            served = self._clusters.resolve(config.resources.resource_pool, config.slots)
            row.resource_pool = served.pool.name
            row.config, row.name = config.with_resources(resource_pool=served.pool.name), config.name or row.name
            row.searcher_metric = config.searcher.metric
            row.smaller_is_better = config.searcher.smaller_is_better
            _reopen(orchestrator)
            orchestrator.story("experiment", "Continue", State.PAUSED, State.ACTIVE, f"asked by {caller.username}")
            orchestrator.experiment_event(lifecycle.Activate())


def _check(orchestrator: ExperimentOrchestrator, overrides: str) -> None:
    """Check that the experiment can be continued. Raises Conflict, Invalid."""
    row, name = orchestrator.row, orchestrator.row.searcher_type
    if not State(row.state).terminal:
        raise Conflict(f"Experiment {row.id} is {row.state}: only one that has ended can be continued.")
    if row.unmanaged:
        raise Invalid(f"Experiment {row.id} runs outside of this master: start it again there.")
    if name not in CONTINUED:
        raise Invalid(
            f"Unsupported searcher type provided: '{name}'. Only experiments with the searcher "
            f"{', '.join(CONTINUED)} can be continued."
        )
    if name != "single" and overrides.strip() not in ("", "{}"):
        raise Invalid(
            f"override config is provided and experiment is not single searcher, got '{name}' instead: a search goes "
            "on under its own configuration."
        )
    if row.archived:
        raise Conflict(f"Experiment {row.id} is archived; unarchive it first.")
    if name != "single" and row.state == State.COMPLETED:
        left = select(Trial.id).where(Trial.experiment_id == row.id, Trial.state != State.COMPLETED.value)
        if orchestrator.session.scalar(left.limit(1)) is None:
            raise Conflict("experiment has been completed, cannot continue this experiment: all of its trials have.")


def _overridden(limits: Limits, row: Experiment, overrides: str) -> StoredConfig:
    try:
        document = read(overrides, SOURCE, limits)
        given, complaints = check(ExperimentConfig, document.data, document)
        if given is None:
            raise ConfigError(in_order(complaints), SOURCE)
        changes = given.given()
        merged = merge(changes, row.config.to_json())
        whole, complaints = check(ExperimentConfig, merged, document)
        complaints = complaints or incomplete(merged, document)
        if whole is None or complaints:
            raise ConfigError(complaints, SOURCE)
    except ConfigError as error:
        raise refusal(error) from None
    for key in _FIXED:
        if key in changes and changes[key] != getattr(row.config, key):
            raise Invalid(f"{SOURCE}: {key} cannot be changed by continuing.")
    if whole.searcher is None or whole.searcher.name != "single":
        raise Invalid(f"{SOURCE}: the searcher must stay single.")
    return StoredConfig.of(whole)


def _reopen(orchestrator: ExperimentOrchestrator) -> None:
    """Put the experiment into the state PAUSED, for `activate` to follow. The trial of `single` continues in any case,
    those of a search unless they have completed."""
    row, session = orchestrator.row, orchestrator.session
    row.state, row.reason, row.end_time, row.shutdown = State.PAUSED.value, "", None, None
    row.live_trials, row.progress, row.gc_due = 0, 0.0, False
    try:
        if row.searcher_type != "single":
            orchestrator.continue_search()
            return
        actions = orchestrator.start_search()
    except SearchError as error:
        raise Invalid(f"{SOURCE}: searcher: {error}") from None
    trial = session.scalars(select(Trial).where(Trial.experiment_id == row.id).with_for_update()).one()
    orchestrator.reopen(trial)
    (created,) = [action for action in actions if isinstance(action, Create)]
    trial.request_id, trial.hparams = created.request_id, created.hparams
    session.flush()
