"""Compares checkpoint storage with the database: rows whose files are gone, and files that no row names.

Each place is listed once, however many checkpoints it keeps. Nothing is changed by looking.
"""

from __future__ import annotations

import os
import pwd
import stat
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.storage import without_credentials
from trainmaster.dispatchers.cluster.jobfolder import trees
from trainmaster.master.db.model_registry import ModelVersion
from trainmaster.master.db.tables import Checkpoint, Experiment
from trainmaster.master.db.upkeep import CheckpointUpload
from trainmaster.master.services.context import Settings
from trainmaster.master.services.files import object_stores
from trainmaster.master.services.files.declared_storage import resolve_storage
from trainmaster.master.services.files.object_stores import NoStore, key_of
from trainmaster.master.services.files.user_files import DEFAULT_STORAGE, EVERYTHING
from trainmaster.master.services.removal.checkpoints import ask
from trainmaster.master.services.store import Store
from trainmaster.master.values.storage import StorageRef
from trainmaster.storage.contract import ObjectStore, StorageFault

YOUNG = 24 * 3600.0  # seconds: files of a job that has not reported its checkpoint yet
REMOVED_AT_ONCE = 1000  # objects
WHOLE = ("COMPLETED", "PARTIALLY_DELETED")


@dataclass(frozen=True)
class LostFiles:
    """A checkpoint that the database calls whole, of whose `files` some are `missing`. `version`: it is a version of a
    model."""

    checkpoint: uuid.UUID
    experiment: int | None
    missing: int
    files: int
    version: bool


@dataclass(frozen=True)
class StrayFiles:
    """Files under the id of a checkpoint that no row names, or whose row says that they were removed. `newest`: epoch
    seconds of the latest change; `owner`: their account, in a folder."""

    key: str
    files: int
    size: int  # bytes
    newest: float
    owner: str = ""


@dataclass
class AuditedPlace:
    """What was found in one place. `why_not`: why it could not be looked at; then nothing else is known."""

    place: str
    storage: StorageRef
    experiment: int | None  # one that keeps its checkpoints there
    checkpoints: int = 0
    lost: list[LostFiles] = field(default_factory=list)
    stray: list[StrayFiles] = field(default_factory=list)
    why_not: str = ""


