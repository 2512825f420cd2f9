"""Looks up in /proc/net (proc(5)) which accounts have sockets of this machine, or of this container's network."""

from __future__ import annotations

import pwd
import socket
import struct
import sys
from typing import Collection, Iterator, List, Optional, Tuple

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"  # TCP_LISTEN


def foreign_listener(ports: Collection[int], uid: int) -> Optional[Tuple[int, int]]:
    """Return the first port of `ports` on which another account than `uid` listens, and that account's number."""
    for local, _, state, owner in _sockets():
        if state == _LISTENS and owner != uid and _port(local) in ports:
            return _port(local), owner
    return None


def owner_of_peer(peer: Tuple[str, int], own: Tuple[str, int]) -> Optional[int]:
    """Return the account of the process on this machine whose socket is at `peer` and connected to `own`, both an
    address and a port; None where no such socket is on this machine."""
    wanted = (_packed(peer[0]), peer[1])
    local_end = (_packed(own[0]), own[1])
    for local, remote, _, owner in _sockets():
        if _end(local) == wanted and _end(remote) == local_end:
            return owner
    return None


def account_name(uid: int) -> str:
    """Return the name of an account; its number where this machine or image does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _sockets() -> Iterator[Tuple[str, str, str, int]]:
    """Return the local and the remote end, the state and the owner of each TCP socket, as the kernel writes them."""
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                lines: List[str] = file.readlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            yield fields[1], fields[2], fields[3], int(fields[7])


def _port(end: str) -> int:
    return int(end.rpartition(":")[2], 16)


def _end(end: str) -> Tuple[bytes, int]:
    """Read an address in network order, IPv4 as mapped to IPv6, and the port. The kernel writes words of 32 bits in the
    machine's own order."""
    where = end.rpartition(":")[0]
    words = [int(where[at : at + 8], 16) for at in range(0, len(where), 8)]
    packed = struct.pack("%s%dI" % ("<" if sys.byteorder == "little" else ">", len(words)), *words)
    return _mapped(packed), _port(end)


def _packed(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return _mapped(socket.inet_pton(family, address.partition("%")[0]))


def _mapped(packed: bytes) -> bytes:
    return packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed
