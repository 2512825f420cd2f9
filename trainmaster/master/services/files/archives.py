"""Stores users' files in the database: a gzipped tar for each experiment and each standalone task.

They are written and read in pieces: psycopg2 writes a value out in hexadecimal and holds that several times, so that
94 MB in one statement took 750 MB; and every node of every attempt requests them.
"""

from __future__ import annotations

import base64
import io
import tarfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, func, insert, select, text, update
from sqlalchemy.orm import Session

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, ModelDefinition, Task, Trial
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.values.stored import Json

PIECE = 3 * 2**18  # bytes; of three, so that the base64 of the pieces is that of the whole
SMALL = 2**18  # bytes of files that are sent with a lease, which saves short jobs a call

Key = int | str
"""The number of an experiment, or the id of a task that belongs to none."""


def put(session: Session, key: Key, archive: bytes) -> None:
    """Store files of an existing experiment or task without any."""
    in_pieces = len(archive) > PIECE
    if in_pieces:
        session.execute(text("CREATE TEMPORARY TABLE pieces (start bigint, piece bytea) ON COMMIT DROP"))
        for start in range(0, len(archive), PIECE):
            piece = {"start": start, "piece": archive[start : start + PIECE]}
            session.execute(text("INSERT INTO pieces VALUES (:start, :piece)"), piece)
    _set(session, key, text("(SELECT string_agg(piece, '' ORDER BY start) FROM pieces)") if in_pieces else archive)
    if in_pieces:
        session.execute(text("DROP TABLE pieces"))


def inherit(session: Session, key: Key, source: Key) -> None:
    """Like `put`, with the files of another experiment or task."""
    column, condition = _place(source)
    _set(session, key, select(column).where(condition).scalar_subquery())


class ContextArchives(BoundService):
    """Stored contexts of experiments and tasks."""

    def size(self, key: Key) -> int:
        """Return the bytes of an archive. Raises NotFound."""
        with self._store.autocommit() as session:
            return size(session, key)

    def key_of_task(self, task_id: str) -> Key:
        """Return the key of the files that a task works with: a trial works with its experiment's. Raises NotFound."""
        with self._store.autocommit() as session:
            before = select(Allocation.trial_id).where(Allocation.task_id == task_id).limit(1).scalar_subquery()
            of_task = (Trial.task_id == Task.task_id) | (Trial.id == before)
            query = select(Trial.experiment_id).select_from(Task).outerjoin(Trial, of_task)
            row = session.execute(query.where(Task.task_id == task_id)).first()
        if row is None:
            raise NotFound(f"There is no task {task_id}.")
        return task_id if row[0] is None else int(row[0])

    def key_of_allocation(self, allocation_id: str) -> Key:
        """Return the key of the files that an attempt works with. Raises NotFound."""
        with self._store.autocommit() as session:
            task_id = session.scalar(select(Allocation.task_id).where(Allocation.id == allocation_id))
        if task_id is None:
            raise NotFound(f"There is no allocation {allocation_id}.")
        return self.key_of_task(task_id)

    def pieces(self, key: Key, length: int) -> Iterator[bytes]:
        """Yield the archive of `length` bytes in pieces. Raises NotFound when it is deleted meanwhile."""
        column, condition = _place(key)
        for start in range(0, length, PIECE):
            with self._store.autocommit() as session:
                piece = session.scalar(select(func.substring(column, start + 1, PIECE)).where(condition))
            if piece is None:
                raise NotFound(f"The files of {key} have just been deleted.")
            yield bytes(piece)

    def whole(self, key: Key) -> bytes:
        """Raise NotFound."""
        with self._store.autocommit() as session:
            length = size(session, key)
        return b"".join(self.pieces(key, length))


def small(session: Session, key: Key, length: int) -> bytes | None:
    """Return the archive of the files when it is small; `length`: its own."""
    if not 0 < length <= SMALL:
        return None
    column, condition = _place(key)
    archive: bytes | None = session.scalar(select(column).where(condition))
    return archive


def listed(archive: bytes | None) -> list[Json] | None:
    """Return the files and folders of a small archive as a lease gives them to the runtime, which then need not read
    archives: `path`, and of a file `mode`, `mtime` and `content` (base64). None for an archive that unpacks to more
    than `SMALL` bytes, holds anything else, or is broken: the runtime then unpacks it itself, and reports what is
    wrong."""
    return _listed(archive) if archive else None


@lru_cache(maxsize=8)  # an experiment's jobs come one after the other
def _listed(archive: bytes) -> list[Json] | None:
    try:
        gunzip = zlib.decompressobj(wbits=31)
        plain = gunzip.decompress(archive, SMALL)
        if not gunzip.eof or gunzip.unused_data:
            return None
        entries: list[Json] = []
        left = SMALL
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            for entry in tar:
                left -= entry.size  # a sparse file may claim more than it contains
                if not (entry.isreg() or entry.isdir()) or entry.size < 0 or left < 0:
                    return None
                entries.append(_entry(tar, entry))
        return entries
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError):
        return None


def _entry(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> Json:
    if entry.isdir():
        return {"path": entry.name}
    source = tar.extractfile(entry)
    assert source is not None  # a regular file has content
    content = base64.b64encode(source.read()).decode()
    return {"path": entry.name, "mode": entry.mode, "mtime": entry.mtime, "content": content}


def size(session: Session, key: Key) -> int:
    """Bytes. Raises NotFound."""
    column, condition = _place(key)
    length: int | None = session.scalar(select(func.length(column)).where(condition))
    if length is None:
        raise NotFound(f"There is no {'experiment' if isinstance(key, int) else 'task'} {key}.")
    return length


def _set(session: Session, key: Key, value: Any) -> None:
    if isinstance(key, int):
        session.execute(insert(ModelDefinition).values(experiment_id=key, archive=value))
        return
    change = update(Standalone).where(Standalone.task_id == key).values(archive=value)
    session.execute(change.execution_options(synchronize_session=False))


def _place(key: Key) -> tuple[Any, ColumnElement[bool]]:
    if isinstance(key, int):
        return ModelDefinition.archive, ModelDefinition.experiment_id == key
    return Standalone.archive, Standalone.task_id == key
