"""Report stream of core: appends each report to a file, and notifies the runtime of its node."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Mapping, Optional

from trainmaster.core.values import check_amount
from trainmaster.runtime.run_dir import CORE_SOCKET, CORE_TAKEN_OVER
from trainmaster.runtime.spool import SpoolWriter, encode

logger = logging.getLogger("trainmaster.core")

STREAM = "core"
SYNC_PATIENCE = 10.0  # seconds that `should_preempt` waits for a decision at most


class Reports:
    """Appends records to the stream `core`. Thread-safe; the chief rank's process only.

    When the disk takes no more, records go through the runtime, which holds them in memory and sends them to
    the master; nothing here ever raises for want of disk or of a runtime.
    """

    def __init__(self, spool: Path, run_dir: Path, limits: Mapping[str, int] = MappingProxyType({})) -> None:
        """`limits`: those of the master for one report, by their keys."""
        self.limits = limits
        self._socket_path = str(run_dir / CORE_SOCKET)
        self._lock = threading.RLock()
        self._socket: Optional[socket.socket] = None
        self._answers: Any = None
        self._writer: Optional[SpoolWriter] = None
        self._lines = 0
        self._undecided = False
        self._lost_runtime = False
        if (run_dir / CORE_TAKEN_OVER).exists():
            return
        try:
            self._writer = SpoolWriter(str(spool / (STREAM + ".jsonl")))
        except OSError as error:
            self._log_full_disk(error)
        else:
            self._lines = self._writer.lines

    def add(self, kind: str, *, decides: bool = False, durable: bool = False, **fields: Any) -> None:
        """Append a record of `kind`. `decides`: the searcher may answer it by stopping this trial. `durable`: it
        must survive the loss of the node, as a checkpoint's must. Raises ValueError for more values than the master
        takes."""
        # The files of a checkpoint have a limit of their own.
        check_amount({name: value for name, value in fields.items() if name != "resources"}, self.limits)
        line = encode({"t": time.time(), "kind": kind, **fields})
        with self._lock:
            if self._writer is not None:
                try:
                    self._lines = self._writer.append(line)
                    if durable:
                        self._writer.sync()
                except OSError as error:
                    self._log_full_disk(error)
                    self._close_writer()
            # Not `else`: the record that met the full disk must not be lost.
            if self._writer is None:
                answer = self._request({"op": "append", "line": line[:-1].decode("ascii")})
                if answer is not None and "lines" in answer:
                    self._lines = int(answer["lines"])
                else:
                    logger.error("a report (%s) is lost: no room on disk, and the runtime does not answer", kind)
            else:
                self._send({"op": "wake"})
            self._undecided = self._undecided or decides

    def wait_for_decision(self) -> None:
        """Wait until the master has decided about what was reported. Returns at once when nothing is undecided or
        the master is away, and after `SYNC_PATIENCE` seconds at most."""
        with self._lock:
            if self._undecided:
                self._undecided = False
                self._request({"op": "sync", "lines": self._lines, "timeout": SYNC_PATIENCE})

    def close(self) -> None:
        """Make everything durable and close the file and the socket."""
        with self._lock:
            if self._writer is not None:
                with contextlib.suppress(OSError):
                    self._writer.sync()
            self._close_writer()
            self._disconnect()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _log_full_disk(self, error: OSError) -> None:
        logger.error("the job folder takes no more reports (%s): they go through the runtime from now on", error)

    def _request(self, question: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        if not self._send(question):
            return None
        try:
            answer = json.loads(self._answers.readline() or b"null")
        except (OSError, ValueError):
            answer = None
        if not isinstance(answer, dict):
            self._disconnect()
            return None
        return answer

    def _send(self, message: Dict[str, Any]) -> bool:
        try:
            if self._socket is None:
                self._connect()
            assert self._socket is not None
            self._socket.sendall(json.dumps(message).encode("ascii") + b"\n")
        except OSError as error:
            self._disconnect()
            if not self._lost_runtime:
                self._lost_runtime = True
                logger.warning("the runtime of this node does not answer (%s): reports stay on disk", error)
            return False
        return True

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(SYNC_PATIENCE + 20)
            connection.connect(self._socket_path)
        except OSError:
            connection.close()
            raise
        self._socket = connection
        self._answers = connection.makefile("rb")

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._answers.close()
            self._socket.close()
            self._socket = self._answers = None
