"""What a new experiment begins with: the checkpoint that its trials load (`source_trial_id` or `source_checkpoint_uuid`
of its searcher), and the trials of earlier experiments that its search learns from (`learn_from`)."""

from __future__ import annotations

import uuid

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Checkpoint, Experiment, Project, Trial
from trainmaster.master.search.auto import MOST_KNOWN
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.stored import Json

MOST_READ = 10_000  # trials of one experiment


def source_of(session: Session, caller: Caller, searcher: SearchGoal) -> uuid.UUID | None:
    """Return the checkpoint that new trials load before their first step; None where the searcher names none. Raises
    Invalid, Forbidden."""
    if searcher.source_trial_id is not None:
        return _latest_of(session, caller, searcher.source_trial_id)
    if searcher.source_checkpoint_uuid is not None:
        return _checked(session, caller, searcher.source_checkpoint_uuid)
    return None


def known_trials(session: Session, caller: Caller, searcher: SearchGoal) -> list[Json]:
    """Return `hparams` and `rank` (0: the best of its experiment, 1: the worst) of trials of the experiments in
    `learn_from`: the best and the worst ones, as many of each. Raises Invalid, Forbidden."""
    each = MOST_KNOWN // len(searcher.learn_from)
    known = []
    for place, experiment_id in enumerate(searcher.learn_from):
        where = f"searcher.learn_from[{place}]"
        row = session.get(Experiment, experiment_id)
        absent = f"{where}: there is no experiment {experiment_id}."
        if row is None:
            raise Invalid(absent)
        _check_view(session, caller, experiment_id, absent)
        value = Trial.searcher_metric if row.smaller_is_better else -Trial.searcher_metric
        reported = Trial.searcher_metric.is_not(None)
        query = select(Trial.hparams).where(Trial.experiment_id == experiment_id, reported).order_by(value, Trial.id)
        points = list(session.scalars(query.limit(MOST_READ)))
        if not points:
            raise Invalid(f"{where}: no trial of experiment {experiment_id} has reported {row.searcher_metric}.")
        ranked = [{"hparams": point, "rank": round(at / len(points), 4)} for at, point in enumerate(points)]
        half = each // 2
        known += ranked if len(ranked) <= each else [*ranked[:half], *ranked[len(ranked) - half :]]
    return known


def _latest_of(session: Session, caller: Caller, trial_id: int) -> uuid.UUID:
    where = "searcher.source_trial_id"
    trial = session.get(Trial, trial_id)
    if trial is None:
        raise Invalid(f"{where}: there is no trial {trial_id}.")
    _check_view(session, caller, trial.experiment_id, f"{where}: there is no trial {trial_id}.")
    if trial.latest_checkpoint is None:
        raise Invalid(f"{where}: trial {trial_id} has no checkpoint.")
    return trial.latest_checkpoint


def _checked(session: Session, caller: Caller, key: str) -> uuid.UUID:
    where = "searcher.source_checkpoint_uuid"
    try:
        checkpoint = session.get(Checkpoint, uuid.UUID(key))
    except ValueError:
        raise Invalid(f"{where}: {key!r} is not the UUID of a checkpoint.") from None
    if checkpoint is None:
        raise Invalid(f"{where}: there is no checkpoint {key}.")
    if checkpoint.experiment_id is not None:
        _check_view(session, caller, checkpoint.experiment_id, f"{where}: there is no checkpoint {key}.")
    if checkpoint.state != "COMPLETED":
        raise Invalid(f"{where}: checkpoint {key} is {checkpoint.state}; only one that is COMPLETED can be loaded.")
    return checkpoint.uuid


def _check_view(session: Session, caller: Caller, experiment_id: int, absent: str) -> None:
    home = select(Project.workspace_id).join(Experiment, Experiment.project_id == Project.id)
    workspace_id = session.scalar(home.where(Experiment.id == experiment_id))
    try:
        caller.require(Permission.VIEW_EXPERIMENT_ARTIFACTS, workspace_id, absent)
    except NotFound as error:
        raise Invalid(error.message) from None
