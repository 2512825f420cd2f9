"""Decides which checkpoint storage is trusted: the one in the experiment's checked configuration."""

from __future__ import annotations

import os.path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.storage import CheckpointStorage, incomplete
from trainmaster.master.db.upkeep import DeclaredStorage
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.storage import StorageRef

ELSEWHERE = StorageRef({"type": "elsewhere"})
"""Of a checkpoint whose storage the master does not know: it touches nothing there."""
IN_CONTAINER = "/determined_shared_fs"  # the mount point of a shared_fs storage in images made for Determined
_FILES = ("shared_fs", "directory")
_STORAGE: TypeAdapter[Any] = TypeAdapter(CheckpointStorage)


def resolve_storage(config: StoredConfig, declared: StorageRef | None) -> StorageRef | None:
    """Return the storage of an experiment when `declared` names the same place or none; None for any other."""
    own = config.checkpoint_storage or StorageRef({})
    if not declared:
        return own
    own_root, theirs = own.root, declared.root
    if own_root is not None:
        same = theirs == own_root
        if theirs is not None and own.type == "shared_fs" and declared.type == "directory":
            same = same or theirs == os.path.normpath(os.path.join(IN_CONTAINER, own.storage_path))
        return own if same else None
    return own if theirs is None and declared.place == own.place else None


def number_of(session: Session, storage: StorageRef) -> int:
    """Return the number by which clients distinguish storages."""
    known = session.scalar(
        select(DeclaredStorage.id).where(DeclaredStorage.config == storage).order_by(DeclaredStorage.id).limit(1)
    )
    if known is not None:
        return known
    row = DeclaredStorage(config=storage)
    session.add(row)
    session.flush()
    return row.id


def is_bucket(storage: StorageRef) -> bool:
    """Whether it is a well-formed storage that is not a file system, which the master never touches."""
    try:
        known = storage.type not in (*_FILES, "") and bool(_STORAGE.validate_python(storage.to_json()))
        return known and not any(incomplete(storage.to_json()))
    except (ValidationError, ValueError):
        return False
