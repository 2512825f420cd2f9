"""The Unix socket on which core speaks to the runtime of its node; a JSON object a line.

{"op": "wake"}                                  lines were added to stream `core`; no answer
{"op": "sync", "lines": n, "timeout": s}        wait until the master has n lines -> {"acked", "online"}
{"op": "append", "line": "..."}                 the disk took no more: keep this line of the stream from now on
                                                -> {"lines": number of lines in the stream}
"""

from __future__ import annotations

import _socket
import os

from trainmaster.runtime.plain_json import dumps, loads
from trainmaster.runtime.shipper import Shipper
from trainmaster.runtime.sockets import Socket, accept, reader
from trainmaster.runtime.spool import Stream
from trainmaster.runtime.threads import Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

NAME = "runtime.sock"
TAKEN_OVER = "core_by_runtime"  # in the run folder: the stream is written by the runtime from now on


class CoreSocket(Thread):
    """Serves the socket; one more thread for each connection. Other nodes than the first have no stream
    `core`: there everything is answered at once."""

    def __init__(self, run_dir: str, stream: Optional[Stream], shipper: Optional[Shipper]) -> None:
        """Bind. Raises OSError."""
        super().__init__()
        self._stream = stream
        self._shipper = shipper
        self._taken_over = os.path.join(run_dir, TAKEN_OVER)
        self._listener = Socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._listener.bind(os.path.join(run_dir, NAME))
        self._listener.listen(64)

    def run(self) -> None:
        while True:
            try:
                connection = accept(self._listener)
            except OSError:
                return
            Thread(self._serve, connection).start()

    def close(self) -> None:
        """Take no more connections."""
        try:
            # Wakes the thread that waits in accept.
            self._listener.shutdown(_socket.SHUT_RDWR)
        except OSError:  # it has ended by itself
            return
        finally:
            self._listener.close()

    def _serve(self, connection: Socket) -> None:
        try:
            for line in reader(connection):
                answer = self._answer(line)
                if answer is not None:
                    connection.sendall(dumps(answer).encode("ascii") + b"\n")
        except OSError:
            return
        finally:
            connection.close()

    def _answer(self, line: bytes) -> Optional[Dict[str, Any]]:
        try:
            asked = loads(line.decode("utf-8"))
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
