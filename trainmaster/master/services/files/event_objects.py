"""Signs transfers of TensorBoard's event files to and from object stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.files import object_stores
from trainmaster.master.services.files.event_files import STORED, events_key
from trainmaster.master.services.files.object_stores import NoStore, refusal
from trainmaster.master.values.storage import StorageRef
from trainmaster.storage.contract import ObjectStore, SignedRequest, StorageFault

LARGEST = 2**30  # bytes of an event file
LONGEST = 1000  # characters of its path
MOST = 1000  # files of one call


@dataclass(frozen=True)
class EventObject:
    """An event file, by its path below what was asked for."""

    path: str
    size: int
    request: SignedRequest


@dataclass(frozen=True)
class EventObjects:
    """`after`: the path to ask for next; empty at the end. `authority`: certificates (PEM) of the store."""

    files: list[EventObject]
    after: str
    authority: str


class EventObjectFiles(BoundService):
    """Event files in object stores."""

    def sign_uploads(self, allocation_id: str, files: Sequence[tuple[str, int]]) -> EventObjects:
        """Sign uploads of a trial's event files, each whole. Raises NotFound, Conflict, Invalid, Unavailable."""
        if len(files) > MOST:
            raise Invalid(f"There are {len(files)} event files; at most {MOST} are signed at once.")
        for path, size in files:
            if len(path) > LONGEST or any(part in ("", ".", "..") for part in path.split("/")):
                raise Invalid(f"{path[:60]!r} cannot be the path of an event file.")
            if size > LARGEST:
                raise Invalid(f"The event file {path[:60]!r} has {size} bytes; at most {LARGEST} are kept.")
        with self._store.transaction() as session:
            allocation = session.get(Allocation, allocation_id)
            trial = session.get(Trial, allocation.trial_id) if allocation and allocation.trial_id is not None else None
            if allocation is None or trial is None:
                raise NotFound(f"There is no trial of allocation {allocation_id}.")
            if allocation.ended_at is not None:
                raise Conflict(f"The attempt {allocation_id} has ended: it stores no more files.")
            storage, store = self._opened(session, trial.experiment_id)
        top = f"{events_key(self._settings, storage, trial.experiment_id)}/trial/{trial.id}"
        try:
            signed = [EventObject(path, size, store.sign_put(f"{top}/{path}")) for path, size in files]
        except StorageFault as fault:
            raise refusal(fault) from None
        return EventObjects(signed, "", store.authority)

    def sign_downloads(self, allocation_id: str, name: str, after: str = "") -> EventObjects:
        """Sign downloads of what a TensorBoard shows under `name`, in the order of the paths. Raises NotFound, Invalid,
        Unavailable."""
        with self._store.transaction() as session:
            task = session.scalar(
                select(Standalone)
                .join(Allocation, Allocation.task_id == Standalone.task_id)
                .where(Allocation.id == allocation_id)
            )
            place = (task.shows.folders if task is not None and task.shows else {}).get(name, "")
            if not place.startswith(STORED):
                raise NotFound(f"The task of {allocation_id} shows nothing of this name from an object store.")
            number, _, below = place.removeprefix(STORED).partition("/")
            storage, store = self._opened(session, int(number))
        top = f"{events_key(self._settings, storage, int(number))}/{below}/"
        try:
            found = list(islice(store.list(top, top + after if after else ""), MOST + 1))
            files = [
                EventObject(each.key.removeprefix(top), each.size, store.sign_get(each.key)) for each in found[:MOST]
            ]
        except StorageFault as fault:
            raise refusal(fault) from None
        return EventObjects(files, files[-1].path if len(found) > MOST else "", store.authority)

    def _opened(self, session: Session, experiment_id: int) -> tuple[StorageRef, ObjectStore]:
        row = session.get(Experiment, experiment_id)
        storage = row.config.checkpoint_storage if row is not None else None
        if storage is None or not storage.in_store:
            raise NotFound(f"Experiment {experiment_id} keeps its event files in no object store.")
        try:
            return storage, object_stores.opened(session, self._settings, storage, experiment_id)
        except NoStore as error:
            raise Invalid(str(error)) from None
