"""A star of processes around one hub: authenticated connections, and messages that say what they are.

Python's `multiprocessing.connection` carries the messages; the handshake is ours, because the library's own
uses MD5 (refused on machines in FIPS mode), waits for ever on a silent caller, and is not mutual until 3.12.
Nothing is unpickled before both sides have proved that they hold the key.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import queue
import socket
import struct
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, Dict, List, Tuple, Union

from trainmaster.core.errors import DistributedError

Address = Union[str, Tuple[str, int]]  # a Unix socket's path, or host and port

_NONCE = 32  # bytes
_HELLO_PATIENCE = 10.0  # seconds for one caller's handshake
_GREETING = struct.Struct(">i")
_RETRY = 0.05


class Hub:
    """The process in the middle, number 0 of `size`."""

    def __init__(self, address: Address, size: int, key: bytes, patience: float) -> None:
        """Listen and wait `retries` seconds until all others have come. Raises DistributedError, OSError."""
        self._spokes: Dict[int, Connection] = {}
        if size == 1:
            return
        listener = _listen(address, size)
        arrivals: queue.SimpleQueue[Tuple[int, Connection]] = queue.SimpleQueue()
        accepting = threading.Thread(target=_accept, args=(listener, key, arrivals), name="core-hub", daemon=True)
        accepting.start()
        deadline = time.monotonic() + patience
        try:
            while len(self._spokes) < size - 1:
                try:
                    rank, connection = arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    missing = sorted(set(range(1, size)) - set(self._spokes))
                    raise DistributedError(
                        "ranks %s did not come within %d s: did all workers start?" % (missing, patience)
                    ) from None
                if not 0 < rank < size or rank in self._spokes:
                    connection.close()
                    raise DistributedError("rank %d came twice or does not fit %d ranks" % (rank, size))
                self._spokes[rank] = connection
        except DistributedError:
            self.close()
            raise
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            if isinstance(address, str):
                with contextlib.suppress(OSError):
                    os.unlink(address)

    def gather(self, name: str, mine: Any) -> List[Any]:
        """Everybody's value, in rank order."""
        values = [mine]
        for rank in sorted(self._spokes):
            values.append(_receive(self._spokes[rank], name, rank))
        return values

    def send_all(self, name: str, value: Any) -> None:
        """Give everybody the same value."""
        for rank in sorted(self._spokes):
            _send(self._spokes[rank], name, value, rank)

    def close(self) -> None:
        for connection in self._spokes.values():
            connection.close()
        self._spokes.clear()


class Spoke:
    """Any other process."""

    def __init__(self, address: Address, rank: int, key: bytes, patience: float) -> None:
        """Connect, trying again for `retries` seconds. Raises DistributedError."""
        deadline = time.monotonic() + patience
        while True:
            try:
                self._hub = _call(address, rank, key)
                return
            except (OSError, EOFError) as error:
                if time.monotonic() > deadline:
                    raise DistributedError(
                        "the chief at %s cannot be reached within %d s: %s" % (address, patience, error)
                    ) from None
                time.sleep(_RETRY)

    def send(self, name: str, value: Any) -> None:
        _send(self._hub, name, value, 0)

    def receive(self, name: str) -> Any:
        return _receive(self._hub, name, 0)

    def close(self) -> None:
        self._hub.close()


def _send(connection: Connection, name: str, value: Any, peer: int) -> None:
    try:
        connection.send((name, value))
    except OSError as error:
        raise DistributedError("rank %d has gone: %s" % (peer, error)) from error


def _receive(connection: Connection, name: str, peer: int) -> Any:
    try:
        their_name, value = connection.recv()
    except (EOFError, OSError) as error:
        raise DistributedError("rank %d has gone during %s" % (peer, name)) from error
    if their_name != name:
        raise DistributedError(
            "rank %d called %s while this rank called %s: all ranks must make the same calls in the same order"
            % (peer, their_name, name)
        )
    return value


def _listen(address: Address, size: int) -> socket.socket:
    if isinstance(address, str):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(address)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        target: Any = address
    else:
        family, _, _, _, target = socket.getaddrinfo(address[0], address[1], type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(target)
        listener.listen(size)
    except OSError:
        listener.close()
        raise
    return listener


def _accept(listener: socket.socket, key: bytes, arrivals: queue.SimpleQueue[Tuple[int, Connection]]) -> None:
    while True:
        try:
            caller = listener.accept()[0]
        except OSError:
            return
        # One thread a caller: a silent stranger must not keep the ranks waiting.
        threading.Thread(target=_welcome, args=(caller, key, arrivals), name="core-welcome", daemon=True).start()


def _welcome(caller: socket.socket, key: bytes, arrivals: queue.SimpleQueue[Tuple[int, Connection]]) -> None:
    connection = _connection(caller)
    try:
        ours = os.urandom(_NONCE)
        connection.send_bytes(ours)
        answer = _hear(connection)
        theirs, rank_bytes, proof = answer[:_NONCE], answer[_NONCE : _NONCE + 4], answer[_NONCE + 4 :]
        if not hmac.compare_digest(proof, _prove(key, b"spoke", ours, theirs, rank_bytes)):
            raise OSError("wrong key")
        connection.send_bytes(_prove(key, b"hub", theirs, ours, rank_bytes))
        arrivals.put((_GREETING.unpack(rank_bytes)[0], connection))
    except (OSError, EOFError, struct.error):
        connection.close()


def _call(address: Address, rank: int, key: bytes) -> Connection:
    if isinstance(address, str):
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            caller.connect(address)
        except OSError:
            caller.close()
            raise
    else:
        caller = socket.create_connection(address, timeout=_HELLO_PATIENCE)
    connection = _connection(caller)
    try:
        theirs = _hear(connection)
        ours = os.urandom(_NONCE)
        rank_bytes = _GREETING.pack(rank)
        connection.send_bytes(ours + rank_bytes + _prove(key, b"spoke", theirs, ours, rank_bytes))
        if not hmac.compare_digest(_hear(connection), _prove(key, b"hub", ours, theirs, rank_bytes)):
            raise OSError("the other side does not hold this job's key")
    except (OSError, EOFError):
        connection.close()
        raise
    return connection


def _connection(caller: socket.socket) -> Connection:
    caller.settimeout(None)
    if caller.family != socket.AF_UNIX:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A node that lost its power never says so.
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Connection(caller.detach())


def _hear(connection: Connection) -> bytes:
    if not connection.poll(_HELLO_PATIENCE):
        raise OSError("no answer to the greeting")
    return connection.recv_bytes(256)


def _prove(key: bytes, side: bytes, first: bytes, second: bytes, rank: bytes) -> bytes:
    return hmac.new(key, b"trainmaster/1 " + side + first + second + rank, hashlib.sha256).digest()
