"""Decides which checkpoint storage is trusted: the one in the experiment's checked configuration."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.storage import CheckpointStorage, incomplete
from trainmaster.master.db.upkeep import DeclaredStorage

Json = dict[str, Any]
ELSEWHERE: Mapping[str, Any] = {"type": "elsewhere"}
"""Of a checkpoint whose storage the master does not know: it touches nothing there."""
IN_CONTAINER = "/determined_shared_fs"  # the mount point of a shared_fs storage in images made for Determined
_POLICY = ("save_experiment_best", "save_trial_best", "save_trial_latest")
_FILES = ("shared_fs", "directory")
_STORAGE: TypeAdapter[Any] = TypeAdapter(CheckpointStorage)


def root_of(storage: Mapping[str, Any]) -> str | None:
    """The folder that holds one folder for each checkpoint; None for storage that is not a file system."""
    if not isinstance(storage, Mapping):
        return None
    kind = storage.get("type")
    if kind == "shared_fs":
        parts = (storage.get("host_path"), storage.get("storage_path") or "")
    elif kind == "directory":
        parts = (storage.get("container_path"), "")
    else:
        return None
    if not all(isinstance(part, str) and "\0" not in part for part in parts) or not str(parts[0]).startswith("/"):
        return None
    return os.path.normpath("/" + os.path.join(*map(str, parts)).lstrip("/"))


def believed(config: Mapping[str, Any], said: Mapping[str, Any] | None) -> Json | None:
    """The storage of an experiment when `said` names the same place or none; None for any other."""
    own: Json = dict(config["checkpoint_storage"])
    if not said:
        return own
    mine, theirs = root_of(own), root_of(said)
    if mine is not None:
        same = theirs == mine
        if theirs is not None and own["type"] == "shared_fs" and said.get("type") == "directory":
            same = same or theirs == os.path.normpath(os.path.join(IN_CONTAINER, own.get("storage_path") or ""))
        return own if same else None
    return own if theirs is None and isinstance(said, Mapping) and _where(said) == _where(own) else None


def number_of(session: Session, config: Mapping[str, Any]) -> int:
    """The number by which clients distinguish storages."""
    known = session.scalar(
        select(DeclaredStorage.id).where(DeclaredStorage.config == dict(config)).order_by(DeclaredStorage.id).limit(1)
    )
    if known is not None:
        return known
    row = DeclaredStorage(config=dict(config))
    session.add(row)
    session.flush()
    return row.id


def is_bucket(said: Mapping[str, Any]) -> bool:
    """Whether it is a well-formed storage that is not a file system, which the master never touches."""
    try:
        known = said.get("type") not in (*_FILES, None) and bool(_STORAGE.validate_python(dict(said)))
        return known and not any(incomplete(said))
    except (ValidationError, ValueError):
        return False


def _where(storage: Mapping[str, Any]) -> Json:
    return {key: value for key, value in storage.items() if key not in _POLICY and value is not None}
