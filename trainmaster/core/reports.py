"""Core's end of the report stream: a file append for each report, and a word to the runtime."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any, Dict, Optional

from trainmaster.runtime.core_socket import NAME as SOCKET_NAME
from trainmaster.runtime.core_socket import TAKEN_OVER
from trainmaster.runtime.spool import SpoolWriter, encode

logger = logging.getLogger("trainmaster.core")

STREAM = "core"
SYNC_PATIENCE = 10.0  # seconds that `should_preempt` waits for a decision at most


class Reports:
    """Appends records to the stream `core`. Thread-safe; the chief rank's process only.

    When the disk takes no more, records go through the runtime, which holds them in memory and sends them to
    the master; nothing here ever raises for want of disk or of a runtime.
    """

    def __init__(self, spool: Path, run_dir: Path) -> None:
        self._socket_path = str(run_dir / SOCKET_NAME)
        self._lock = threading.RLock()
        self._socket: Optional[socket.socket] = None
        self._answers: Any = None
        self._writer: Optional[SpoolWriter] = None
        self._lines = 0
        self._undecided = False
        self._lost_runtime = False
        if (run_dir / TAKEN_OVER).exists():
            return
        try:
            self._writer = SpoolWriter(str(spool / (STREAM + ".jsonl")))
        except OSError as error:
            self._say_full(error)
        else:
            self._lines = self._writer.lines

    def add(self, kind: str, *, decides: bool = False, durable: bool = False, **fields: Any) -> None:
        """Append a record. `decides`: the searcher may answer it with a wish that this trial stops.
        `durable`: it must survive the node (a checkpoint)."""
        line = encode({"t": time.time(), "kind": kind, **fields})
        with self._lock:
            if self._writer is not None:
                try:
                    self._lines = self._writer.append(line)
                    if durable:
                        self._writer.sync()
                except OSError as error:
                    self._say_full(error)
                    self._close_writer()
            # Not `else`: the record that met the full disk must not be lost.
            if self._writer is None:
                answer = self._ask({"op": "append", "line": line[:-1].decode("ascii")})
                if answer is not None and "lines" in answer:
                    self._lines = int(answer["lines"])
                else:
                    logger.error("a report (%s) is lost: no room on disk, and the runtime does not answer", kind)
            else:
                self._tell({"op": "wake"})
            self._undecided = self._undecided or decides

    def settle(self) -> None:
        """Wait until the master has decided about what was reported; at once when nothing is undecided or the
        master is away, and for `SYNC_PATIENCE` seconds at most."""
        with self._lock:
            if self._undecided:
                self._undecided = False
                self._ask({"op": "sync", "lines": self._lines, "timeout": SYNC_PATIENCE})

    def close(self) -> None:
        """Make everything durable and let go."""
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

    def _say_full(self, error: OSError) -> None:
        logger.error("the job folder takes no more reports (%s): they go through the runtime from now on", error)

    def _ask(self, question: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        if not self._tell(question):
            return None
        try:
            answer = json.loads(self._answers.readline() or b"null")
        except (OSError, ValueError):
            answer = None
        if not isinstance(answer, dict):
            self._disconnect()
            return None
        return answer

    def _tell(self, message: Dict[str, Any]) -> bool:
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
