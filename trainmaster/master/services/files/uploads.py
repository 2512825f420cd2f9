"""Takes in checkpoints that jobs send to an object store.

The master signs requests, and the job sends the bytes. A row is there before the first signature, so that no object is
nobody's; a checkpoint is complete when each of its files has arrived. What an earlier checkpoint of the trial has
already, with the same content, the store copies itself.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Trial
from trainmaster.master.db.upkeep import CheckpointUpload, StoredFile
from trainmaster.master.services import bounds
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.files import object_stores
from trainmaster.master.services.files.object_stores import NoStore, key_of, refusal
from trainmaster.master.services.files.user_files import REMOVED_AT_ONCE, check_id
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import wake
from trainmaster.storage.contract import (
    PART,
    NoObject,
    ObjectStore,
    SignedRequest,
    StorageFault,
    StorageRefused,
    part_size,
)

SENDING, COMPLETED, ABANDONED, REMOVED = "SENDING", "COMPLETED", "ABANDONED", "REMOVED"
MOST_FILES = 1000  # of one call
MOST_SIGNED = 200  # parts of one answer
LONGEST_KEY = 1024  # bytes, as S3 has it
KEPT = dt.timedelta(hours=24)  # a job's unfinished files are kept after its end: its spool may still be on the way


@dataclass(frozen=True)
class SentFile:
    """A file that a job is about to send."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class FilePlan:
    """How a file gets into the store: not at all (it is there), as a copy of what is there, by one request, or by a
    request for each part of `part` bytes."""

    path: str
    there: bool = False
    copy: bool = False
    put: SignedRequest | None = None
    upload: str = ""
    part: int = 0
    parts: list[SignedRequest] = field(default_factory=list)  # the first ones


@dataclass(frozen=True)
class UploadState:
    ranks: list[int]
    missing: int  # files that have not arrived
    sizes: dict[str, int]


