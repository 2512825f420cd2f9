"""`trainmaster doctor --storage`: compares checkpoint storage with the database, and offers to mend what differs."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import select

from trainmaster.config.master import MasterConfig
from trainmaster.dispatchers.cluster.jobfolder import trees
from trainmaster.master.db.tables import MasterRecord
from trainmaster.master.main import CannotServe, storage_of, store_beside
from trainmaster.master.services.context import Settings
from trainmaster.master.services.files.object_stores import NoStore
from trainmaster.master.services.removal.storage_audit import AuditedPlace, StorageAudit, StrayFiles
from trainmaster.storage.contract import StorageFault
from trainmaster.version import VERSION

SHOWN = 50  # findings of one kind and place
Ask = Callable[[str], bool]


def examine_storage(config: MasterConfig, data: Path, confirm: Ask) -> int:
    """Print what differs, and mend what `confirm` agrees to; return 0 if nothing is left that differs, else 1."""
    try:
        with _audit(config, data) as audit:
            return _examine(audit, confirm)
    except CannotServe as error:
        print(f"WRONG  database: {error}")
        return 1


def _examine(audit: StorageAudit, confirm: Ask) -> int:
    left = 0
    for place in audit.run():
        if place.why_not:
            print(f"note   {place.place}: it cannot be looked at from here: {place.why_not}")
            continue
        mark = "WRONG" if place.lost or place.stray else "ok   "
        print(
            f"{mark}  {place.place}: {place.checkpoints} checkpoints, {len(place.lost)} of which miss files; "
            f"{len(place.stray)} folders that no row names"
        )
        left += _lost(audit, place, confirm) + _stray(audit, place, confirm)
    print("No difference was found." if not left else f"{left} differences left.")
    return 1 if left else 0


def _lost(audit: StorageAudit, place: AuditedPlace, confirm: Ask) -> int:
    for one in place.lost[:SHOWN]:
        version = ", which is a version of a model" if one.version else ""
        print(
            f"       - checkpoint {one.checkpoint} of experiment {one.experiment}{version}: "
            f"{one.missing} of {one.files} files are gone"
        )
    _more(len(place.lost))
    unmounted = "None of them has a file: is the storage mounted? If not, say no. " if _all_gone(place) else ""
    if not place.lost or not confirm(
        f"{unmounted}Have the master read the files of these {len(place.lost)} checkpoints again? What has none left "
        "is deleted."
    ):
        return len(place.lost)
    audit.forget(place.lost)
    print("       -> asked for; the master does it while it runs")
    return 0


def _all_gone(place: AuditedPlace) -> bool:
    return len(place.lost) == place.checkpoints and all(one.missing == one.files for one in place.lost)


def _stray(audit: StorageAudit, place: AuditedPlace, confirm: Ask) -> int:
    for one in place.stray[:SHOWN]:
        owner = f", of {one.owner}" if one.owner else ""
        day = dt.datetime.fromtimestamp(one.newest, dt.UTC).strftime("%Y-%m-%d")
        print(f"       - {one.key}: {one.files} files, {one.size} bytes{owner}, last changed {day}")
    _more(len(place.stray))
    size = sum(one.size for one in place.stray)
    if not place.stray or not confirm(
        f"Remove these {len(place.stray)} folders ({size} bytes)? If another master, or Determined, keeps checkpoints "
        f"in {place.place} too, they are among them: then say no."
    ):
        return len(place.stray)
    return sum(not _removed(audit, place, one) for one in place.stray)


def _removed(audit: StorageAudit, place: AuditedPlace, stray: StrayFiles) -> bool:
    try:
        audit.remove(place, stray)
        return True
    except trees.Untouched as error:
        why = f"it {error}. Its owner may remove it"
    except (OSError, StorageFault, NoStore, trees.Unfinished) as error:
        why = str(error)
    print(f"       - {stray.key} was not removed: {why}.")
    return False


def _more(count: int) -> None:
    if count > SHOWN:
        print(f"       - and {count - SHOWN} more")


@contextlib.contextmanager
def _audit(config: MasterConfig, data: Path) -> Iterator[StorageAudit]:
    """Open the database beside the running master, or alone. Raises CannotServe."""
    with store_beside(config, data) as store:
        with store.transaction() as session:
            cluster_id = session.scalar(select(MasterRecord.cluster_id))
        yield StorageAudit(store, _settings(config, data, str(cluster_id)))


def _settings(config: MasterConfig, data: Path, cluster_id: str) -> Settings:
    """Return what of a master's settings the audit needs."""
    return Settings(
        version=VERSION,
        cluster_id=cluster_id,
        cluster_name=config.cluster_name or "",
        secret=b"",
        token_prefix="",
        master_url="",
        runtime_zip=b"",
        limits=config.limits,
        checkpoint_storage=storage_of(config),
        storage_endpoints=tuple(url.rstrip("/") for url in config.storage_endpoints),
        data=data,
    )
