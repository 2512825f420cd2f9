"""The services in jobs: where they say that they listen, and who may reach them through the master.

A job names the address; it must be one that the master would reach the job at anyway, so that nobody is led elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Experiment, Node, Project, Trial
from trainmaster.master.services import logs
from trainmaster.master.services.errors import Forbidden, Invalid, NotFound
from trainmaster.master.services.identity import Caller, session_token
from trainmaster.master.services.permissions import Permission
from trainmaster.master.services.store import Settings, Store, wake
from trainmaster.master.services.task_conductor import NOTEBOOK, SERVICES, SHELL, TENSORBOARD

TRIAL = "TRIAL"


@dataclass(frozen=True)
class Service:
    """Something that listens in a job. `secret`: by which it knows the master, where it asks for one."""

    task_id: str
    kind: str
    owner_id: int
    workspace_id: int
    address: str
    port: int
    tcp: bool = False  # bytes over a WebSocket instead of HTTP
    open: bool = False  # it asks for its own credentials, or for none
    prefixed: bool = False  # it wants whole paths, with what stands for it at the master
    secret: str = ""


def announce(store: Store, allocation_id: str, address: str, port: int, user: str, peer: str) -> None:
    """A job says where it is reached. `peer` is where it speaks from, as seen here, and what an empty address stands
    for. Raises Invalid, NotFound."""
    if not 0 <= port <= 65535:
        raise Invalid(f"port: {port} is none.")
    with store.transaction() as session:
        row = session.get(Allocation, allocation_id, with_for_update=True)
        if row is None:
            raise NotFound(f"There is no allocation {allocation_id}.")
        nodes = session.scalars(select(Node.addresses).where(Node.allocation_id == allocation_id))
        address = address or peer
        _check(address, peer, {known for addresses in nodes for known in addresses})
        row.proxy = {"address": address, "port": port, "user": user[:64]}


def _check(address: str, peer: str, known: set[str]) -> None:
    try:
        where = ipaddress.ip_address(address)
    except ValueError:
        raise Invalid(f"proxyAddress: {address!r} is not the number of an address.") from None
    if address == peer:
        return
    inside = where.is_loopback or where.is_link_local or where.is_multicast or where.is_unspecified
    if inside or address not in known:
        raise Invalid(
            f"proxyAddress: {address} is not where this job speaks from ({peer}), and not an address of its nodes."
        )


def ready(store: Store, allocation_id: str) -> None:
    """The service in a job answers."""
    with store.transaction() as session:
        waiting = update(Allocation).where(Allocation.id == allocation_id, Allocation.ready.is_(False))
        task_id = session.scalar(waiting.values(ready=True).returning(Allocation.task_id))
        if task_id is not None:
            wake(session, f"allocation:{allocation_id}")
            logs.say(session, task_id, "Its service is ready.", allocation_id=allocation_id)


def find(store: Store, settings: Settings, name: str) -> Service | None:
    """What is reached under `name`: a task's id, or one with `:port`. None when nothing listens there now."""
    task_id, _, port = name.partition(":")
    if port and not (port.isdigit() and len(port) <= 5):
        return None
    workspace = func.coalesce(Project.workspace_id, Standalone.workspace_id)
    config = func.coalesce(Experiment.config, Standalone.config, type_=Standalone.config.type)
    query = (
        select(Allocation, Standalone.kind, workspace, config["environment"]["proxy_ports"])
        .outerjoin(Trial, Trial.id == Allocation.trial_id)
        .outerjoin(Experiment, Experiment.id == Trial.experiment_id)
        .outerjoin(Project, Project.id == Experiment.project_id)
        .outerjoin(Standalone, Standalone.task_id == Allocation.task_id)
        .where(
            Allocation.task_id == task_id,
            Allocation.ended_at.is_(None),
            Allocation.lease_job.is_not(None),
            Allocation.proxy.is_not(None),
        )
    )
    with store.reading() as session:
        row = session.execute(query.order_by(Allocation.attempt.desc()).limit(1)).first()
    if row is None:
        return None
    allocation, kind, workspace_id, ports = row
    return _service(settings, allocation, kind or TRIAL, workspace_id, ports or (), int(port or 0))


def _service(
    settings: Settings, row: Allocation, kind: str, workspace_id: int, ports: Any, port: int
) -> Service | None:
    told = row.proxy or {}
    own = int(told.get("port") or 0)
    facts = (row.task_id, kind, row.owner_id, workspace_id, str(told.get("address") or ""))
    if kind in SERVICES and own and port in (0, own):
        token = session_token(settings, row.id, row.token)
        secret = service_secret(token) if kind == NOTEBOOK else ""
        shell = kind == SHELL
        return Service(*facts, own, tcp=shell, open=shell, prefixed=not shell, secret=secret)
    wanted = [entry for entry in ports if entry["proxy_port"] == port or (not port and entry.get("default_service_id"))]
    if not wanted:
        return None
    entry: Mapping[str, Any] = wanted[0]
    tcp, unauthenticated = bool(entry.get("proxy_tcp")), bool(entry.get("unauthenticated"))
    return Service(*facts, int(entry["proxy_port"]), tcp=tcp, open=unauthenticated)


def service_secret(token: str) -> str:
    """By which a service in a job knows the master: both sides make it of the job's session token."""
    return hmac.new(token.encode(), b"service", hashlib.sha256).hexdigest()


def enter(settings: Settings, service: Service, caller: Caller) -> None:
    """Whether the caller may use a service. A TensorBoard shows; everything else runs what it is told, as the job's
    account. Raises Forbidden."""
    shows = service.kind == TENSORBOARD
    if settings.roles:
        usual = Permission.VIEW_NSC if shows else Permission.UPDATE_NSC
        caller.require(Permission.UPDATE_EXPERIMENT if service.kind == TRIAL else usual, service.workspace_id)
    elif not shows and not caller.may_change(service.owner_id):
        raise Forbidden(f"The task {service.task_id} belongs to somebody else.")
