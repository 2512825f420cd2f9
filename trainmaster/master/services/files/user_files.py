"""Access to users' files in checkpoint storage: where they are, who must own them, and what the master does with them.

What the database holds of a checkpoint came from a job or a caller, so it is compared with the experiment's checked
configuration each time it is used. The work is done by `jobfolder.trees`, which follows no link: in this process, or by
the helper as the job's user where the jobs of a cluster run elsewhere or as others.
"""

from __future__ import annotations

import os
import pwd
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.dispatchers.base import HeldFiles, HoldsFiles, Rejected
from trainmaster.dispatchers.cluster.jobfolder import trees
from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Project, Trial, User, Workspace
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.context import BoundService, Settings
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.files import object_stores
from trainmaster.master.services.files.declared_storage import resolve_storage
from trainmaster.master.services.files.object_stores import NoStore
from trainmaster.master.values.storage import StorageRef
from trainmaster.storage.contract import ObjectStore

EVERYTHING = "**/*"  # the pattern of all files of a folder
REMOVED_AT_ONCE = 10_000  # objects of one step
GO = 60.0  # seconds for one round of work on a folder
DEFAULT_STORAGE = "checkpoints"  # in the data folder: the default place of checkpoints


class NoFolder(Exception):
    """The master does not touch these files; the message says why."""


class UndeclaredStorage(NoFolder):
    """No checked configuration names the place of these files."""


@dataclass(frozen=True)
class StoredPrefix:
    """A checkpoint's objects in an object store."""

    storage: StorageRef
    key: str  # of all of them, up to the slash after the checkpoint's uuid
    experiment_id: int | None

    @property
    def folder(self) -> str:
        """What messages call it."""
        return f"{object_stores.where(self.storage)}, below {self.key}"


@dataclass(frozen=True)
class StorageFolder:
    """A folder of users' files."""

    folder: str
    cluster: str  # id of the attempt whose job wrote it; empty: a program that runs elsewhere
    user: str | None  # the job's account; None: the one that the cluster's jobs run as
    since: float | None = None  # epoch seconds: it cannot be older


def check_id(settings: Settings, key: str | uuid.UUID) -> uuid.UUID:
    """Validate the id of a checkpoint. Raises Invalid for what is not a UUID, or names something else: TensorBoard's
    event files are in a folder with the cluster's id as its name."""
    try:
        identifier = key if isinstance(key, uuid.UUID) else uuid.UUID(key)
    except ValueError:
        raise Invalid(f"{key!r} is not the UUID of a checkpoint.") from None
    if not identifier.int or str(identifier) == _canonical(settings.cluster_id):
        raise Invalid(f"{key} cannot be the id of a checkpoint: make a UUID at random for each.")
    return identifier


def of_checkpoint(session: Session, settings: Settings, row: Checkpoint) -> StorageFolder | StoredPrefix:
    """Raise NoFolder."""
    config = session.scalar(select(Experiment.config).where(Experiment.id == row.experiment_id))
    trial = session.get(Trial, row.trial_id) if row.trial_id is not None else None
    # Rows may be older than the checks at the API.
    storage = resolve_storage(config, row.storage) if config and trial and row.storage else None
    if storage is None or trial is None:
        raise UndeclaredStorage(
            f"Checkpoint {row.uuid} lies where the configuration of its experiment does not say: the master leaves its "
            "files alone."
        )
    try:
        check_id(settings, row.uuid)
    except Invalid as error:
        raise NoFolder(error.message) from None
    root = storage.root
    if root is None:
        return StoredPrefix(storage, f"{object_stores.key_of(storage, str(row.uuid))}/", row.experiment_id)
    cluster, user = _account(session, row.experiment_id, row.allocation_id, trial.id)
    return StorageFolder(f"{root}/{row.uuid}", cluster, user, trial.start_time.timestamp())


def events_of(session: Session, settings: Settings, row: Experiment) -> StorageFolder | StoredPrefix:
    """Return the folder of event files of an experiment's trials. Raises NoFolder."""
    storage = row.config.checkpoint_storage or StorageRef({})  # None where no files are kept
    if storage.in_store:
        parts = (settings.cluster_id, "tensorboard", "experiment", str(row.id))
        return StoredPrefix(storage, f"{object_stores.key_of(storage, *parts)}/", row.id)
    folder = events_folder(settings, storage, row.id)
    if folder is None:
        raise NoFolder(f"This master cannot remove from {storage.type!r} storage.")
    return StorageFolder(folder, *_account(session, row.id, None, None))


def events_folder(settings: Settings, storage: StorageRef, experiment_id: int) -> str | None:
    """Return the event folder, with a folder `trial/<id>` for each trial; None in storage that is not a file system."""
    root = storage.root
    return root and f"{root}/{settings.cluster_id}/tensorboard/experiment/{experiment_id}"


