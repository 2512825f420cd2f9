"""Unix socket over which core talks to the runtime of its node; one JSON object on each line.

{"op": "wake"}                                  lines were added to stream `core`; no answer
{"op": "sync", "lines": n, "timeout": s}        wait until the master has n lines -> {"acked", "online"}
{"op": "append", "line": "..."}                 the disk took no more: keep this line of the stream from now on
                                                -> {"lines": number of lines in the stream}
"""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import Any, Dict, Optional

from trainmaster.runtime.run_dir import CORE_SOCKET, CORE_TAKEN_OVER
from trainmaster.runtime.shipper import Shipper
from trainmaster.runtime.spool import Stream


class CoreSocket(threading.Thread):
    """Serves the socket, with one more thread for each connection. Nodes other than the first have no stream
    `core`: there every request is answered at once."""

    def __init__(self, run_dir: str, stream: Optional[Stream], shipper: Optional[Shipper]) -> None:
        """Bind the socket. Raises OSError."""
        super().__init__(name="core-socket", daemon=True)
        self._stream = stream
        self._shipper = shipper
        self._taken_over = os.path.join(run_dir, CORE_TAKEN_OVER)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.path.join(run_dir, CORE_SOCKET))
        self._listener.listen(64)

    def run(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        try:
            # Wakes the thread that waits in accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has ended by itself
            return
        finally:
            self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    answer = self._answer(line)
                    if answer is not None:
                        connection.sendall(json.dumps(answer).encode("ascii") + b"\n")
        except OSError:
            return

    def _answer(self, line: bytes) -> Optional[Dict[str, Any]]:
        try:
            asked = json.loads(line.decode("utf-8"))
            op = asked["op"]
            if op == "wake":
                if self._shipper is not None:
                    self._shipper.wake()
                return None
            if op == "sync":
                return self._sync(int(asked["lines"]), float(asked["timeout"]))
            if op == "append":
                return self._append(str(asked["line"]))
        except (ValueError, KeyError, TypeError) as error:
            return {"error": "not understood: %s" % error}
        return {"error": "there is no op %r" % op}

    def _sync(self, lines: int, timeout: float) -> Dict[str, Any]:
        if self._stream is None or self._shipper is None:
            return {"acked": 0, "online": False}
        self._shipper.sync(lines, timeout)
        return {"acked": self._stream.acked, "online": self._shipper.online}

    def _append(self, line: str) -> Dict[str, Any]:
        if self._stream is None or self._shipper is None:
            return {"error": "only the first node of a job keeps the stream core"}
        # A later process of the training must not write the file beside us.
        self._note_taken_over()
        self._stream.append_line(line.encode("ascii") + b"\n")
        self._shipper.wake()
        return {"lines": self._stream.lines()}

    def _note_taken_over(self) -> None:
        try:
            open(self._taken_over, "ab").close()
        except OSError:  # a disk that is full may take no empty file either
            return
