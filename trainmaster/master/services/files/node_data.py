"""Signs the downloads of the data that jobs copy to their nodes from the experiment's object store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from trainmaster.config.node_data import STORE
from trainmaster.master.db.tables import Allocation, Experiment, Trial
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.files import object_stores
from trainmaster.master.services.files.object_stores import NoStore, key_of, refusal
from trainmaster.storage.contract import ObjectStore, SignedRequest, StorageFault, StoredObject

DATA = "data"  # the part of a storage's prefix that all experiments with this storage read
MOST = 1000  # files of one answer


@dataclass(frozen=True)
class DataFile:
    """A file below a source; `modified`: epoch seconds."""

    path: str
    size: int
    modified: float
    get: SignedRequest


@dataclass(frozen=True)
class DataFiles:
    """`after`: the path to ask for next; empty at the end."""

    files: list[DataFile]
    after: str
    authority: str


class NodeDataFiles(BoundService):
    """Files of experiments' data in object stores."""

    def sign(self, allocation_id: str, name: str, after: str = "", only: str = "") -> DataFiles:
        """Sign the downloads of an item's files, in the order of their paths, or of one. Raises NotFound, Invalid,
        Unavailable."""
        with self._store.transaction() as session:
            allocation = session.get(Allocation, allocation_id)
            trial = session.get(Trial, allocation.trial_id) if allocation and allocation.trial_id is not None else None
            if trial is None:
                raise NotFound(f"There is no trial of allocation {allocation_id}.")
            config = session.get_one(Experiment, trial.experiment_id).config
            item = next((item for item in config.data_items if item.name == name), None)
            storage = config.checkpoint_storage
            if item is None or not item.source.startswith(STORE) or storage is None or not storage.in_store:
                raise NotFound(f"Experiment {trial.experiment_id} has no data {name!r} in an object store.")
            try:
                store = object_stores.opened(session, self._settings, storage, trial.experiment_id)
            except NoStore as error:
                raise Invalid(str(error)) from None
        top = key_of(storage, DATA, item.source.removeprefix(STORE).strip("/"))
        try:
            found = list(islice(_below(store, top, after, only), MOST + 1))
            files = [
                DataFile(path, stored.size, stored.modified, store.sign_get(stored.key))
                for path, stored in found[:MOST]
            ]
        except StorageFault as fault:
            raise refusal(fault) from None
        return DataFiles(files, files[-1].path if len(found) > MOST else "", store.authority)


def _below(store: ObjectStore, top: str, after: str, only: str) -> Iterator[tuple[str, StoredObject]]:
    """Yield what lies below a key, or the object with this key, by paths. Raises StorageFault."""
    name = top.rpartition("/")[2]
    for stored in store.list(f"{top}/{only}", f"{top}/{after}" if after else ""):
        path = stored.key.removeprefix(f"{top}/")
        if path and not path.endswith("/") and (not only or path == only):
            yield path, stored
    if after:
        return
    for stored in store.list(top):
        if stored.key == top and only in ("", name):
            yield name, stored
        return  # the first key with this beginning is the key itself, if there is one
