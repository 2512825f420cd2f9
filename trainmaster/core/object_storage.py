"""Checkpoints in an object store: the master signs requests, this process moves the bytes.

A checkpoint is written into a folder of the job on its node, and sent from there. One that is read is fetched once for
all ranks of a node.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional
from urllib.parse import quote, urlencode

from trainmaster.core.errors import CheckpointError
from trainmaster.core.sender import send, send_apart
from trainmaster.core.storage import METADATA, Storage
from trainmaster.core.store_calls import StoreCalls, when_known
from trainmaster.core.transfer import Download, Sent
from trainmaster.runtime.master import MasterCalls

logger = logging.getLogger("trainmaster.core")


class ObjectStorage(Storage):
    """The checkpoints of an experiment in a bucket.

    Args:
        config: The experiment's section, without credentials.
        master: Signs requests.
        allocation_id: Of this job.
        folder: The job's own folder on this node, where checkpoints are written and read. It is removed with the job.
    """

    in_store = True

    def __init__(self, config: Mapping[str, Any], master: MasterCalls, allocation_id: str, folder: Path) -> None:
        super().__init__(folder, config)
        self._calls = StoreCalls(master, allocation_id)

    @property
    def place(self) -> str:
        bucket = self.config.get("bucket") or self.config.get("container")
        return "%s://%s" % (self.config.get("type"), bucket)

    def existing(self, storage_id: str) -> Path:
        folder = self.root / "read" / self.folder(storage_id).name
        with self._alone("read-" + folder.name):
            if not folder.is_dir():
                partial = folder.with_name(folder.name + ".part")
                shutil.rmtree(str(partial), ignore_errors=True)
                partial.mkdir(mode=0o700, parents=True)
                self._download(storage_id, partial, lambda _: True)
                partial.rename(folder)
        return folder

    def create(self, storage_id: str) -> Path:
        folder = self.root / "written" / self.folder(storage_id).name
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError("%s cannot be made: %s" % (folder, error.strerror or error)) from error
        return folder

    def read_metadata(self, storage_id: str) -> Optional[Dict[str, Any]]:
        return self.metadata_in(self.root / "read" / self.folder(storage_id).name)

    def keep(self, storage_id: str, source: Path, names: List[str], links: Mapping[str, str]) -> None:
        del links  # what they lead to is sent
        self._say(storage_id, send(self._calls, storage_id, source, names))

    def keep_apart(self, storage_id: str, source: Path, names: List[str]) -> None:
        """`keep`, in a process of its own."""
        self._say(storage_id, send_apart(self._calls, storage_id, source, names))

    def _say(self, storage_id: str, sent: Sent) -> None:
        logger.info(
            "checkpoint %s: %.1f MB sent to %s in %.1f s%s",
            storage_id,
            sent.sent / 1e6,
            self.place,
            sent.seconds,
            ", %.1f MB were there already" % (sent.reused / 1e6) if sent.reused else "",
        )

    def conclude(self, storage_id: str, metadata: Mapping[str, Any]) -> int:
        folder = self.create(storage_id + ".metadata")
        size = self.write_file(folder, metadata)
        send(self._calls, storage_id, folder, [METADATA])
        shutil.rmtree(str(folder), ignore_errors=True)
        return size

    def clear(self, storage_id: str) -> None:
        shutil.rmtree(str(self.root / "written" / self.folder(storage_id).name), ignore_errors=True)

    def remove(self, storage_id: str) -> None:
        self.clear(storage_id)
        with contextlib.suppress(CheckpointError):  # the master removes what an ended job has left
            self.call(storage_id, "abandon", {})

    def check(self, storage_id: str) -> None:
        self.folder(storage_id)  # the master knows the rest

    def discard(self, storage_id: str) -> None:
        # The master removes the objects when it reads that the checkpoint is deleted.
        shutil.rmtree(str(self.root / "read" / self.folder(storage_id).name), ignore_errors=True)

    def fetch(self, storage_id: str, target: Path, wanted: Optional[Callable[[str], bool]] = None) -> None:
        self._download(storage_id, target, lambda name: name != METADATA and (wanted is None or wanted(name)))

    def _download(self, storage_id: str, target: Path, wanted: Callable[[str], bool]) -> None:
        def page(query: Mapping[str, str]) -> Any:
            path = "/api/x1/checkpoints/%s/files?%s" % (quote(storage_id, safe=""), urlencode(query))
            answer = when_known(lambda: self._calls.ask("GET", path, None, storage_id))
            if not answer["inStore"]:
                raise CheckpointError("checkpoint %s lies in a folder, not in %s" % (storage_id, self.place))
            return answer

        Download(page, target).run(wanted)

    def call(self, storage_id: str, verb: str, body: Mapping[str, Any]) -> Any:
        """Call the master about a checkpoint that this job writes. Raises CheckpointError."""
        return self._calls.call(storage_id, verb, body)

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Hold a lock among the ranks of this node."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(str(self.root / (name + ".lock")), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
