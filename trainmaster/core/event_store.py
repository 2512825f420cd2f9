"""Sends a trial's TensorBoard files to an object store."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any, Mapping, Optional
from urllib.parse import quote

from trainmaster.core.errors import CheckpointError
from trainmaster.core.store_requests import Signed, Stale, StoreRequests
from trainmaster.runtime.connection import FilePart
from trainmaster.runtime.errors import MasterError
from trainmaster.runtime.master import MasterCalls

_BLOCK = 2**20  # bytes
_PATIENCE = 60.0  # seconds for a master or a store that is away: the next time is soon


class EventStore:
    """The event files of this job's trial in its object store."""

    def __init__(self, master: MasterCalls, allocation_id: str) -> None:
        self._master = master
        self._path = "/api/x1/allocations/%s/events" % quote(allocation_id, safe="")
        self._requests: Optional[StoreRequests] = None
        self._deadline = 0.0  # of the file that is sent, on the monotonic clock

    def put(self, path: Path, name: str) -> None:
        """Send what a file holds now; it may be written to meanwhile, at its end. Raises CheckpointError, OSError."""
        self._deadline = time.monotonic() + _PATIENCE
        with open(str(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.md5()  # noqa: S324 - the store checks by it what has arrived
            left = size
            while left:
                block = file.read(min(_BLOCK, left))
                if not block:
                    raise CheckpointError("%s was made shorter while it was sent" % path)
                digest.update(block)
                left -= len(block)
            for _ in range(2):
                answer = self._sign(name, size)
                if self._requests is None:
                    self._requests = StoreRequests(str(answer["authority"]), self._is_late)
                try:
                    self._requests.put(Signed.of(answer["files"][0]), FilePart(file, 0, size), digest.digest())
                    return
                except Stale:
                    continue
        raise CheckpointError("%s could not be sent: the store takes no signature of the master's" % path)

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _sign(self, name: str, size: int) -> Mapping[str, Any]:
        body = {"files": [{"path": name, "size": size}]}
        try:
            answer: Mapping[str, Any] = self._master.call_with_retry("POST", self._path, body, patience=_PATIENCE)
        except MasterError as error:
            raise CheckpointError("%s could not be sent: %s" % (name, error)) from None
        return answer
