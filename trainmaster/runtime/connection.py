"""HTTP/1.1 client connection with keep-alive (RFC 9112), as far as a job needs it.

`http.client` does all of this and more, and costs every job 20 ms of CPU before it has begun: with it come the whole
of `email`, and `ssl` also where there is no TLS.
"""

from __future__ import annotations

import io
import socket
from typing import Any, BinaryIO, Callable, Dict, Mapping, Optional, Tuple, Union

from trainmaster.runtime.record import Record

_LONGEST_LINE = 65536  # bytes
_MOST_HEADERS = 200
_LONGEST_WAIT = 120  # seconds that an answer may ask for: a job must give a sign of life now and then
_BLOCK = 1 << 18  # bytes read at once: a length that the other side claims sets nothing aside


class BadAnswer(OSError):
    """The answer is not HTTP, or ends too soon."""


class Closed(BadAnswer):
    """The other side closed the connection without a byte of an answer."""


class Answer(Record):
    status: int
    body: bytes
    kept: bool  # whether another request may follow on the connection
    retry_after: Optional[float] = None  # seconds, as the header of that name says
    headers: Mapping[str, str] = {}  # names in lower case


class FilePart(Record):
    """Bytes of an open file, as the body of a request: they go to the network without a copy in memory."""

    file: BinaryIO
    offset: int
    size: int

    def __len__(self) -> int:
        return int(self.size)


class Connection:
    """One connection to `host`:`port`, opened at once. `wrap`, when given, puts TLS around the socket.

    Raises OSError from every method; after one the connection is of no more use.
    """

    def __init__(
        self, host: str, port: int, timeout: float, wrap: Optional[Callable[[socket.socket], Any]] = None
    ) -> None:
        plain = socket.create_connection((host, port), timeout)
        try:
            # Otherwise a body that follows its headers in a segment of its own waits for an ACK (Nagle).
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket: Any = wrap(plain) if wrap is not None else plain
        except BaseException:
            plain.close()
            raise
        self._reader = self._socket.makefile("rb")
        name = "[%s]" % host if ":" in host else host
        self._host = name if port == (443 if wrap is not None else 80) else "%s:%d" % (name, port)

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Union[bytes, FilePart, None],
        timeout: float,
        into: Optional[BinaryIO] = None,
    ) -> Answer:
        """Send one request and read its answer. `timeout` (seconds) is for each wait; `into`: the file that takes the
        body of a good answer, however large it is. Raises Closed, BadAnswer, OSError."""
        self._socket.settimeout(timeout)
        lines = ["%s %s HTTP/1.1" % (method, target), "Host: " + self._host, "Accept-Encoding: identity"]
        lines += ["%s: %s" % header for header in headers.items()]
        if body is not None or method != "GET":
            lines.append("Content-Length: %d" % len(body or b""))
        head = "\r\n".join(lines)
        if not head.isascii() or head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise BadAnswer("the path or a header holds a character that it may not hold")
        start = (head + "\r\n\r\n").encode("ascii")
        if isinstance(body, FilePart):
            self._socket.sendall(start)
            self._send_part(body)
        else:
            self._socket.sendall(start + (body or b""))
        while True:
            version, status = self._status()
            fields = self._fields()
            if status >= 200:
                break  # what comes before is not the answer (100 Continue, 103 Early Hints)
        option = fields.get("connection", "").lower()
        kept = option != "close" if version == b"HTTP/1.1" else option == "keep-alive"
        retry_after = fields.get("retry-after", "")
        # Dates are not meant for programs.
        wait = float(min(int(retry_after[:9]), _LONGEST_WAIT)) if retry_after.isdigit() else None
        if method == "HEAD" or status in (204, 304):
            return Answer(status, b"", kept, wait, fields)
        memory = io.BytesIO()
        content: BinaryIO = memory if into is None or not 200 <= status < 300 else into
        if fields.get("transfer-encoding", "").lower() == "chunked":
            self._chunks(content)
        elif "content-length" in fields:
            self._exactly(_number(fields["content-length"], 10), content)
        else:
            kept = False
            self._rest(content)
        return Answer(status, memory.getvalue(), kept, wait, fields)

    def close(self) -> None:
        """Close the connection. Never raises."""
        for part in (self._reader, self._socket):
            try:
                part.close()
            except OSError:
                continue

    def _send_part(self, part: FilePart) -> None:
        """Raise BadAnswer when the file is shorter."""
        if not part.size:
            return
        sent = self._socket.sendfile(part.file, part.offset, part.size)
        if sent != part.size:
            raise BadAnswer("the file has become shorter while it was sent")

    def _status(self) -> Tuple[bytes, int]:
        line = self._reader.readline(_LONGEST_LINE)
        if not line:
            raise Closed("the connection was closed without an answer")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise BadAnswer("the answer is not HTTP: %r" % line[:60])
        return words[0], int(words[1])

    def _fields(self) -> Dict[str, str]:
        fields: Dict[str, str] = {}
        for _ in range(_MOST_HEADERS):
            line = self._line()
            if not line:
                return fields
            name, _, value = line.decode("latin-1").partition(":")
            fields[name.lower()] = value.strip()
        raise BadAnswer("the answer has more than %d headers" % _MOST_HEADERS)

    def _line(self) -> bytes:
        line = self._reader.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise BadAnswer("the answer breaks off in its headers")
        return line.rstrip(b"\r\n")

    def _chunks(self, content: BinaryIO) -> None:
        while True:
            size = _number(self._line().partition(b";")[0].decode("latin-1"), 16)
            if size == 0:
                self._fields()  # trailers
                return
            self._exactly(size, content)
            if self._line():
                raise BadAnswer("a chunk of the answer is longer than it says")

    def _exactly(self, size: int, content: BinaryIO) -> None:
        done = 0
        block = memoryview(bytearray(min(size, _BLOCK)))
        while done < size:
            count = self._reader.readinto(block[: min(size - done, len(block))])
            if not count:
                raise BadAnswer("the answer breaks off after %d of %d bytes" % (done, size))
            content.write(block[:count])
            done += count

    def _rest(self, content: BinaryIO) -> None:
        while True:
            block = self._reader.read(_BLOCK)
            if not block:
                return
            content.write(block)


def _number(text: str, base: int) -> int:
    try:
        if not text.strip().isalnum():
            raise ValueError(text)
        return int(text, base)
    except ValueError:
        raise BadAnswer("%r is no length" % text[:30]) from None