class Uploads(BoundService):
    """Checkpoints on their way to object stores."""

    def begin(
        self, allocation_id: str, key: str, files: Sequence[SentFile], *, resend: bool
    ) -> tuple[list[FilePlan], str]:
        """Announce files of a checkpoint. May be repeated.

        Args:
            allocation_id: of the job.
            key: the checkpoint's uuid, which the job has made.
            files: `MOST_FILES` at most; folders are not announced.
            resend: send them, although the same content is in the store already.

        Returns:
            A plan for each file, and the certificates (PEM) by which the store is checked.

        Raises Invalid, NotFound, Conflict (another rank has another file of the name), Unavailable.
        """
        if len(files) > MOST_FILES:
            raise Invalid(f"At most {MOST_FILES} files can be announced at once.")
        identifier = check_id(self._settings, key)
        for file in files:
            _check_path(file.path)
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, identifier)
            known = _announced(session, self._limits, upload, files)
            left = [file for file in files if not known[file.path].there]
            sources = {} if resend else _sources(session, upload, left)
            store = self._opened(session, upload)
        try:
            plans = [self._plan(store, upload, file, known[file.path], file.sha256 in sources) for file in files]
        except StorageFault as fault:
            raise refusal(fault) from None
        begun = {plan.path: plan.upload for plan in plans if plan.upload}
        with self._store.transaction() as session:
            for path, number in begun.items():
                of_file = (StoredFile.checkpoint == identifier, StoredFile.path == path)
                session.execute(update(StoredFile).where(*of_file).values(upload=number))
        return plans, store.authority

    def sign(self, allocation_id: str, key: str, path: str, first: int) -> FilePlan:
        """Sign again: the parts of a large file from number `first` on, or the one request of a small one. Raises
        Invalid, NotFound, Conflict, Unavailable."""
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, check_id(self._settings, key))
            row = _file(session, upload, path)
            store = self._opened(session, upload)
        object_key = key_of(upload.storage, str(upload.checkpoint), path)
        try:
            if row.upload is None:
                return FilePlan(path, put=store.sign_put(object_key))
            return _parts(store, object_key, row, row.upload, first)
        except StorageFault as fault:
            raise refusal(fault) from None

    def finish(self, allocation_id: str, key: str, path: str, marks: Sequence[str]) -> None:
        """Put a large file together. Raises Invalid, NotFound, Conflict, Unavailable."""
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, check_id(self._settings, key))
            row = _file(session, upload, path)
            store = self._opened(session, upload)
        if row.there:
            return
        if row.upload is None or len(marks) != -(-row.size // part_size(row.size)):
            raise Conflict(f"{path} of checkpoint {key} was not begun with so many parts.")
        try:
            store.finish_parts(key_of(upload.storage, str(upload.checkpoint), path), row.upload, marks)
        except StorageFault as fault:
            raise refusal(fault) from None
        self._arrived(upload, [path])

    def sent(self, allocation_id: str, key: str, paths: Sequence[str]) -> None:
        """Note small files whose requests the store has answered. Raises Invalid, NotFound, Conflict."""
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, check_id(self._settings, key))
        self._arrived(upload, paths)

    def copy(self, allocation_id: str, key: str, paths: Sequence[str]) -> list[str]:
        """Copy files whose content the store has; return those that must be sent after all. Raises Invalid, NotFound,
        Conflict, Unavailable."""
        if len(paths) > MOST_FILES:
            raise Invalid(f"At most {MOST_FILES} files can be copied at once.")
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, check_id(self._settings, key))
            rows = [_file(session, upload, path) for path in paths]
            sources = _sources(session, upload, [SentFile(row.path, row.size, row.sha256) for row in rows])
            store = self._opened(session, upload)
        left, copied = [], []
        for row in rows:
            source = sources.get(row.sha256)
            try:
                if source is None:
                    raise NoObject(row.path)
                target = key_of(upload.storage, str(upload.checkpoint), row.path)
                store.copy(key_of(upload.storage, source), target, row.size)
                copied.append(row.path)
            except NoObject:
                left.append(row.path)
            except StorageFault as fault:
                raise refusal(fault) from None
        self._arrived(upload, copied)
        return left

    def done(self, allocation_id: str, key: str, rank: int, *, sizes: bool = False) -> UploadState:
        """Note that a rank has sent all of its files; -1 asks only. Returns who has, how many files are missing, and
        with `sizes` that of each. Raises Invalid, NotFound, Conflict."""
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, check_id(self._settings, key), create=rank >= 0)
            if rank >= 0 and rank not in upload.ranks:
                upload.ranks = sorted([*upload.ranks, rank])
            missing = select(func.count()).where(StoredFile.checkpoint == upload.checkpoint, ~StoredFile.there)
            files = select(StoredFile.path, StoredFile.size).where(StoredFile.checkpoint == upload.checkpoint)
            known = {row.path: row.size for row in session.execute(files)} if sizes else {}
            return UploadState(list(upload.ranks), int(session.scalar(missing) or 0), known)

    def abandon(self, allocation_id: str, key: str) -> None:
        """Give a checkpoint up: its files are removed soon, and no rank can add to it, also where none has begun yet.
        Raises Invalid, NotFound, Conflict for one that is complete."""
        with self._store.transaction() as session:
            upload = self._upload(session, allocation_id, check_id(self._settings, key))
            upload.state = ABANDONED
            wake(session, "janitor")

    def sweep(self, retries: Retries) -> None:
        """Remove the files of checkpoints that were given up, and of those that an ended job never completed. What was
        given up keeps its row while its job lives, whose other ranks may not know it yet."""
        live = select(Allocation.id).where(
            Allocation.id == CheckpointUpload.allocation_id, Allocation.ended_at.is_(None)
        )
        recent = select(Allocation.id).where(
            Allocation.id == CheckpointUpload.allocation_id,
            or_(Allocation.ended_at.is_(None), Allocation.ended_at > func.now() - KEPT),
        )
        left = or_(
            CheckpointUpload.state == ABANDONED,
            and_(CheckpointUpload.state == REMOVED, ~live.exists()),
            and_(CheckpointUpload.state == SENDING, ~recent.exists()),
        )
        with self._store.transaction() as session:
            due = list(
                session.scalars(select(CheckpointUpload.checkpoint).where(left).order_by(CheckpointUpload.checkpoint))
            )
        retries.each("the removal of an unfinished checkpoint's files,", due, self._sweep)

    def remove_unfinished(self, experiment_id: int) -> None:
        """Remove the files of an experiment's checkpoints that never were complete. Raises StorageFault."""
        query = select(CheckpointUpload.checkpoint).where(
            CheckpointUpload.experiment_id == experiment_id, CheckpointUpload.state != COMPLETED
        )
        with self._store.transaction() as session:
            keys = list(session.scalars(query))
        for key in keys:
            self._sweep(key)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _sweep(self, key: uuid.UUID) -> None:
        """Raise StorageFault."""
        with self._store.transaction() as session:
            upload = session.get(CheckpointUpload, key)
            if upload is None or upload.state == COMPLETED:
                return
            try:
                store = self._opened(session, upload)
            except Invalid as error:
                raise StorageRefused(error.message) from None
        prefix = key_of(upload.storage, str(key)) + "/"
        store.abort_parts(prefix)
        found = [stored.key for stored in store.list(prefix)]
        for begin in range(0, len(found), REMOVED_AT_ONCE):
            store.delete(found[begin : begin + REMOVED_AT_ONCE])
        of_live_job = select(Allocation.id).where(
            Allocation.id == CheckpointUpload.allocation_id, Allocation.ended_at.is_(None)
        )
        with self._store.transaction() as session:
            mine = (CheckpointUpload.checkpoint == key, CheckpointUpload.state != COMPLETED)
            session.execute(delete(CheckpointUpload).where(*mine, ~of_live_job.exists()))
            session.execute(update(CheckpointUpload).where(*mine).values(state=REMOVED))
            session.execute(delete(StoredFile).where(StoredFile.checkpoint == key))

    def _upload(self, session: Session, allocation_id: str, key: uuid.UUID, *, create: bool = True) -> CheckpointUpload:
        """Return the row of a checkpoint that a live job sends, under its lock. Raises Conflict, Invalid, NotFound."""
        allocation = session.get(Allocation, allocation_id)
        trial = session.get(Trial, allocation.trial_id) if allocation and allocation.trial_id is not None else None
        if allocation is None or trial is None:
            raise NotFound(f"There is no trial of allocation {allocation_id}.")
        upload = session.get(CheckpointUpload, key, with_for_update=True)
        if upload is None and create:
            if allocation.ended_at is not None:
                raise Conflict(f"The attempt {allocation_id} has ended: it stores no more checkpoints.")
            if session.get(Checkpoint, key) is not None:
                raise Conflict(f"There is a checkpoint {key} already.")
            config = session.get_one(Experiment, trial.experiment_id).config
            storage = config.checkpoint_storage
            if storage is None or not storage.in_store:
                raise Invalid(f"Experiment {trial.experiment_id} keeps its checkpoints in no object store.")
            row = {
                "checkpoint": key,
                "experiment_id": trial.experiment_id,
                "trial_id": trial.id,
                "allocation_id": allocation_id,
                "storage": storage,
                "state": SENDING,
                "ranks": [],
            }
            session.execute(
                insert(CheckpointUpload).values(**row).on_conflict_do_nothing()
            )  # ranks come at the same time
            upload = session.get(CheckpointUpload, key, with_for_update=True)
        if upload is None:
            raise NotFound(f"There is no checkpoint {key} on its way.")
        if upload.trial_id != trial.id or upload.allocation_id != allocation_id:
            raise Conflict(f"Checkpoint {key} is another job's.")
        if upload.state != SENDING:
            what = "complete" if upload.state == COMPLETED else "given up, by another rank or its own job"
            raise Conflict(f"Checkpoint {key} is {what}: nothing can be added to it.")
        return upload

    def _opened(self, session: Session, upload: CheckpointUpload) -> ObjectStore:
        try:
            return object_stores.opened(session, self._settings, upload.storage, upload.experiment_id)
        except NoStore as error:
            raise Invalid(str(error)) from None

    def _plan(
        self, store: ObjectStore, upload: CheckpointUpload, file: SentFile, row: StoredFile, copied: bool
    ) -> FilePlan:
        if row.there:
            return FilePlan(file.path, there=True)
        if copied:
            return FilePlan(file.path, copy=True)
        object_key = key_of(upload.storage, str(upload.checkpoint), file.path)
        if file.size <= PART:
            return FilePlan(file.path, put=store.sign_put(object_key))
        return _parts(store, object_key, row, row.upload or store.begin_parts(object_key), 1)

    def _arrived(self, upload: CheckpointUpload, paths: Sequence[str]) -> None:
        of_files = (StoredFile.checkpoint == upload.checkpoint, StoredFile.path.in_(paths))
        with self._store.transaction() as session:
            session.execute(update(StoredFile).where(*of_files).values(there=True, upload=None))


