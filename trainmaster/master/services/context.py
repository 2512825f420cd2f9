"""What never changes while a master runs: its database, its settings, its clusters. Each service is bound to it
once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.master.services.addresses import Network
from trainmaster.master.services.clusters.clusters import Clusters
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.store import Store, Wakeups
from trainmaster.master.values.configs import JobConfig


@dataclass(frozen=True)
class Settings:
    """Settings of the master that services need."""

    version: str
    cluster_id: str
    cluster_name: str
    secret: bytes
    token_prefix: str
    master_url: str  # the master's address for jobs
    runtime_zip: bytes
    heartbeat: float = 15.0  # seconds between a runtime's heartbeats
    lease_patience: float = 1800.0  # seconds a job waits for an unreachable master before it gives up
    lost_after: float = 300.0  # seconds of silence before an unlisted job is given up
    preemption_timeout: float = 3600.0
    longest_poll: float = 300.0  # seconds of a long poll
    limits: Limits = Limits()  # noqa: RUF009 - frozen
    log_retention_days: int | None = None  # the site's default; None: for ever
    roles: bool = False  # whether roles control permissions
    roles_shown: bool | None = None  # whether clients offer groups and roles; None: where roles are used
    creators_role: int | None = None  # the role that the creator of a workspace gets in it
    strict_queue: bool = False  # whether reordering the queue needs a permission of its own
    token_days: int = 30  # the default lifetime of an access token
    token_days_at_most: int = 365  # -1: for ever
    webhook_key: str = ""  # signs events to webhooks
    notebook_timeout: float = 0.0  # default seconds of idleness after which a notebook ends; 0: never
    tensorboard_timeout: float = 300.0
    services_networks: tuple[Network, ...] = ()  # addresses that jobs may report
    open_services: bool = False  # whether services in jobs may do without a log-in
    webhook_networks: tuple[Network, ...] = ()  # networks inside the site that webhooks may reach
    master_anchors: Callable[[], str] = lambda: ""  # certificates (PEM) that jobs must trust to connect to the master
    launch_error: bool = True  # whether requests for more slots than a pool has are refused; else they wait
    checkpoint_storage: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the site's, with its credentials
    storage_endpoints: tuple[str, ...] = ()  # object stores that experiments may name with keys of their own
    data: Path | None = None  # the master's own folder, in which no user's files are touched


@dataclass(frozen=True)
class SiteDefaults:
    """The administrator's defaults for experiments of a pool, the most important first. The empty name stands for all
    pools."""

    of_pool: Callable[[str], Sequence[Mapping[str, Any]]]
    open_services: bool = False

    def check(self, config: JobConfig) -> None:
        """Raise Invalid for a configuration that would expose more than the site allows."""
        wide = [str(port.proxy_port) for port in config.environment.proxy_ports if port.unauthenticated]
        if wide and not self.open_services:
            raise Invalid(
                f"environment.proxy_ports: port {', '.join(wide)} is to be open to everybody (unauthenticated: true), "
                "which this site does not allow. Leave it out, or ask the administrator for unauthenticated_services."
            )


@dataclass
class MasterContext:
    """What services are bound to."""

    store: Store
    settings: Settings
    clusters: Clusters
    defaults: SiteDefaults
    wakeups: Wakeups = field(default_factory=Wakeups)


class BoundService:
    """Base of the services: what the master does about one subject."""

    def __init__(self, master: MasterContext) -> None:
        self._store = master.store
        self._settings = master.settings
        self._limits = master.settings.limits
        self._clusters = master.clusters
        self._defaults = master.defaults
