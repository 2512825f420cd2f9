"""Existing checkpoints: changes their metadata, and removes their files whole or in part.

A request leaves a row; the controller's janitor removes the files and then updates the checkpoint's own row, so that
the request is completed although the master stops in between.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from trainmaster.master.db.model_registry import ModelVersion
from trainmaster.master.db.tables import Checkpoint, Experiment, Project, Trial
from trainmaster.master.db.upkeep import CheckpointRemoval
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Forbidden, Invalid, NotFound
from trainmaster.master.services.files import object_stores, uploads, user_files
from trainmaster.master.services.files.object_stores import NoStore
from trainmaster.master.services.files.user_files import EVERYTHING, NoFolder, StoredPrefix, UserFiles
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import wake

log = logging.getLogger(__name__)

MAX_PATTERNS, MAX_PATTERN = 100, 1000  # patterns of one request, characters of each


class Checkpoints(BoundService):
    """Checkpoints' metadata, and the removal of their files."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._files = UserFiles(master)

    def set_metadata(self, caller: Caller, key: str, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata. Raises NotFound, Forbidden, Invalid."""
        bounds.check_metadata(self._settings.limits, metadata)
        with self._store.transaction() as session:
            (row,) = _mine(session, caller, [key])
            row.ckpt_metadata = dict(metadata)

    def pin(self, caller: Caller, keys: Sequence[str], pinned: bool) -> None:
        """Keep checkpoints whatever a policy or a request says, or no longer. Raises NotFound, Forbidden, Invalid,
        Conflict."""
        with self._store.transaction() as session:
            for row in _mine(session, caller, keys):
                if pinned and row.state not in ("COMPLETED", "PARTIALLY_DELETED"):
                    raise Conflict(f"Checkpoint {row.uuid} is {row.state}: only one that has its files can be pinned.")
                row.pinned = pinned

    def remove(self, caller: Caller, keys: Sequence[str], globs: Sequence[str] = (EVERYTHING,)) -> None:
        """Request the removal of the files of checkpoints that match `globs`.

        Raises Invalid, NotFound, Forbidden, and Conflict for a checkpoint that is still needed.
        """
        if len(globs) > MAX_PATTERNS or any(len(glob) > MAX_PATTERN for glob in globs):
            raise Invalid(f"There may be {MAX_PATTERNS} patterns of {MAX_PATTERN} characters each at most.")
        for glob in globs:
            pure = PurePosixPath(glob)
            if not glob or pure.is_absolute() or ".." in pure.parts or any(ord(c) < 32 for c in glob):
                raise Invalid(f"{glob!r} is not a pattern of files inside a checkpoint.")
        with self._store.transaction() as session:
            rows = _mine(session, caller, keys)
            for row in rows:
                if row.state not in ("COMPLETED", "PARTIALLY_DELETED", "ERROR"):
                    raise Conflict(f"Checkpoint {row.uuid} is {row.state} and has nothing to remove.")
                try:
                    place = user_files.of_checkpoint(session, self._settings, row)
                    if isinstance(place, StoredPrefix):
                        object_stores.opened(session, self._settings, place.storage, place.experiment_id)
                except (NoFolder, NoStore) as error:
                    raise Invalid(str(error)) from None
            if globs and (kept := needed(session, [row.uuid for row in rows])):
                raise Conflict(
                    f"Checkpoint {min(kept)} is still needed: by a trial or a fork that has not ended, as a version of "
                    "a model, or because it is pinned."
                )
            ask(session, [row.uuid for row in rows], globs)

    def carry_out_removals(self, retries: Retries) -> None:
        """Carry out the removal requests. One that can never succeed is logged once, in the trial's log."""
        with self._store.transaction() as session:
            asked = list(session.execute(select(CheckpointRemoval.id).order_by(CheckpointRemoval.id)).scalars())
        retries.each(
            "the removal of a checkpoint's files, request",
            asked,
            lambda number: self._carry_out(number),
            lambda number, error: self._give_up(number, f"The files of a checkpoint could not be removed: {error}"),
        )

    def _carry_out(self, number: int) -> None:
        """Raise trees.Unfinished, OSError, DispatcherError, StorageFault."""
        with self._store.transaction() as session:
            asked = session.get(CheckpointRemoval, number)
            row = session.get(Checkpoint, asked.checkpoint) if asked else None
        if asked is None or row is None:
            return
        try:
            with self._store.transaction() as session:
                place = user_files.of_checkpoint(session, self._settings, row)
            left = dict(self._files.remove(place, asked.globs))
        except NoFolder as error:
            self._give_up(number, f"The files of checkpoint {row.uuid} were not removed. {error}")
            return
        with self._store.transaction() as session:
            # The order of locks: experiment, trial, and only then their other rows.
            if row.experiment_id is not None:
                session.get(Experiment, row.experiment_id, with_for_update=True)
            trial = session.get(Trial, row.trial_id, with_for_update=True) if row.trial_id is not None else None
            row = session.get(Checkpoint, asked.checkpoint, with_for_update=True)
            if row is not None and row.state not in ("DELETED", "ACTIVE"):
                gone = [path for path in row.resources if path not in left]
                row.resources, row.size = left, sum(left.values())
                if not any(not path.endswith("/") for path in left):
                    row.state, row.resources, row.size = "DELETED", {}, 0
                    left = {}
                elif gone:
                    row.state = "PARTIALLY_DELETED"
                session.flush()
                uploads.forget(session, row.uuid, left)
                _recount(session, row, trial)
            session.delete(session.get_one(CheckpointRemoval, number))

    def _give_up(self, number: int, why: str) -> None:
        """Drop a request that cannot succeed, and note that in the trial's log."""
        log.warning("%s", why)
        with self._store.transaction() as session:
            asked = session.get(CheckpointRemoval, number)
            row = session.get(Checkpoint, asked.checkpoint) if asked else None
            if asked is not None:
                session.delete(asked)
                session.flush()
            if row is not None and row.task_id is not None:
                log_store.say(session, row.task_id, why, "ERROR")


def ask(session: Session, keys: Iterable[uuid.UUID], globs: Sequence[str]) -> None:
    """Store a removal request for the janitor."""
    session.add_all(CheckpointRemoval(checkpoint=key, globs=list(globs)) for key in keys)
    wake(session, "janitor")


def needed(session: Session, keys: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Return the checkpoints that a live trial would continue from or begins with, those that the trials of a live
    experiment begin with, versions of models, and those that are pinned."""
    latest = select(Trial.latest_checkpoint).where(Trial.latest_checkpoint.in_(keys), Trial.end_time.is_(None))
    begun = select(Experiment.warm_start).where(Experiment.warm_start.in_(keys), Experiment.end_time.is_(None))
    of_parents = select(Trial.warm_start).where(Trial.warm_start.in_(keys), Trial.end_time.is_(None))
    registered = select(ModelVersion.checkpoint).where(ModelVersion.checkpoint.in_(keys))
    pinned = select(Checkpoint.uuid).where(Checkpoint.uuid.in_(keys), Checkpoint.pinned)
    found = (key for query in (latest, begun, of_parents, registered, pinned) for key in session.scalars(query))
    return {key for key in found if key is not None}


# -- inside -------------------------------------------------------------------------------------------------------


def _mine(session: Session, caller: Caller, keys: Sequence[str]) -> list[Checkpoint]:
    """Under their row locks. Raises NotFound, Forbidden, Invalid."""
    rows = []
    for key in sorted(set(keys)):
        try:
            row = session.get(Checkpoint, uuid.UUID(key), with_for_update=True)
        except ValueError:
            raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
        if row is None:
            raise NotFound(f"There is no checkpoint {key}.")
        experiment = session.get(Experiment, row.experiment_id) if row.experiment_id else None
        if experiment is not None:
            home = session.get_one(Project, experiment.project_id).workspace_id
            caller.check(home, f"There is no checkpoint {key}.")
        if not (caller.may_change(experiment.owner_id) if experiment else caller.admin):
            raise Forbidden(f"Checkpoint {key} belongs to somebody else.")
        rows.append(row)
    return rows


def _recount(session: Session, row: Checkpoint, trial: Trial | None) -> None:
    there = Checkpoint.state.in_(("COMPLETED", "PARTIALLY_DELETED"))
    counted = (func.count(), func.coalesce(func.sum(Checkpoint.size), 0))
    if trial is not None:
        of_trial = (Checkpoint.trial_id == trial.id, there)
        trial.checkpoint_count, trial.checkpoint_size = session.execute(select(*counted).where(*of_trial)).one()
        if trial.latest_checkpoint == row.uuid and row.state == "DELETED":
            newest = select(Checkpoint.uuid).where(Checkpoint.trial_id == trial.id, Checkpoint.state == "COMPLETED")
            trial.latest_checkpoint = session.scalar(newest.order_by(Checkpoint.report_time.desc()).limit(1))
    if row.experiment_id is not None:
        count, size = session.execute(
            select(*counted).where(Checkpoint.experiment_id == row.experiment_id, there)
        ).one()
        session.execute(
            update(Experiment)
            .where(Experiment.id == row.experiment_id)
            .values(checkpoint_count=count, checkpoint_size=size)
        )
