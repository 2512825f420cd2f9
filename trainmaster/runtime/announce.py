"""Reports to the master the address under which it reaches the services in this job."""

from __future__ import annotations

from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.rendezvous import address_towards
from trainmaster.runtime.url import split_url

_LOOPBACK = {"localhost": "127.0.0.1", "::1": "::1"}


def address_for(master_url: str, address: str) -> str:
    """Choose the address of this node that the master can reach, which is the only one it accepts. A master on this
    very machine connects over the loopback interface, so that no other machine can. `address`, this node's on the
    network between the nodes, is the fallback."""
    host = split_url(master_url).host
    if host in _LOOPBACK or host.startswith("127."):
        return _LOOPBACK.get(host, host)
    return address_towards(master_url) or address


def announce(
    master: MasterCalls, allocation_id: str, address: str, patience: float, port: int = 0, user: str = ""
) -> None:
    """Report the address to the master; `port` and `user` are those of the service that the job runs. Raises
    CallFailed, CallRejected."""
    body = {"proxyAddress": address, "port": port, "user": user}
    master.call_with_retry("POST", "/api/v1/allocations/%s/proxy_address" % allocation_id, body, patience=patience)
