"""Message transport of `DistributedContext`: rank 0 (the coordinator) listens, every other rank (a member) connects.

Python's `multiprocessing.connection` carries the messages; the handshake is ours, because the library's own
uses MD5 (refused on machines in FIPS mode), waits for ever on a silent caller, and is not mutual until 3.12.
Nothing is unpickled before both sides have proved that they hold the key. Imported only where there are several ranks.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import pickle
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
_HANDSHAKE_TIMEOUT = 10.0  # seconds for one caller
_RANK = struct.Struct(">i")
_RETRY = 0.05


class Coordinator:
    """Rank 0's end: a connection to each of the other ranks.

    `name` in every method is that of the collective call: ranks that are in different calls raise DistributedError.
    """

    def __init__(self, address: Address, size: int, key: bytes, timeout: float) -> None:
        """Listen, and wait `timeout` seconds until all of `size` ranks have connected.

        Raises:
            DistributedError: Ranks are missing, or one came twice.
            OSError: The address cannot be listened on.
        """
        self._members: Dict[int, Connection] = {}
        listener = _listen(address, size)
        arrivals: queue.SimpleQueue[Tuple[int, Connection]] = queue.SimpleQueue()
        accepting = threading.Thread(target=_accept, args=(listener, key, arrivals), name="core-accept", daemon=True)
        accepting.start()
        deadline = time.monotonic() + timeout
        try:
            while len(self._members) < size - 1:
                try:
                    rank, connection = arrivals.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    missing = sorted(set(range(1, size)) - set(self._members))
                    raise DistributedError(
                        "ranks %s did not come within %d s: did all workers start?" % (missing, timeout)
                    ) from None
                if not 0 < rank < size or rank in self._members:
                    connection.close()
                    raise DistributedError("rank %d came twice or does not fit %d ranks" % (rank, size))
                self._members[rank] = connection
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

    def gather(self, name: str, value: Any) -> List[Any]:
        """Every rank's value, in the order of the ranks."""
        return [value, *(_receive(self._members[rank], name, rank) for rank in sorted(self._members))]

    def allgather(self, name: str, value: Any) -> List[Any]:
        """Every rank's value, in the order of the ranks, for every rank."""
        values = self.gather(name, value)
        self.broadcast(name, values)
        return values

    def broadcast(self, name: str, value: Any) -> Any:
        """Send `value` to every other rank."""
        message = _message(name, value)
        for rank in sorted(self._members):
            _send(self._members[rank], message, rank)
        return value

    def close(self) -> None:
        """Close all connections."""
        for connection in self._members.values():
            connection.close()
        self._members.clear()


class Member:
    """The end of any other rank: a connection to the coordinator."""

    def __init__(self, address: Address, rank: int, key: bytes, timeout: float) -> None:
        """Connect, trying again for `timeout` seconds.

        Raises:
            DistributedError: The coordinator cannot be reached, or does not hold the key.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._coordinator = _connect(address, rank, key)
                return
            except (OSError, EOFError) as error:
                if time.monotonic() > deadline:
                    raise DistributedError(
                        "the chief at %s cannot be reached within %d s: %s" % (address, timeout, error)
                    ) from None
                time.sleep(_RETRY)

    def gather(self, name: str, value: Any) -> None:
        """Send this rank's value to the coordinator."""
        _send(self._coordinator, _message(name, value), 0)

    def allgather(self, name: str, value: Any) -> List[Any]:
        """Every rank's value, in the order of the ranks."""
        self.gather(name, value)
        values: List[Any] = _receive(self._coordinator, name, 0)
        return values

    def broadcast(self, name: str, _: Any) -> Any:
        """Return the coordinator's value."""
        return _receive(self._coordinator, name, 0)

    def close(self) -> None:
        """Close the connection."""
        self._coordinator.close()


def _message(name: str, value: Any) -> bytes:
    # Not `Connection.send`: its pickler passes torch's tensors as open files of one machine.
    return pickle.dumps((name, value), protocol=4)


def _send(connection: Connection, message: bytes, peer: int) -> None:
    try:
        connection.send_bytes(message)
    except OSError as error:
        raise DistributedError("rank %d has gone: %s" % (peer, error)) from error


def _receive(connection: Connection, name: str, peer: int) -> Any:
    try:
        their_name, value = pickle.loads(connection.recv_bytes())  # noqa: S301 - of a rank that holds the key
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
        # One thread for each caller: a silent stranger must not delay the ranks.
        threading.Thread(target=_admit, args=(caller, key, arrivals), name="core-handshake", daemon=True).start()


def _admit(caller: socket.socket, key: bytes, arrivals: queue.SimpleQueue[Tuple[int, Connection]]) -> None:
    connection = _connection(caller)
    try:
        ours = os.urandom(_NONCE)
        connection.send_bytes(ours)
        answer = _read_frame(connection)
        theirs, rank_bytes, proof = answer[:_NONCE], answer[_NONCE : _NONCE + 4], answer[_NONCE + 4 :]
        if not hmac.compare_digest(proof, _prove(key, b"member", ours, theirs, rank_bytes)):
            raise OSError("wrong key")
        connection.send_bytes(_prove(key, b"coordinator", theirs, ours, rank_bytes))
        arrivals.put((_RANK.unpack(rank_bytes)[0], connection))
    except (OSError, EOFError, struct.error):
        connection.close()


def _connect(address: Address, rank: int, key: bytes) -> Connection:
    if isinstance(address, str):
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            caller.connect(address)
        except OSError:
            caller.close()
            raise
    else:
        caller = socket.create_connection(address, timeout=_HANDSHAKE_TIMEOUT)
    connection = _connection(caller)
    try:
        theirs = _read_frame(connection)
        ours = os.urandom(_NONCE)
        rank_bytes = _RANK.pack(rank)
        connection.send_bytes(ours + rank_bytes + _prove(key, b"member", theirs, ours, rank_bytes))
        if not hmac.compare_digest(_read_frame(connection), _prove(key, b"coordinator", ours, theirs, rank_bytes)):
            raise OSError("the other side does not hold this job's key")
    except (OSError, EOFError):
        connection.close()
        raise
    return connection


def _connection(caller: socket.socket) -> Connection:
    caller.settimeout(None)
    if caller.family != socket.AF_UNIX:
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Detects a node that lost its power, which never closes its connections.
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Connection(caller.detach())


def _read_frame(connection: Connection) -> bytes:
    if not connection.poll(_HANDSHAKE_TIMEOUT):
        raise OSError("no answer within %d s of the handshake" % _HANDSHAKE_TIMEOUT)
    return connection.recv_bytes(256)


def _prove(key: bytes, side: bytes, first: bytes, second: bytes, rank: bytes) -> bytes:
    return hmac.new(key, b"trainmaster/1 " + side + first + second + rank, hashlib.sha256).digest()
