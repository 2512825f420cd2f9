"""Archives of experiments' files as files that the jobs of many trials have in common: they travel once to each cluster
and account, where every job of every trial fetched them from the database before.

Small ones come with the lease. Where an archive is too large for one message to a cluster, or does not stand beside the
job folder for any reason, the job fetches it (`ContextArchives.pieces`).
"""

from __future__ import annotations

import threading
import time

from sqlalchemy import func, select

from trainmaster.dispatchers.base import SharedFile, Transient
from trainmaster.master.db.tables import ModelDefinition
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.files import archives
from trainmaster.master.services.files.archives import ContextArchives

LARGEST = 64 * 2**20  # bytes; in one request to the helper on a cluster, within its deadline
KEPT = 60.0  # seconds that an archive stays in memory: the first jobs of a search are staged at the same time


class SharedContexts(BoundService):
    """The archives that jobs of one cluster share. Thread-safe."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._archives = ContextArchives(master)
        self._lock = threading.Lock()
        self._digests: dict[int, str] = {}  # an experiment's archive never changes
        self._last: tuple[int, bytes, float] | None = None  # experiment, its archive, when it was read

    def of(self, experiment_id: int | None, size: int) -> SharedFile | None:
        """Return the archive of `size` bytes for a job's folder; None where it comes in another way."""
        with self._lock:
            if self._last is not None and time.monotonic() > self._last[2] + KEPT:
                self._last = None
        if experiment_id is None or not archives.SMALL < size <= LARGEST:
            return None
        digest = self._digests.get(experiment_id) or self._asked(experiment_id)
        return SharedFile(digest, lambda: self._read(experiment_id), optional=True) if digest else None

    def _asked(self, experiment_id: int) -> str | None:
        digest = func.encode(func.sha256(ModelDefinition.archive), "hex")
        with self._store.autocommit() as session:
            stored = session.scalar(select(digest).where(ModelDefinition.experiment_id == experiment_id))
        if stored:
            self._digests[experiment_id] = stored
        return stored

    def _read(self, experiment_id: int) -> bytes:
        with self._lock:
            if self._last is None or self._last[0] != experiment_id:
                try:
                    self._last = (experiment_id, self._archives.whole(experiment_id), time.monotonic())
                except NotFound as error:
                    raise Transient(error.message) from None
            return self._last[1]