def complete(session: Session, key: uuid.UUID, trial_id: int) -> str:
    """Note that a trial's checkpoint is reported; return why it cannot be complete, or nothing."""
    upload = session.get(CheckpointUpload, key, with_for_update=True)
    if upload is not None and upload.trial_id != trial_id:
        return "another trial sends it"
    if upload is None or upload.state in (ABANDONED, REMOVED):
        return "nothing of it was sent through this master, or it was given up"
    missing = select(StoredFile.path).where(StoredFile.checkpoint == key, ~StoredFile.there).limit(1)
    if (path := session.scalar(missing)) is not None:
        return f"{path} has not arrived"
    upload.state = COMPLETED
    return ""


def give_up(session: Session, key: uuid.UUID) -> None:
    """Have the files of a deleted checkpoint removed soon; does nothing for one in a folder."""
    session.execute(update(CheckpointUpload).where(CheckpointUpload.checkpoint == key).values(state=ABANDONED))
    wake(session, "janitor")


def forget(session: Session, key: uuid.UUID, left: Mapping[str, int]) -> None:
    """Forget the removed files of a checkpoint, so that none is copied from there; of one without files, everything."""
    if not left:
        session.execute(delete(CheckpointUpload).where(CheckpointUpload.checkpoint == key))
        return
    known = select(StoredFile.path).where(StoredFile.checkpoint == key)
    gone = [path for path in session.scalars(known) if path not in left]
    for begin in range(0, len(gone), REMOVED_AT_ONCE):
        some = gone[begin : begin + REMOVED_AT_ONCE]
        session.execute(delete(StoredFile).where(StoredFile.checkpoint == key, StoredFile.path.in_(some)))


