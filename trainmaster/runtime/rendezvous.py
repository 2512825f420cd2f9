"""Rendezvous of a job's nodes: they exchange addresses, slots and the ports that the first node chose."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.errors import CallFailed, CallRejected, NoRendezvous
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.record import Record
from trainmaster.runtime.url import split_url

_SIOCGIFADDR = 0x8915  # netdevice(7)
_IPV6_SCOPES = ("00", "10")  # global, and the loopback's own; an address of a link alone wants its interface named too
_ONE_WAIT = 75.0  # seconds; the master holds an incomplete gathering for up to 60
_WARN_AFTER = 600.0
PORTS = 4  # that a node reserves beside one for each of its slots


class Rendezvous(Record):
    """All nodes of the job, in the order of their ranks."""

    addresses: Tuple[str, ...]
    rank: int
    slot_counts: Tuple[int, ...]
    torch_port: int  # for torchrun's store, on the first node
    distributed_port: int  # for core's DistributedContext, on the first node
    gather_port: int  # the second one that Determined's own DistributedContext wants
    launcher_port: int  # for the launcher's own use, on the first node
    worker_ports: Tuple[Tuple[int, ...], ...]  # of each node, one for each slot


def gather_nodes(
    master: MasterCalls,
    allocation_id: str,
    *,
    rank: int,
    num_nodes: int,
    address: str,
    slots: int,
    ports: Sequence[int],
    patience: float,
    log: Callable[[str], None],
) -> Rendezvous:
    """Wait for all nodes, for at most `patience` seconds. A job of one node needs no call. `ports`: those that this
    node has reserved, `PORTS` and one for each slot.

    Raises NoRendezvous.
    """
    node: Dict[str, Any] = {"rank": rank, "rendezvous_ip": address, "slots": slots, "ports": list(ports)}
    if num_nodes == 1:
        return _assemble([node], rank)
    body = {
        "allocationId": allocation_id,
        "requestUuid": os.urandom(16).hex(),
        "numPeers": num_nodes,
        "data": node,
    }
    path = "/api/v1/allocations/%s/all_gather" % allocation_id
    started = time.monotonic()
    warned = started
    backoff = Backoff()
    while True:
        asked = time.monotonic()
        try:
            answer = master.call("POST", path, body, timeout=_ONE_WAIT)
            return _assemble(answer["data"], rank, num_nodes)
        except CallRejected as error:
            raise NoRendezvous("the rendezvous was refused: %s" % error) from error
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise NoRendezvous("the master's answer to the rendezvous makes no sense: %r" % error) from error
        except CallFailed as away:
            now = time.monotonic()
            reason = str(away)
        if now - started > patience:
            raise NoRendezvous(
                "not all of %d nodes came to the rendezvous within %d s: see the other nodes' output, and whether they "
                "reach the master (%s)" % (num_nodes, patience, reason)
            )
        if now - warned > _WARN_AFTER:
            warned = now
            log("still waiting for the other nodes (%d in all)" % num_nodes)
        if now - asked > 20:
            backoff.reset()  # a long wait that ended, not a master that is away
        time.sleep(backoff.next())


def _assemble(data: Any, rank: int, num_nodes: int = 1) -> Rendezvous:
    peers = sorted(data, key=lambda peer: int(peer["rank"]))
    if [int(peer["rank"]) for peer in peers] != list(range(num_nodes)):
        raise ValueError("ranks %s instead of 0 to %d" % ([peer["rank"] for peer in peers], num_nodes - 1))
    torch_port, distributed_port, gather_port, launcher_port = (int(port) for port in peers[0]["ports"][:PORTS])
    return Rendezvous(
        addresses=tuple(str(peer["rendezvous_ip"]) for peer in peers),
        rank=rank,
        slot_counts=tuple(int(peer["slots"]) for peer in peers),
        torch_port=torch_port,
        distributed_port=distributed_port,
        gather_port=gather_port,
        launcher_port=launcher_port,
        worker_ports=tuple(tuple(int(port) for port in peer["ports"][PORTS:]) for peer in peers),
    )


def choose_address(interfaces: str, master_url: str) -> Tuple[str, Optional[str]]:
    """Choose the address under which other nodes reach this one, and the interface that has it (None if unknown).

    In this order: the first of `interfaces` (comma list) that has an address, the first eth*, the address from which
    the master is reached unless that is the loopback, what the host's name resolves to, 127.0.0.1. Of an interface
    that has an IPv4 address it is that one, else its global IPv6 address.
    """
    named = [name.strip() for name in interfaces.split(",") if name.strip()]
    by_interface = {name: interface_address(name) for _, name in socket.if_nameindex()}
    ethernet = sorted(name for name in by_interface if name.startswith("eth"))
    for name in named + ethernet:
        address = by_interface.get(name)
        if address:
            return address, name
    address = _unless_loopback(address_towards(master_url)) or _unless_loopback(_address_of_name())
    if address is None:
        return "127.0.0.1", "lo"
    owner = [name for name, known in by_interface.items() if known == address]
    return address, owner[0] if owner else None


def _unless_loopback(address: Optional[str]) -> Optional[str]:
    """`address`, or None when only this machine can reach it."""
    return None if address is None or address == "::1" or address.startswith("127.") else address


def interface_address(name: str) -> Optional[str]:
    """Return the first IPv4 address of an interface, else its first IPv6 address that other machines can use."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
    except OSError:
        return _ipv6_address(name)
    finally:
        probe.close()
    return socket.inet_ntoa(answer[20:24])


def _ipv6_address(name: str) -> Optional[str]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            lines = [line.split() for line in file]
    except OSError:  # a kernel without IPv6
        return None
    for digits, _, _, scope, _, interface in lines:  # proc(5)
        if interface == name and scope in _IPV6_SCOPES:
            return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
    return None


def address_towards(url: str) -> Optional[str]:
    """Return this machine's own address on the route to the master."""
    try:
        host = split_url(url).host
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        probe = socket.socket(family, kind)
        try:
            probe.connect(target)  # a datagram socket sends nothing
            return str(probe.getsockname()[0])
        finally:
            probe.close()
    except (OSError, ValueError):  # the call for the lease reports a bad URL
        return None


def _address_of_name() -> Optional[str]:
    try:
        return str(socket.getaddrinfo(socket.gethostname(), 9, type=socket.SOCK_DGRAM)[0][4][0])
    except OSError:
        return None
