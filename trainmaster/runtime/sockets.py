"""Sockets by the part of `socket` that is written in C.

`socket` itself makes enumerations of hundreds of constants at every start: that costs every job 4 ms of CPU before it
has begun.
"""

from __future__ import annotations

import _socket
import io

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional, Union

Socket = _socket.socket


def connect(host: str, port: int, timeout: float) -> Socket:
    """A TCP connection to the first of the host's addresses that takes it; `timeout` (seconds) is for each of them, and
    for what follows on the connection. Raises OSError, that of the last address."""
    trouble: Optional[OSError] = None
    for family, kind, protocol, _, address in _socket.getaddrinfo(as_asked(host), port, type=_socket.SOCK_STREAM):
        made = Socket(family, kind, protocol)
        try:
            made.settimeout(timeout)
            made.connect(address)
        except OSError as error:
            made.close()
            trouble = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    try:
        raise trouble or OSError("%s has no address" % host)
    finally:
        del trouble  # it holds this frame, which holds it


def accept(listener: Socket) -> Socket:
    """The next connection to a Unix socket. Raises OSError."""
    descriptor = listener._accept()[0]  # type: ignore[attr-defined]  # what socket.accept is made of
    return Socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, descriptor)


def reader(connection: Any) -> io.BufferedReader:
    """What comes on a connection, buffered. Closing it leaves the connection open."""
    return io.BufferedReader(_Incoming(connection))


class _Incoming(io.RawIOBase):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self._connection.recv_into(buffer))


def as_asked(host: str) -> Union[str, bytes]:
    """`host` as getaddrinfo takes it: of text it makes a name by IDNA's rules, and reads their tables first."""
    return host.encode("ascii") if host.isascii() else host