def digests(session: Session, key: uuid.UUID) -> dict[str, str]:
    """Return the SHA-256 of each file of a checkpoint in an object store."""
    rows = session.execute(select(StoredFile.path, StoredFile.sha256).where(StoredFile.checkpoint == key))
    return {row.path: row.sha256 for row in rows}


def _parts(store: ObjectStore, object_key: str, row: StoredFile, upload: str, first: int) -> FilePlan:
    size = part_size(row.size)
    count = -(-row.size // size)
    numbers = range(max(first, 1), min(first + MOST_SIGNED, count + 1))
    return FilePlan(
        row.path,
        upload=upload,
        part=size,
        parts=[store.sign_part(object_key, upload, number) for number in numbers],
    )


def _announced(
    session: Session, limits: Any, upload: CheckpointUpload, files: Sequence[SentFile]
) -> Mapping[str, StoredFile]:
    """Store files that are not known yet; return the rows of all. Raises Conflict, Invalid."""
    count = select(func.count()).where(StoredFile.checkpoint == upload.checkpoint)
    bounds.check_file_count(limits, int(session.scalar(count) or 0) + len(files))
    rows = [
        {"checkpoint": upload.checkpoint, "path": file.path, "size": file.size, "sha256": file.sha256, "there": False}
        for file in files
    ]
    if rows:
        session.execute(insert(StoredFile).values(rows).on_conflict_do_nothing())
    wanted = select(StoredFile).where(
        StoredFile.checkpoint == upload.checkpoint, StoredFile.path.in_([file.path for file in files])
    )
    known = {row.path: row for row in session.scalars(wanted)}
    for file in files:
        if (known[file.path].size, known[file.path].sha256) != (file.size, file.sha256):
            raise Conflict(f"Two ranks bring different files {file.path!r}: give the shards different names.")
    return known


def _sources(session: Session, upload: CheckpointUpload, files: Iterable[SentFile]) -> dict[str, str]:
    """Return where the store has the content of these files already: by digest, the path below the prefix."""
    wanted = {file.sha256: file.size for file in files if file.size}
    if not wanted:
        return {}
    latest = select(Trial.latest_checkpoint).where(Trial.id == upload.trial_id).scalar_subquery()
    whole = and_(CheckpointUpload.state == COMPLETED, Checkpoint.state == "COMPLETED")
    query = (
        select(StoredFile.sha256, StoredFile.size, StoredFile.checkpoint, StoredFile.path)
        .join(CheckpointUpload, CheckpointUpload.checkpoint == StoredFile.checkpoint)
        .outerjoin(Checkpoint, Checkpoint.uuid == CheckpointUpload.checkpoint)
        .where(
            StoredFile.sha256.in_(wanted),
            StoredFile.there,
            or_(CheckpointUpload.trial_id == upload.trial_id, CheckpointUpload.checkpoint == latest),
            or_(whole, CheckpointUpload.state == SENDING),
            CheckpointUpload.storage == upload.storage,
        )
    )
    return {
        row.sha256: f"{row.checkpoint}/{row.path}" for row in session.execute(query) if wanted[row.sha256] == row.size
    }


def _file(session: Session, upload: CheckpointUpload, path: str) -> StoredFile:
    row = session.get(StoredFile, (upload.checkpoint, path))
    if row is None:
        raise NotFound(f"Checkpoint {upload.checkpoint} has announced no file {path!r}.")
    return row


def _check_path(path: str) -> None:
    """Raise Invalid for what is no path inside a checkpoint."""
    parts = path.split("/")
    if not path or any(part in ("", ".", "..") for part in parts):
        raise Invalid(f"{path!r} is no path inside a checkpoint: it must be relative, without '..' and empty parts.")
    if odd := next((c for c in path if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None):
        raise Invalid(f"{path!a} cannot be stored: {odd!a} is no printable character. Rename the file.")
    if parts[0] == ".parts" or ".parts" in parts:
        raise Invalid(f"{path!r} cannot be stored: .parts is a name of the store's own. Rename the folder.")
    if len(path.encode()) > LONGEST_KEY - 300:
        raise Invalid(f"{path[:60]}... cannot be stored: its path has more than {LONGEST_KEY - 300} bytes.")