class UserFiles(BoundService):
    """Opens and removes users' files in checkpoint storage. Thread-safe."""

    def remove(self, place: StorageFolder | StoredPrefix, patterns: Sequence[str]) -> Mapping[str, int]:
        """Remove matching files, and the folder when it is empty then. Returns what is left: bytes by path, folders
        with a slash at the end. Raises NoFolder, trees.Unfinished, OSError, DispatcherError, StorageFault."""
        if isinstance(place, StoredPrefix):
            return self._remove_objects(place, patterns)
        try:
            there = self._far(place)
            if there is not None:
                return there.remove(place.folder, patterns, place.since)
            return trees.remove(place.folder, patterns, self.rules(place)._replace(until=time.monotonic() + GO))
        except trees.Untouched as error:
            raise NoFolder(f"{place.folder} {error}: the master leaves it alone.") from None
        except Rejected as error:
            raise NoFolder(str(error)) from None

    def store_of(self, place: StoredPrefix) -> ObjectStore:
        """Open the store that holds the objects. Raises NoFolder."""
        try:
            with self._store.transaction() as session:
                return object_stores.opened(session, self._settings, place.storage, place.experiment_id)
        except NoStore as error:
            raise NoFolder(str(error)) from None

    def open(self, place: StorageFolder) -> tuple[int, trees.Rules]:
        """Open the folder as this machine sees it; the caller closes the descriptor. Raises NoFolder, OSError."""
        rules = self.rules(place)
        try:
            return trees.open_folder(place.folder, rules), rules
        except trees.Untouched as error:
            raise NoFolder(f"{place.folder} {error}: the master leaves it alone.") from None

    def rules(self, place: StorageFolder) -> trees.Rules:
        """Return the rules for access to a folder. Raises NoFolder where the files' owner is unknown."""
        data = self._settings.data
        cluster = self._cluster(place.cluster)
        name = place.user or (cluster and cluster.facts.job_user)
        try:
            owner = pwd.getpwnam(name).pw_uid if name else os.geteuid()
        except KeyError:
            raise NoFolder(
                f"{place.folder} should belong to {name}, which is not an account of the master's machine: the master "
                "leaves it alone."
            ) from None
        if name and owner == 0:
            raise NoFolder(f"{place.folder} would belong to root, which runs no jobs: the master leaves it alone.")
        own = DEFAULT_STORAGE
        return trees.Rules(
            owner=owner,
            since=place.since,
            fence=trees.identity(str(data)) if data else None,
            gate=trees.identity(str(data / own)) if data else None,
        )

    def _remove_objects(self, place: StoredPrefix, patterns: Sequence[str]) -> Mapping[str, int]:
        """Raise NoFolder, StorageFault."""
        store = self.store_of(place)
        split = [[part for part in pattern.split("/") if part not in ("", ".")] for pattern in patterns]
        left, gone = {}, []
        for stored in store.list(place.key):
            path = stored.key.removeprefix(place.key)
            if any(trees.matches(path.split("/"), pattern) for pattern in split):
                gone.append(stored.key)
            else:
                left[path] = stored.size
        for begin in range(0, len(gone), REMOVED_AT_ONCE):
            store.delete(gone[begin : begin + REMOVED_AT_ONCE])
        if not left and patterns:
            store.abort_parts(place.key)  # of a call that the job made twice, because it got no answer
        return left

    def _far(self, place: StorageFolder) -> HeldFiles | None:
        cluster = self._cluster(place.cluster)
        if cluster is None or not isinstance(cluster.dispatcher, HoldsFiles):
            return None
        return cluster.dispatcher.files(place.user)

    def _cluster(self, name: str) -> Cluster | None:
        return next((cluster for cluster in self._clusters if cluster.name == name), None)


# -- inside -----------------------------------------------------------------------------------------------------------


def _account(
    session: Session, experiment_id: int | None, allocation_id: str | None, trial_id: int | None
) -> tuple[str, str | None]:
    """Return the cluster and the account of the job that wrote the files: that attempt's, or the newest one's."""
    query = select(Allocation.dispatcher, Allocation.run_as).where(Allocation.dispatcher != "")
    if trial_id is not None:
        query = query.where(Allocation.trial_id == trial_id)
    else:
        query = query.join(Trial, Trial.id == Allocation.trial_id).where(Trial.experiment_id == experiment_id)
    rank = (Allocation.id == (allocation_id or "")).desc()
    row = session.execute(query.order_by(rank, Allocation.created_at.desc()).limit(1)).first()
    if row is not None:
        return row.dispatcher, row.run_as
    # A program that its owner runs elsewhere: as the account that the owner's jobs would run as.
    linked = (
        select(User.agent_user, Workspace.agent_user)
        .select_from(Experiment)
        .join(User, User.id == Experiment.owner_id)
        .join(Project, Project.id == Experiment.project_id)
        .join(Workspace, Workspace.id == Project.workspace_id)
    )
    own, shared = session.execute(linked.where(Experiment.id == experiment_id)).one()
    return "", shared or own


def _canonical(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return text
