"""Reserves TCP ports for as long as this job runs, so that no other job on the node is given them."""

from __future__ import annotations

import errno
import os
import socket
from typing import List, Optional, Tuple

from trainmaster.runtime.errors import NoRendezvous, PortTaken
from trainmaster.runtime.sockets import account_name, foreign_listener

_TRIES = 400  # ports that are tried before NoRendezvous is raised


class ReservedPorts:
    """Holds `count` free ports until it is closed. Raises NoRendezvous when there are not so many.

    Each is bound and not listened on, with SO_REUSEADDR. Linux lets a program that sets the same option bind and use
    such a port (torch, gRPC, Python's servers and sshd do); a program that looks for a free port without it, as this
    class does, finds it taken. The ports are below the range from which the kernel takes those of outgoing connections.
    """

    def __init__(self, count: int) -> None:
        self._held: List[socket.socket] = []
        numbers: List[int] = []
        candidates = _candidates()
        for _ in range(_TRIES):
            if len(numbers) == count:
                break
            port = candidates[int.from_bytes(os.urandom(4), "little") % len(candidates)]
            held = _hold(port)
            if held is not None:
                self._held.append(held)
                numbers.append(port)
        else:
            self.close()
            raise NoRendezvous(
                "no %d free TCP ports among %d between %d and %d" % (count, _TRIES, candidates.start, candidates.stop)
            )
        self.numbers: Tuple[int, ...] = tuple(numbers)

    def stolen(self) -> str:
        """Return a sentence where another account listens on one of the ports, which Linux does not prevent; else an
        empty text."""
        listener = foreign_listener(self.numbers, os.geteuid())
        if listener is None:
            return ""
        return "port %d of this job was taken by account %s, which listens there" % (
            listener[0],
            account_name(listener[1]),
        )

    def check(self) -> None:
        """Raise PortTaken where another account listens on one of the ports."""
        sentence = self.stolen()
        if sentence:
            raise PortTaken(sentence)

    def close(self) -> None:
        """Release all ports."""
        for held in self._held:
            held.close()
        self._held = []


def _candidates() -> range:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            ceiling = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        ceiling = 32768
    return range(10000, ceiling) if ceiling > 12000 else range(20000, 32768)


def _hold(port: int) -> Optional[socket.socket]:
    """Bind the port for IPv6 and IPv4; None when it is taken."""
    for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - nothing listens
        try:
            held = socket.socket(family, socket.SOCK_STREAM)
        except OSError:  # a kernel without IPv6
            continue
        try:
            if family == socket.AF_INET6:
                held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            held.bind((anywhere, port))
            # Not before: a socket with the option binds ports that other jobs hold.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return held
        except OSError as error:
            held.close()
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # without IPv6 on this machine
                return None
    return None
