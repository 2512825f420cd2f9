"""Opens the object stores that keep checkpoints, with the credentials that they were configured with.

An experiment's own credentials come first. Those of the site and of its workspaces stay with the master: they open the
bucket that they were configured for, at or below its prefix, and no experiment or job ever holds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.storage import CREDENTIALS, SITE_ONLY, account_of
from trainmaster.master.db.tables import Experiment, Project, Workspace
from trainmaster.master.services.context import Settings
from trainmaster.master.services.errors import Invalid, Unavailable
from trainmaster.master.values.storage import StorageRef
from trainmaster.plugins import STORAGES, PluginError, load
from trainmaster.storage.contract import ObjectStore, StorageAway, StorageFault

_PUBLIC = (".amazonaws.com", ".amazonaws.com.cn", ".blob.core.windows.net", "storage.googleapis.com")


class NoStore(Exception):
    """This master cannot open the store; the message says why."""


def opened(session: Session, settings: Settings, storage: StorageRef, experiment_id: int | None) -> ObjectStore:
    """Open the store of an experiment's files. Raises NoStore."""
    given = storage.to_json()
    if _has_key(given):
        return _open_for_users(settings, given)
    own = _of_workspace(session, experiment_id)
    # One without a key of its own would get the master's, from its variables or its machine's role.
    if own is not None and _has_key(own) and covers(own, given):
        return _open_for_users(settings, {**own, **_prefix_of(given)})
    if settings.checkpoint_storage and covers(settings.checkpoint_storage, given):
        return _open(storage.type, {**settings.checkpoint_storage, **_prefix_of(given)})
    raise NoStore(
        f"This master has no key for {where(storage)}: its checkpoint_storage names another place. Use that, or give "
        "the experiment a key of its own."
    )


def where(storage: StorageRef) -> str:
    """Name the place of checkpoints for people: `s3://bucket/prefix`."""
    bucket = storage.text("bucket") or storage.text("container")
    scheme = {"gcs": "gs"}.get(storage.type, storage.type)
    return f"{scheme}://" + "/".join(filter(None, (bucket, storage.prefix)))


def key_of(storage: StorageRef, *parts: str) -> str:
    """Return the key of an object: the storage's prefix, and these below it."""
    return "/".join(filter(None, (storage.prefix, *parts)))


def refusal(fault: StorageFault) -> Exception:
    """Turn a fault of a store into an answer of the API."""
    if isinstance(fault, StorageAway):
        return Unavailable(str(fault), retry_after=5.0)
    return Invalid(str(fault))


# -- inside -----------------------------------------------------------------------------------------------------------


def _of_workspace(session: Session, experiment_id: int | None) -> Mapping[str, Any] | None:
    """Return the storage of an experiment's workspace, with its credentials."""
    own = (
        select(Workspace.checkpoint_storage)
        .join(Project, Project.workspace_id == Workspace.id)
        .join(Experiment, Experiment.project_id == Project.id)
        .where(Experiment.id == experiment_id)
    )
    section = session.scalar(own)
    return section.to_json() if section else None


def _has_key(section: Mapping[str, Any]) -> bool:
    return any(section.get(key) for key in CREDENTIALS)


def _open_for_users(settings: Settings, section: Mapping[str, Any]) -> ObjectStore:
    """Open what a user has written: nowhere inside the site, and with no file of the master. Raises NoStore."""
    _check_address(settings, StorageRef(dict(section)))
    return _open(str(section["type"]), {key: value for key, value in section.items() if key not in SITE_ONLY})


def covers(section: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a configured section is for the place that an experiment names."""

    def place(of: Mapping[str, Any]) -> tuple[str, ...]:
        account = of.get("account_url") or account_of(str(of.get("connection_string") or ""))
        bucket = of.get("bucket") or of.get("container")
        return tuple(str(part or "").rstrip("/") for part in (of.get("type"), bucket, of.get("endpoint_url"), account))

    above, below = (StorageRef(dict(each)).prefix for each in (section, wanted))
    return place(section) == place(wanted) and (not above or f"{below}/".startswith(f"{above}/"))


def _prefix_of(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"prefix": given["prefix"]} if given.get("prefix") else {}


def _check_address(settings: Settings, storage: StorageRef) -> None:
    """Check that a user's own store is none inside the site that its administrator did not name. Raises NoStore."""
    account = storage.text("account_url") or account_of(storage.text("connection_string"))
    address = storage.text("endpoint_url") or account
    parts = urlsplit(address)
    plain = parts.scheme == "https" and not (parts.username or parts.password or parts.query or parts.fragment)
    theirs = not address or (plain and str(parts.hostname).endswith(_PUBLIC))
    if not theirs and address.rstrip("/") not in settings.storage_endpoints:
        raise NoStore(
            f"This master does not connect to {address}, which an experiment names: ask the administrator to list it "
            "under storage_endpoints."
        )


def _open(kind: str, section: Mapping[str, Any]) -> ObjectStore:
    return _opened(kind, json.dumps(section, sort_keys=True))


@lru_cache(maxsize=32)  # each holds connections
def _opened(kind: str, text: str) -> ObjectStore:
    try:
        plugin = load(STORAGES, kind)
        store: ObjectStore = plugin(plugin.Options.model_validate(json.loads(text)))
    except PluginError as error:
        raise NoStore(str(error)) from None
    except ValidationError:
        raise NoStore(f"The configuration of a {kind} storage is not valid any more: set it again.") from None
    return store
