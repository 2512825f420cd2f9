"""Decides which checkpoints an ended experiment keeps, by Determined's three numbers."""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from trainmaster.config.storage import Kept
from trainmaster.master.db.tables import Checkpoint, Experiment, Project
from trainmaster.master.db.upkeep import CheckpointRemoval
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.files.declared_storage import resolve_storage
from trainmaster.master.services.files.user_files import EVERYTHING
from trainmaster.master.services.removal.checkpoints import ask, needed
from trainmaster.master.services.retries import Retries
from trainmaster.master.values.storage import StorageRef


@dataclass(frozen=True)
class KeepPolicy:
    """How many checkpoints to keep: the best of the experiment, the best and the latest of each trial. A checkpoint
    that any of them keeps stays. Only one with the searcher's metric can be among the best."""

    experiment_best: int
    trial_best: int
    trial_latest: int

    @classmethod
    def of(cls, storage: StorageRef | None) -> KeepPolicy:
        kept = storage.kept if storage is not None else Kept()
        return cls(kept.save_experiment_best, kept.save_trial_best, kept.save_trial_latest)


@dataclass(frozen=True)
class Collection:
    """Checkpoints of an experiment that are being removed. `since`: the first request, or now where it is about to
    begin."""

    experiment_id: int
    since: dt.datetime

    @property
    def id(self) -> str:
        """Names it among tasks."""
        return f"{self.experiment_id}.checkpoint-gc"


class CheckpointPolicies(BoundService):
    """Checkpoint policies of ended experiments."""

    def running(self, workspaces: frozenset[int] | None) -> list[Collection]:
        """Return the removals of checkpoints that are due or under way; in these workspaces, or in all."""
        requested = (
            select(Checkpoint.experiment_id, func.min(CheckpointRemoval.asked_at).label("since"))
            .join(CheckpointRemoval, CheckpointRemoval.checkpoint == Checkpoint.uuid)
            .group_by(Checkpoint.experiment_id)
            .subquery()
        )
        query = (
            select(Experiment.id, func.coalesce(requested.c.since, func.now()))
            .outerjoin(requested, requested.c.experiment_id == Experiment.id)
            .where(or_(Experiment.gc_due, requested.c.since.is_not(None)))
            .order_by(Experiment.id)
        )
        if workspaces is not None:
            query = query.join(Project, Project.id == Experiment.project_id).where(Project.workspace_id.in_(workspaces))
        with self._store.autocommit() as session:
            return [Collection(*row) for row in session.execute(query)]

    def preview(self, experiment_id: int, policy: KeepPolicy) -> tuple[str, list[Checkpoint]]:
        """Return the searcher's metric, and the checkpoints that `policy` would remove."""
        with self._store.transaction() as session:
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            return row.searcher_metric, _doomed(session, row, policy)

    def collect(self, retries: Retries) -> None:
        """Remove the checkpoints that the policies of ended experiments do not keep."""
        with self._store.transaction() as session:
            due = list(session.scalars(select(Experiment.id).where(Experiment.gc_due).order_by(Experiment.id)))
        retries.each("the checkpoint policy of experiment", due, lambda number: self._collect(number))

    def _collect(self, experiment_id: int) -> None:
        with self._store.transaction() as session:
            row = session.get(Experiment, experiment_id, with_for_update=True)
            if row is None or not row.gc_due:
                return
            row.gc_due = False
            if State(row.state).terminal:
                doomed = _doomed(session, row, KeepPolicy.of(row.config.checkpoint_storage))
                ask(session, [one.uuid for one in doomed], [EVERYTHING])


def superfluous(checkpoints: Iterable[Checkpoint], policy: KeepPolicy, smaller_is_better: bool) -> list[Checkpoint]:
    """Return the checkpoints that the policy does not keep."""
    everyone = list(checkpoints)
    by_trial: dict[int | None, list[Checkpoint]] = defaultdict(list)
    for one in everyone:
        by_trial[one.trial_id].append(one)
    sign = 1.0 if smaller_is_better else -1.0

    def best(some: Sequence[Checkpoint], count: int) -> list[Checkpoint]:
        ranked = [one for one in some if one.metric is not None and math.isfinite(one.metric)]
        return _first(ranked, count, lambda one: (sign * (one.metric or 0.0), -one.steps_completed))

    kept = {one.uuid for one in best(everyone, policy.experiment_best)}
    for checkpoints_of_trial in by_trial.values():
        kept |= {one.uuid for one in best(checkpoints_of_trial, policy.trial_best)}
        latest = _first(
            checkpoints_of_trial, policy.trial_latest, lambda one: (-one.steps_completed, -one.report_time.timestamp())
        )
        kept |= {one.uuid for one in latest}
    return [one for one in everyone if one.uuid not in kept]


def _doomed(session: Session, row: Experiment, policy: KeepPolicy) -> list[Checkpoint]:
    query = select(Checkpoint).where(
        Checkpoint.experiment_id == row.id, Checkpoint.state.in_(("COMPLETED", "PARTIALLY_DELETED"))
    )
    spare = superfluous(session.scalars(query.order_by(Checkpoint.uuid)), policy, row.smaller_is_better)
    kept = needed(session, [one.uuid for one in spare])
    storage = row.config.checkpoint_storage
    if storage is None or (storage.root is None and not storage.in_store):
        return []
    return [one for one in spare if one.uuid not in kept and one.storage and resolve_storage(row.config, one.storage)]


def _first(some: Iterable[Checkpoint], count: int, key: Callable[[Checkpoint], Any]) -> list[Checkpoint]:
    return sorted(some, key=key)[:count]
