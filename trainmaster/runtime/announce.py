"""Where the services in this job are reached from the master."""

from __future__ import annotations

from trainmaster.runtime.master import Master
from trainmaster.runtime.rendezvous import address_towards
from trainmaster.runtime.url import split_url

_LOOPBACK = {"localhost": "127.0.0.1", "::1": "::1"}


def address_for(master_url: str, address: str) -> str:
    """The address that this node has towards the master, which believes no other; `address`, which is this node's on
    the network between the nodes, where that cannot be told. A master on this very machine comes by the loopback
    interface, and nobody else then has to."""
    host = split_url(master_url).host
    if host in _LOOPBACK or host.startswith("127."):
        return _LOOPBACK.get(host, host)
    return address_towards(master_url) or address


def announce(master: Master, allocation_id: str, address: str, patience: float, port: int = 0, user: str = "") -> None:
    """Tell the master; `port` and `user` are of the service that the job is for. Raises Away, Rejected."""
    body = {"proxyAddress": address, "port": port, "user": user}
    master.insist("POST", "/api/v1/allocations/%s/proxy_address" % allocation_id, body, patience=patience)
