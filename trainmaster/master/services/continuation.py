"""Going on with an experiment of one trial that has ended."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.merge import merge
from trainmaster.config.messages import ConfigError
from trainmaster.config.source import read
from trainmaster.config.validation import check, in_order
from trainmaster.master.db.tables import Experiment, Project, Task, Trial
from trainmaster.master.lifecycle import experiment as lifecycle
from trainmaster.master.lifecycle.states import State
from trainmaster.master.search import Create, Search, SearchError
from trainmaster.master.services import policies
from trainmaster.master.services.clusters import Clusters
from trainmaster.master.services.conductor import Conductor, conducting
from trainmaster.master.services.creation import refusal
from trainmaster.master.services.errors import Conflict, Forbidden, Invalid
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.search_limits import refuse_excess
from trainmaster.master.services.store import Settings, Store

SOURCE = "overrideConfig"
_FIXED = ("name", "project", "workspace")  # PATCH and move change these


def go_on(
    store: Store, settings: Settings, clusters: Clusters, caller: Caller, experiment_id: int, overrides: str
) -> None:
    """The trial trains again from its latest checkpoint, under the configuration with `overrides` (YAML) in it.

    Raises Invalid, Conflict, NotFound, Forbidden.
    """
    with conducting(store, settings, experiment_id) as conductor:
        row = conductor.row
        if not caller.may_change(row.owner_id):
            raise Forbidden(f"Experiment {row.id} belongs to somebody else.")
        if overrides.strip() and not (caller.admin or caller.user_id == row.owner_id):
            raise Forbidden(
                f"Experiment {row.id} runs as the account of its owner, who alone can continue it under another "
                "configuration; fork it instead."
            )
        workspace_id = conductor.session.get_one(Project, row.project_id).workspace_id
        caller.check(workspace_id)
        trial = _only_trial(conductor)
        config = _overridden(row, overrides)
        refuse_excess(settings.limits, config)
        policies.refuse(conductor.session, workspace_id, config)
        served = clusters.resolve(config["resources"]["resource_pool"] or "", config["resources"]["slots_per_trial"])
        config["resources"]["resource_pool"] = row.resource_pool = served.pool.name
        row.config = config
        row.searcher_metric = config["searcher"]["metric"]
        row.smaller_is_better = bool(config["searcher"].get("smaller_is_better", True))
        _reopen(conductor, trial)
        conductor.story("experiment", "Continue", State.PAUSED, State.ACTIVE, f"asked by {caller.username}")
        conductor.experiment_event(lifecycle.Activate())


def _only_trial(conductor: Conductor) -> Trial:
    row = conductor.row
    if not State(row.state).terminal:
        raise Conflict(f"Experiment {row.id} is {row.state}: only one that has ended can be continued.")
    if row.unmanaged:
        raise Invalid(f"Experiment {row.id} runs elsewhere: whoever runs it starts it again.")
    if row.searcher_type != "single":
        raise Invalid(
            f"Experiment {row.id} is a {row.searcher_type} search; only experiments with the searcher single can be "
            "continued."
        )
    if row.archived:
        raise Conflict(f"Experiment {row.id} is archived; unarchive it first.")
    query = select(Trial).where(Trial.experiment_id == row.id).with_for_update()
    (trial,) = conductor.session.scalars(query)
    return trial


def _overridden(row: Experiment, overrides: str) -> dict[str, Any]:
    try:
        document = read(overrides, SOURCE)
        given, complaints = check(ExperimentConfig, document.data, document)
        if given is None:
            raise ConfigError(in_order(complaints), SOURCE)
        changes = given.given()
        whole, complaints = check(ExperimentConfig, merge(changes, row.config), document)
        if whole is None:
            raise ConfigError(complaints, SOURCE)
    except ConfigError as error:
        raise refusal(error) from None
    for key in _FIXED:
        if key in changes and changes[key] != row.config.get(key):
            raise Invalid(f"{SOURCE}: {key} cannot be changed by continuing.")
    if whole.searcher is None or whole.searcher.name != "single":
        raise Invalid(f"{SOURCE}: the searcher must stay single.")
    return whole.to_json()


def _reopen(conductor: Conductor, trial: Trial) -> None:
    """As if it had been paused: what follows is what follows `activate`."""
    row, session = conductor.row, conductor.session
    try:
        search, actions = Search.start(row.config["searcher"], row.config["hyperparameters"], row.seed)
    except SearchError as error:
        raise Invalid(f"{SOURCE}: searcher: {error}") from None
    row.search = search.snapshot()
    row.state, row.reason, row.end_time, row.shutdown = State.PAUSED.value, "", None, None
    row.live_trials, row.progress, row.gc_due = 1, 0.0, False
    trial.state, trial.stop, trial.reason, trial.end_time = State.PAUSED.value, None, "", None
    trial.restarts = trial.setbacks = 0
    trial.no_retries = None
    trial.progress, trial.searcher_told = 0.0, False
    (created,) = [action for action in actions if isinstance(action, Create)]
    trial.request_id, trial.hparams = created.request_id, created.hparams
    task = session.get_one(Task, trial.task_id)
    task.end_time = None
    session.flush()
