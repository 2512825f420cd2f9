"""The services in jobs: the addresses that they register, and who may reach them through the master.

A job names the address. It must be one from which the job asked for its lease, and on the master's own machine the
listening process must be the job's, so that nobody is led elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import JSONB

from trainmaster.config.environment import ProxyPort
from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, AllocationNode, Experiment, Project, Trial
from trainmaster.master.services import addresses
from trainmaster.master.services.access.accounts import JobAccounts, RunsAs, is_account_name
from trainmaster.master.services.access.identity import Caller, Identities
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Forbidden, Invalid, NotFound
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration.task_orchestrator import NOTEBOOK, SERVICES, SHELL, TENSORBOARD
from trainmaster.master.services.store import wake
from trainmaster.master.services.tasks.listeners import LISTENERS
from trainmaster.master.values.configs import JobConfig
from trainmaster.master.values.stored import section_of
from trainmaster.master.values.tasks import ServiceAddress

TRIAL = "TRIAL"
NOT_THERE = "Nothing listens in the task {}: it may not be ready yet, or it has ended."


@dataclass(frozen=True)
class AnnouncedService:
    """The address that a job reports. `port` and `user` are of its service."""

    address: str
    port: int = 0
    user: str = ""


@dataclass(frozen=True)
class JobService:
    """A service in a job. `secret`: by which it authenticates the master, where it requires one."""

    task_id: str
    kind: str
    owner_id: int
    workspace_id: int
    address: str
    port: int
    allocation_id: str = ""
    account: str | None = None  # the account that the job runs as; None: the master's
    cluster: str = ""  # the cluster on which it runs
    tcp: bool = False  # bytes over a WebSocket instead of HTTP
    open: bool = False  # it requires its own credentials, or none
    prefixed: bool = False  # it expects whole paths, with its prefix at the master
    secret: str = ""


class JobServices(BoundService):
    """Services in jobs, and who may reach them."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._accounts = JobAccounts(master)
        self._identities = Identities(master)

    def announce(self, allocation_id: str, announced: AnnouncedService) -> None:
        """Store the address that a job reports. Raises Invalid, NotFound."""
        if announced.user and not is_account_name(announced.user):
            raise Invalid(f"user: {announced.user[:64]!r} cannot be the name of an account.")
        if not 0 <= announced.port <= 65535:
            raise Invalid(f"port: {announced.port} is not a valid port.")
        with self._store.transaction() as session:
            row = session.get(Allocation, allocation_id, with_for_update=True)
            if row is None:
                raise NotFound(f"There is no allocation {allocation_id}.")
            peers = set(
                session.scalars(select(AllocationNode.peer).where(AllocationNode.allocation_id == allocation_id))
            )
            if refusal := self._refusal(announced.address, peers):
                raise Invalid(f"proxyAddress: {refusal}")
            row.proxy = ServiceAddress.of(announced.address, announced.port, announced.user)

    def _refusal(self, address: str, peers: set[str]) -> str:
        """Why the master refuses an address of a job whose nodes asked for their leases from `peers`; empty when it
        accepts it."""
        where = addresses.canonical(address)
        if where is None:
            return f"{address!r} is not an IP address in its usual notation."
        if addresses.is_nobody(where):
            return f"{address} is not the address of a machine."
        if address in peers:
            return ""
        if addresses.is_here(where):
            known = [known_peer for known_peer in map(addresses.canonical, peers) if known_peer is not None]
            if not where.is_loopback and any(addresses.is_here(one) for one in known):
                return ""  # another address of the machine that both are on; its listeners are checked each time
        elif addresses.within(where, self._settings.services_networks):
            return ""
        listed = ", ".join(sorted(filter(None, peers))) or "nowhere yet"
        return (
            f"{address} is not where this job asked for its lease from ({listed}). Where nodes have several networks, "
            "the administrator names theirs in services_networks."
        )

    def ready(self, allocation_id: str) -> None:
        """Note that the service in a job answers."""
        with self._store.transaction() as session:
            waiting = update(Allocation).where(Allocation.id == allocation_id, Allocation.ready.is_(False))
            task_id = session.scalar(waiting.values(ready=True).returning(Allocation.task_id))
            if task_id is not None:
                wake(session, f"allocation:{allocation_id}")
                log_store.say(session, task_id, "Its service is ready.", allocation_id=allocation_id)

    def find(self, name: str) -> JobService | None:
        """Find the service called `name`: a task's id, or one with `:port`. None when nothing listens there now."""
        task_id, _, port = name.partition(":")
        if port and not (port.isdigit() and len(port) <= 5):
            return None
        workspace = func.coalesce(Project.workspace_id, Standalone.workspace_id)
        peers = (
            select(func.array_agg(AllocationNode.peer))
            .where(AllocationNode.allocation_id == Allocation.id)
            .scalar_subquery()
        )
        config = func.coalesce(Experiment.config, Standalone.config, type_=JSONB)
        query = (
            select(Allocation, Standalone.kind, workspace, config[JobConfig.ENVIRONMENT][JobConfig.PROXY_PORTS], peers)
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
        with self._store.autocommit() as session:
            row = session.execute(query.order_by(Allocation.attempt.desc()).limit(1)).first()
        if row is None:
            return None
        allocation, kind, workspace_id, ports, seen_at = row
        if allocation.proxy is None or self._refusal(allocation.proxy.address, set(seen_at or ())):
            return None
        place = allocation.proxy
        return self._service(allocation, place, kind or TRIAL, workspace_id, ports or (), int(port or 0))

    def _service(
        self, row: Allocation, place: ServiceAddress, kind: str, workspace_id: int, ports: Any, port: int
    ) -> JobService | None:
        own = place.port
        facts = (row.task_id, kind, row.owner_id, workspace_id, place.address)
        job = (row.id, row.run_as, row.dispatcher)
        if kind in SERVICES and own and port in (0, own):
            token = self._identities.session_token(row.id, row.token)
            secret = service_secret(token) if kind == NOTEBOOK else ""
            shell = kind == SHELL
            return JobService(*facts, own, *job, tcp=shell, open=shell, prefixed=not shell, secret=secret)
        open_ports = [section_of(ProxyPort, stored) for stored in ports]
        wanted = [each for each in open_ports if each.proxy_port == port or (not port and each.default_service_id)]
        if not wanted:
            return None
        entry = wanted[0]
        unauthenticated = self._settings.open_services and entry.unauthenticated
        return JobService(*facts, entry.proxy_port, *job, tcp=entry.proxy_tcp, open=unauthenticated)

    def enter(self, service: JobService, caller: Caller) -> None:
        """Check that the caller may use a service. A TensorBoard only shows data; any other service runs commands, as
        the job's account. Raises Forbidden."""
        shows = service.kind == TENSORBOARD
        if self._settings.roles:
            usual = Permission.VIEW_NSC if shows else Permission.UPDATE_NSC
            permission = Permission.UPDATE_EXPERIMENT if service.kind == TRIAL else usual
            caller.require(permission, service.workspace_id, NOT_THERE.format(service.task_id))
        job = RunsAs(service.owner_id, service.workspace_id, service.cluster, service.account)
        if not shows and not self._accounts.may_open(caller, job):
            raise Forbidden(f"The task {service.task_id} belongs to somebody else.")


def check_listener(service: JobService) -> None:
    """On the master's own machine, checks that the job itself listens on the port. Raises NotFound while nothing
    listens, Forbidden for another's process. Called before each connection."""
    where = addresses.canonical(service.address)
    if where is None:
        raise NotFound(NOT_THERE.format(service.task_id))
    if not addresses.is_here(where):
        return
    if not LISTENERS.there(where, service.port):
        raise NotFound(NOT_THERE.format(service.task_id))
    if not LISTENERS.are_of(service.allocation_id, service.account, where, service.port):
        raise Forbidden(f"What listens on port {service.port} of the master's machine is not of {service.task_id}.")


def service_secret(token: str) -> str:
    """Return the secret by which a service in a job authenticates the master: both sides derive it from the job's
    session token."""
    return hmac.new(token.encode(), b"service", hashlib.sha256).hexdigest()
