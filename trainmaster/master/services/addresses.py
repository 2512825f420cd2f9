"""Network addresses: parses them strictly, and decides which of them the master may connect to.

Only the canonical spelling of an address is accepted; every other (short, octal, decimal, IPv4 in IPv6, with a zone) is
refused, so that a check and a connection never read different machines from the same text.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# IPv6 addresses that stand for an IPv4 one: compatible (RFC 4291, 2.5.5.1), mapped (2.5.5.2), NAT64 (RFC 6052, RFC
# 8215), 6to4 (RFC 3056), Teredo (RFC 4380).
_FOURS = tuple(
    map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
)
_ONES_OWN = (ipaddress.IPv6Address("::"), ipaddress.IPv6Address("::1"))  # in ::/96, and plain IPv6


def canonical(text: str) -> Address | None:
    """Return the address that `text` is the canonical spelling of; None for everything else."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if str(address) != text or "%" in text or _stands_for_four(address):
        return None
    return address


def seen(peer: str) -> str:
    """Return the canonical spelling of an address from the kernel, such as a connection's other end: a listener for
    IPv6 that also accepts IPv4 sees mapped addresses. A text that is no address is returned unchanged."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    return str(getattr(address, "ipv4_mapped", None) or address)


def _stands_for_four(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address) or address in _ONES_OWN:
        return False
    return any(address in network for network in _FOURS)


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


def within(address: Address, allowed: Iterable[Network]) -> bool:
    return any(address.version == network.version and address in network for network in allowed)


def is_nobody(address: Address) -> bool:
    """Whether no single machine, or every machine, has the address: link-local, multicast, unspecified, reserved,
    deprecated."""
    return (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (address.is_reserved and not address.is_loopback)
        or bool(getattr(address, "is_site_local", False))
    )


def is_here(address: Address) -> bool:
    """Whether this machine itself has the address."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((str(address), 9))  # a datagram: only the route is looked up
        except OSError:
            return False
        return seen(str(probe.getsockname()[0])) == str(address)  # a route to this machine itself starts where it ends


def network(peer: str) -> str:
    """Return the network that counts as one sender with the peer address of a connection: an IPv6 host has all of its
    /64, and every account of this machine has all of the machine's own addresses."""
    try:
        address = ipaddress.ip_address(seen(peer))
    except ValueError:
        return peer
    if is_here(address):
        return "this machine"
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


def is_public(address: Address) -> bool:
    """Whether the address is on the internet, and not this machine's."""
    return address.is_global and not is_nobody(address) and not is_here(address)
