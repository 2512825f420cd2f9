"""Calls to the master about checkpoints in an object store."""

from __future__ import annotations

import time
from typing import Any, Callable, Mapping
from urllib.parse import quote

from trainmaster.core.errors import CheckpointError, UnusableStorage
from trainmaster.core.store_requests import PATIENCE
from trainmaster.runtime.errors import CallFailed, CallRejected
from trainmaster.runtime.master import MasterCalls

_TIMEOUT = 600.0  # seconds of one call: the store may copy a large file meanwhile
_FOR_GOOD = (400, 403)
_ON_ITS_WAY = 15.0  # seconds


class StoreCalls:
    """The calls of one job.

    Args:
        master: Answers them.
        allocation_id: Of this job.
    """

    def __init__(self, master: MasterCalls, allocation_id: str) -> None:
        self.master = master
        self.allocation_id = allocation_id

    def call(self, storage_id: str, verb: str, body: Mapping[str, Any]) -> Any:
        """Call the master about a checkpoint that this job writes. Raises CheckpointError."""
        path = "/api/x1/allocations/%s/checkpoints/%s/%s" % (quote(self.allocation_id, safe=""), storage_id, verb)
        return self.ask("POST", path, body, storage_id)

    def ask(self, method: str, path: str, body: Any, storage_id: str) -> Any:
        """Make a call, again while the master is away. Raises CheckpointError."""
        try:
            return self.master.call_with_retry(method, path, body, patience=PATIENCE, timeout=_TIMEOUT)
        except CallRejected as error:
            kind = UnusableStorage if error.http_status in _FOR_GOOD else CheckpointError
            raise kind("checkpoint %s: %s" % (storage_id, error)) from error
        except CallFailed as error:
            raise CheckpointError("checkpoint %s: %s" % (storage_id, error)) from error


def when_known(ask: Callable[[], Any]) -> Any:
    """Ask, again for a moment while the master does not know the checkpoint: the report of one that this job has just
    stored may be on its way. Raises CheckpointError."""
    deadline = time.monotonic() + _ON_ITS_WAY
    while True:
        try:
            return ask()
        except CheckpointError as error:
            unknown = isinstance(error.__cause__, CallRejected) and error.__cause__.http_status == 404
            if not unknown or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