class StorageAudit:
    """The comparison, and what can be done about its findings. It needs no running master."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings

    def run(self) -> list[AuditedPlace]:
        """Look at the site's own storage, and at each place that keeps a checkpoint."""
        with self._store.transaction() as session:
            places, rows = self._places(session)
            # Whatever place a row names: its files are somebody's.
            named = set(session.scalars(select(Checkpoint.uuid).where(Checkpoint.state != "DELETED")))
            named |= set(session.scalars(select(CheckpointUpload.checkpoint)))
            versions = set(session.scalars(select(ModelVersion.checkpoint)))
        for name, place in places.items():
            self._compare(place, rows[name], named, versions)
        return list(places.values())

    def forget(self, lost: Iterable[LostFiles]) -> None:
        """Have the lists of these checkpoints' files read again by the running master: what has no file left is then
        called deleted."""
        with self._store.transaction() as session:
            ask(session, [one.checkpoint for one in lost], [])

    def remove(self, place: AuditedPlace, stray: StrayFiles) -> None:
        """Remove files that no row names. Raises StorageFault, NoStore, OSError, and trees.Untouched for a folder of
        another account, trees.Unfinished for one with too many files for one pass."""
        if place.storage.in_store:
            store = self._opened(place)
            prefix = f"{key_of(place.storage, stray.key)}/"
            keys = [each.key for each in store.list(prefix)]
            for begin in range(0, len(keys), REMOVED_AT_ONCE):
                store.delete(keys[begin : begin + REMOVED_AT_ONCE])
            store.abort_parts(prefix)
        else:
            trees.remove(f"{self._root(place.storage)}/{stray.key}", [EVERYTHING], self._rules(os.geteuid()))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _places(self, session: Session) -> tuple[dict[str, AuditedPlace], dict[str, list[Checkpoint]]]:
        """Return the places by their names, and the checkpoints of each."""
        site = StorageRef(without_credentials(self._settings.checkpoint_storage))
        places = {self._name(site): AuditedPlace(self._name(site), site, None)}
        rows: dict[str, list[Checkpoint]] = defaultdict(list)
        configs = {
            number: config
            for number, config in session.execute(
                select(Experiment.id, Experiment.config).where(Experiment.checkpoint_count > 0)
            )
        }
        known = select(Checkpoint).where(Checkpoint.experiment_id.is_not(None)).order_by(Checkpoint.uuid)
        for row in session.scalars(known):
            config = configs.get(row.experiment_id or 0) or session.get_one(Experiment, row.experiment_id).config
            storage = resolve_storage(config, row.storage)
            if storage is None or not storage.type:  # where it lies is not the master's to know
                continue
            name = self._name(storage)
            places.setdefault(name, AuditedPlace(name, storage, row.experiment_id))
            rows[name].append(row)
        return places, rows

    def _name(self, storage: StorageRef) -> str:
        return object_stores.where(storage) if storage.in_store else self._root(storage)

    def _root(self, storage: StorageRef) -> str:
        data = self._settings.data
        return storage.root or (str(data / DEFAULT_STORAGE) if data is not None else "")

    def _compare(
        self, place: AuditedPlace, rows: Iterable[Checkpoint], named: set[uuid.UUID], versions: set[uuid.UUID]
    ) -> None:
        try:
            found = self._listed(place)
        except (OSError, StorageFault, NoStore) as error:
            place.why_not = str(error)
            return
        for row in rows:
            there = found.get(str(row.uuid), _Found())
            if row.state in WHOLE:
                place.checkpoints += 1
                wanted = [path for path in row.resources if not path.endswith("/")]
                missing = [path for path in wanted if there is not None and path not in there.paths]
                if missing:
                    lost = LostFiles(row.uuid, row.experiment_id, len(missing), len(wanted), row.uuid in versions)
                    place.lost.append(lost)
        for key, one in sorted(found.items()):
            if one is not None and one.paths and uuid.UUID(key) not in named:
                newest = one.newest or _newest(Path(self._root(place.storage)) / key, self._rules_of(place, key))
                if newest < time.time() - YOUNG:
                    place.stray.append(StrayFiles(key, len(one.paths), one.size, newest, one.owner))

    def _rules_of(self, place: AuditedPlace, key: str) -> trees.Rules:
        return self._rules((Path(self._root(place.storage)) / key).lstat().st_uid)

    def _listed(self, place: AuditedPlace) -> dict[str, _Found | None]:
        """Return what lies under each id of a checkpoint; None where that cannot be said. Raises OSError, StorageFault,
        NoStore."""
        if place.storage.in_store:
            return {**_objects(self._opened(place), place.storage)}
        root = Path(self._root(place.storage))
        found = {}
        for name in os.listdir(root):
            if _is_id(name, self._settings):
                status = (root / name).lstat()
                found[name] = _folder(root / name, self._rules(status.st_uid)) if stat.S_ISDIR(status.st_mode) else None
        return found

    def _rules(self, owner: int) -> trees.Rules:
        """Follow no link, and touch nothing of another account or of the master."""
        data = self._settings.data
        return trees.Rules(
            owner=owner,
            fence=trees.identity(str(data)) if data else None,
            gate=trees.identity(str(data / DEFAULT_STORAGE)) if data else None,
        )

    def _opened(self, place: AuditedPlace) -> ObjectStore:
        with self._store.transaction() as session:
            return object_stores.opened(session, self._settings, place.storage, place.experiment)


@dataclass
class _Found:
    """Files below one id; paths relative to it."""

    paths: set[str] = field(default_factory=set)
    size: int = 0
    newest: float = 0.0
    owner: str = ""

    def add(self, path: str, size: int, modified: float) -> None:
        self.paths.add(path)
        self.size += size
        self.newest = max(self.newest, modified)


def _is_id(name: str, settings: Settings) -> bool:
    try:
        return str(uuid.UUID(name)) == name != settings.cluster_id
    except ValueError:
        return False


def _objects(store: ObjectStore, storage: StorageRef) -> dict[str, _Found]:
    prefix = f"{storage.prefix}/" if storage.prefix else ""
    found: dict[str, _Found] = defaultdict(_Found)
    for stored in store.list(prefix):
        key, slash, path = stored.key.removeprefix(prefix).partition("/")
        try:
            same = str(uuid.UUID(key)) == key
        except ValueError:
            continue
        if same and slash:
            found[key].add(path, stored.size, stored.modified)
    return found


def _folder(folder: Path, rules: trees.Rules) -> _Found | None:
    """Return None for what cannot be read, or only in part: nothing is said of it."""
    try:
        found = _Found(owner=_account(rules.owner))
        for path, size in trees.sizes(str(folder), rules).items():
            if not path.endswith("/"):
                found.add(path, size, 0.0)
    except (trees.Untouched, trees.Unfinished, OSError):
        return None
    return found


def _newest(folder: Path, rules: trees.Rules) -> float:
    """Return the time of the latest change of a folder or anything in it; now for what cannot be read."""
    try:
        opened = trees.open_folder(str(folder), rules)
        try:
            within = (entry.status.st_mtime for entry in trees.entries(opened, rules))
            return max([os.fstat(opened).st_mtime, *within])
        finally:
            os.close(opened)
    except (trees.Untouched, trees.Unfinished, OSError):
        return time.time()


def _account(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
