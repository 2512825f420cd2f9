"""Checkpoints after they were written: their metadata, and removing them whole or in part.

A request leaves a row; the controller's janitor removes the files and then says so in the checkpoint's own row, so that
what was asked for happens although the master stops in between.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from trainmaster.master.db.registry import ModelVersion
from trainmaster.master.db.tables import Checkpoint, Experiment, Project, Trial
from trainmaster.master.db.upkeep import CheckpointRemoval
from trainmaster.master.services.errors import Conflict, Forbidden, Invalid, NotFound
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.removal import checkpoint_folder
from trainmaster.master.services.store import Store, wake

log = logging.getLogger(__name__)

EVERYTHING = "**/*"


def set_metadata(store: Store, caller: Caller, key: str, metadata: Mapping[str, Any]) -> None:
    """Replace the metadata. Raises NotFound, Forbidden."""
    with store.transaction() as session:
        (row,) = _mine(session, caller, [key])
        row.ckpt_metadata = dict(metadata)


def remove(store: Store, caller: Caller, keys: Sequence[str], globs: Sequence[str] = (EVERYTHING,)) -> None:
    """Ask that the files of checkpoints that match `globs` be removed.

    Raises Invalid, NotFound, Forbidden, and Conflict for one that is still needed.
    """
    for glob in globs:
        pure = PurePosixPath(glob)
        if not glob or pure.is_absolute() or ".." in pure.parts or any(ord(c) < 32 for c in glob):
            raise Invalid(f"{glob!r} is no pattern of files inside a checkpoint.")
    with store.transaction() as session:
        rows = _mine(session, caller, keys)
        for row in rows:
            if row.state not in ("COMPLETED", "PARTIALLY_DELETED", "ERROR"):
                raise Conflict(f"Checkpoint {row.uuid} is {row.state} and has nothing to remove.")
            if checkpoint_folder(row.uuid, row.storage) is None:
                raise Invalid(
                    f"Checkpoint {row.uuid} lies in {row.storage.get('type')!r} storage, which this master cannot "
                    "remove from."
                )
        if globs and (kept := needed(session, [row.uuid for row in rows])):
            raise Conflict(
                f"Checkpoint {min(kept)} is still needed: by a trial that has not ended, or as a version of a model."
            )
        ask(session, [row.uuid for row in rows], globs)


def ask(session: Session, keys: Iterable[uuid.UUID], globs: Sequence[str]) -> None:
    """Leave word for the janitor."""
    session.add_all(CheckpointRemoval(checkpoint=key, globs=list(globs)) for key in keys)
    wake(session, "janitor")


def needed(session: Session, keys: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Those that a trial which has not ended will go on from, or that are versions of models."""
    latest = select(Trial.latest_checkpoint).where(Trial.latest_checkpoint.in_(keys), Trial.end_time.is_(None))
    found = {key for key in session.scalars(latest) if key is not None}
    return found | set(session.scalars(select(ModelVersion.checkpoint).where(ModelVersion.checkpoint.in_(keys))))


def carry_out_removals(store: Store) -> None:
    """Remove what was asked to be removed."""
    with store.transaction() as session:
        asked = list(session.execute(select(CheckpointRemoval.id).order_by(CheckpointRemoval.id)).scalars())
    for number in asked:
        _carry_out(store, number)


# -- inside -------------------------------------------------------------------------------------------------------


def _mine(session: Session, caller: Caller, keys: Sequence[str]) -> list[Checkpoint]:
    """Under their row locks. Raises NotFound, Forbidden, Invalid."""
    found = []
    for key in sorted(set(keys)):
        try:
            row = session.get(Checkpoint, uuid.UUID(key), with_for_update=True)
        except ValueError:
            raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
        if row is None:
            raise NotFound(f"There is no checkpoint {key}.")
        experiment = session.get(Experiment, row.experiment_id) if row.experiment_id else None
        if experiment is not None:
            caller.check(session.get_one(Project, experiment.project_id).workspace_id)
        if not (caller.may_change(experiment.owner_id) if experiment else caller.admin):
            raise Forbidden(f"Checkpoint {key} belongs to somebody else.")
        found.append(row)
    return found


def _carry_out(store: Store, number: int) -> None:
    with store.transaction() as session:
        asked = session.get(CheckpointRemoval, number)
        row = session.get(Checkpoint, asked.checkpoint) if asked else None
    if asked is None or row is None:
        return
    folder = checkpoint_folder(row.uuid, row.storage)
    left: dict[str, int] = {}
    if folder is not None:
        try:
            _remove_matching(folder, asked.globs)
            left = _files(folder)
        except OSError as error:
            log.warning("files of checkpoint %s could not be removed: %s; trying again", row.uuid, error)
            return
    with store.transaction() as session:
        # The order of locks: experiment, trial, and only then what hangs on them.
        if row.experiment_id is not None:
            session.get(Experiment, row.experiment_id, with_for_update=True)
        trial = session.get(Trial, row.trial_id, with_for_update=True) if row.trial_id is not None else None
        row = session.get(Checkpoint, asked.checkpoint, with_for_update=True)
        if row is not None and row.state not in ("DELETED", "ACTIVE"):
            gone = [path for path in row.resources if path not in left]
            row.resources, row.size = left, sum(left.values())
            if not any(not path.endswith("/") for path in left):
                row.state, row.resources, row.size = "DELETED", {}, 0
            elif gone:
                row.state = "PARTIALLY_DELETED"
            session.flush()
            _recount(session, row, trial)
        session.delete(session.get_one(CheckpointRemoval, number))


def _recount(session: Session, row: Checkpoint, trial: Trial | None) -> None:
    there = Checkpoint.state.in_(("COMPLETED", "PARTIALLY_DELETED"))
    counted = (func.count(), func.coalesce(func.sum(Checkpoint.size), 0))
    if trial is not None:
        mine = (Checkpoint.trial_id == trial.id, there)
        trial.checkpoint_count, trial.checkpoint_size = session.execute(select(*counted).where(*mine)).one()
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


def _remove_matching(folder: Path, globs: Sequence[str]) -> None:
    """A link is removed, not followed. Raises OSError."""
    if not folder.is_dir():
        return
    root = folder.resolve()
    matches = {match for glob in globs for match in folder.glob(glob)}
    for match in sorted(matches, key=lambda path: len(path.parts), reverse=True):
        if not match.parent.resolve().is_relative_to(root):
            continue
        if match.is_dir() and not match.is_symlink():
            if not any(match.iterdir()):
                match.rmdir()
        else:
            match.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _files(folder: Path) -> dict[str, int]:
    """What lies there: paths of folders end with a slash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            found[f"{name}/"] = 0
        else:
            found[name] = path.lstat().st_size
    return found
