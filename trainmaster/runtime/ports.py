"""TCP ports that are this job's as long as it runs: no other job on the node is given one of them."""

from __future__ import annotations

import _socket
import errno
import os

from trainmaster.runtime.errors import NoRendezvous
from trainmaster.runtime.sockets import Socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

_TRIES = 400  # ports that are tried before it is said that there is none


class ReservedPorts:
    """Holds `count` free ports until it is closed. Raises NoRendezvous when there are not so many.

    Each is bound and not listened on, with SO_REUSEADDR. Linux lets a program that sets the same option bind and use
    such a port (torch, gRPC, Python's servers and sshd do); whoever looks for a free port without it, as this class
    does, finds it taken. The ports lie below the range from which the kernel takes ports for outgoing connections.
    """

    def __init__(self, count: int) -> None:
        self._held: List[Socket] = []
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

    def close(self) -> None:
        """Let go of them."""
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


def _hold(port: int) -> Socket | None:
    """The port, bound for IPv6 and IPv4; None when somebody has it."""
    for family, anywhere in ((_socket.AF_INET6, "::"), (_socket.AF_INET, "0.0.0.0")):  # noqa: S104 - nothing listens
        try:
            held = Socket(family, _socket.SOCK_STREAM)
        except OSError:  # a kernel without IPv6
            continue
        try:
            if family == _socket.AF_INET6:
                held.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
            held.bind((anywhere, port))
            # Not before: a socket with the option binds ports that other jobs hold.
            held.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            return held
        except OSError as error:
            held.close()
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # these say that there is no IPv6 here
                return None
    return None
