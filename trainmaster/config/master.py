"""The master configuration: `master.yaml`.

`parse_master` reads it, `task_container_fragments` gives what it adds to the experiments of a pool. Keys are
Determined's where it has them; those of its keys that mean nothing here are read, and named in `warnings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from trainmaster.config.limits import Limits
from trainmaster.config.messages import Complaint, ConfigError
from trainmaster.config.networks import Network, ServicesUrl
from trainmaster.config.resource_managers import AgentPool, DispatcherOptions, ResourceManager, default_manager
from trainmaster.config.shapes import AbsolutePath, Line, Name, Natural, Port, Section, Whole, wrong
from trainmaster.config.source import Document, read
from trainmaster.config.storage import Address, CheckpointStorage, incomplete, without_credentials
from trainmaster.config.task_container import BUILT_IN, ContainerSettings, TaskContainerDefaults
from trainmaster.config.validation import check, in_order


class Database(Section):
    """An existing PostgreSQL; without this section the master runs its own."""

    host: Name
    port: Port = 5432
    user: Name
    password: Line | None = None
    password_file: AbsolutePath | None = None
    """A file whose first line is the password."""
    name: Name
    ssl_mode: Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"] | None = None
    ssl_root_cert: AbsolutePath | None = None

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise wrong("cannot be set together with password; keep one", "password_file")
        return self


class Tls(Section):
    """Certificate and key of the master's own port, which then speaks TLS alone."""

    cert: AbsolutePath
    """The master's certificate and those that vouch for it, in PEM, the master's first."""
    key: AbsolutePath
    ca: AbsolutePath | None = None
    """What jobs and agents are to trust (PEM); None: what in `cert` vouches for itself, or else what every system
    trusts."""


class CreatorsRole(Section):
    """The role that the creator of a workspace gets in it, where roles are used; 2 is WorkspaceAdmin."""

    enabled: bool = True
    role_id: Whole = 2


class Authz(Section):
    """Who may do what: roles (`rbac`), or owners and administrators (`basic`)."""

    ignored: ClassVar[frozenset[str]] = frozenset({"fallback", "_strict_ntsc_enabled"})

    type: Literal["basic", "rbac"] = "basic"
    workspace_creator_assign_role: CreatorsRole = CreatorsRole()
    rbac_ui_enabled: bool | None = None
    """Whether clients show user groups and roles. None: where roles are used."""
    strict_job_queue_control: bool = False
    """Where roles are used, only ClusterAdmin changes priorities and weights of jobs that wait."""


class Token(Section):
    """How many days access tokens live; -1 for ever."""

    default_lifespan_days: Annotated[Whole, Field(ge=-1, le=36500)] = 30
    max_lifespan_days: Annotated[Whole, Field(ge=-1, le=36500)] = 365

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        usual, most = self.default_lifespan_days, self.max_lifespan_days
        if most != -1 and (usual == -1 or usual > most):
            raise wrong(f"must be at most max_lifespan_days ({most})", "default_lifespan_days")
        return self


class Security(Section):
    """The `security` section."""

    superfluous: ClassVar[tuple[str, ...]] = ("default_task", "ssh", "rsa_key_size", "key")
    ignored: ClassVar[frozenset[str]] = frozenset(superfluous)

    initial_user_password: Line | None = None
    """Password of the first users `admin` and `determined`; generated when it is not set."""
    tls: Tls | None = None
    authz: Authz = Authz()
    token: Token = Token()


class LogSettings(Section):
    """What the master's own log shows."""

    level: Literal["trace", "debug", "info", "warn", "warning", "error", "fatal"] = "info"
    color: bool = True


class Provider(Section):
    """What a pool of the administrator's making stands on."""

    type: Literal["hpc"]
    partition: Name


class ResourcePool(AgentPool):
    """A pool that is a partition under another name, with defaults of its own; or one of Docker hosts."""

    ignored: ClassVar[frozenset[str]] = AgentPool.ignored - {"provider"}

    provider: Provider | None = None
    """None: a pool of Docker hosts."""


class WebhookSettings(Section):
    """What messages to webhooks are signed with, and which addresses they may go to."""

    ignored: ClassVar[frozenset[str]] = frozenset({"base_url"})

    signing_key: Line | None = None
    """None: a key that the master derives from its own secret."""
    allow_networks: list[Network] = Field(default_factory=list)
    """Networks inside the site that webhooks may reach; the internet's addresses need no leave."""


class RetentionSettings(Section):
    """How long task logs stay when an experiment does not say it: days, -1 for ever."""

    log_retention_days: Annotated[Whole, Field(ge=-1, le=32767)] | None = None
    schedule: Line | None = None


_SUPERFLUOUS = (
    "telemetry",
    "logging",
    "observability",
    "enable_cors",
    "cache",
    "saml",
    "oidc",
    "scim",
    "root",
    "hpimportance",
    "ui_customization",
    "integrations",
    "reserved_ports",
    "config_file",
    "__internal",
)


TLS_PORT = 8443  # Determined's default too


class MasterConfig(Section):
    """A whole master configuration."""

    ignored: ClassVar[frozenset[str]] = frozenset(_SUPERFLUOUS)
    _warnings: list[str] = PrivateAttr(default_factory=list)

    port: Annotated[Whole, Field(ge=0, le=65535)] = 8080
    """0 takes any free port. With TLS the default is 8443."""
    host: Name = "127.0.0.1"
    cluster_name: Line = ""
    db: Database | None = None
    """None: the master runs its own PostgreSQL in `data`."""
    data: AbsolutePath | None = None
    """The master's folder; None leaves the choice to the command line."""
    master_url: Line | None = None
    """How jobs reach the master; None: derived from host and port."""
    longest_poll: float = Field(default=300.0, ge=1, le=3600)
    """Seconds that a request may stay open without an answer; less than proxies on the way allow."""
    launch_error: bool = True
    """Whether a request for more slots than its pool has is refused; false: it waits, and its user is warned."""
    limits: Limits = Limits()
    resource_manager: ResourceManager = Field(default_factory=default_manager)
    additional_resource_managers: list[ResourceManager] = Field(default_factory=list)
    resource_pools: list[ResourcePool] = Field(default_factory=list)
    task_container_defaults: TaskContainerDefaults = TaskContainerDefaults()
    checkpoint_storage: CheckpointStorage | None = None
    storage_endpoints: list[Address] = Field(default_factory=list)
    """Object stores inside the site that experiments may name with keys of their own."""
    security: Security = Security()
    log: LogSettings = LogSettings()
    retention_policy: RetentionSettings = RetentionSettings()
    webhooks: WebhookSettings = WebhookSettings()
    feature_switches: list[Line] = Field(default_factory=list)
    """Shown to clients; none of Determined's switches changes anything here."""
    trusted_proxies: list[Network] = Field(default_factory=list)
    """Reverse proxies in front of the master: `X-Forwarded-*` counts in requests from these only."""
    services_url: ServicesUrl | None = None
    """Where browsers find the services in jobs: a host name or a port of their own; None: on the master's own, under a
    sandbox policy."""
    services_port: Port | None = None
    """A second port of the master that serves `/proxy` only; None: the one in `services_url`, where it names one."""
    services_networks: list[Network] = Field(default_factory=list)
    """Networks of compute nodes: a job may announce any address in them, not only those that it speaks from."""
    unauthenticated_services: bool = False
    """Whether `unauthenticated: true` in `proxy_ports` opens a service to everybody, without a log-in."""
    notebook_timeout: Natural | None = None
    """Seconds without use after which notebooks end that do not say it themselves; None or 0: they stay."""
    tensorboard_timeout: Natural = 300
    """The same for TensorBoards."""

    @model_validator(mode="after")
    def _secure_everywhere(self) -> Self:
        if self.security.tls is None:
            return self
        if self.master_url is not None and not self.master_url.lower().startswith("https://"):
            raise wrong("must begin with https:// where security.tls is set", "master_url")
        if "port" not in self.model_fields_set:
            self.__dict__["port"] = TLS_PORT  # the model is frozen for everybody else
        return self

    @property
    def warnings(self) -> list[str]:
        """What was read and does nothing, in sentences with file and line."""
        return list(self._warnings)

    @property
    def managers(self) -> list[DispatcherOptions]:
        """All resource managers, the main one first."""
        return [self.resource_manager, *self.additional_resource_managers]

    @property
    def services_listener(self) -> int | None:
        """The port of the second listener, where there is one."""
        if self.services_port is not None or self.services_url is None:
            return self.services_port
        return self.services_url.own_port("https" if self.security.tls else "http", self.port)

    @model_validator(mode="after")
    def _services_apart(self) -> Self:
        if self.services_port is not None and self.services_url is None:
            raise wrong("needs services_url, which tells browsers where that is", "services_port")
        if self.services_port is not None and self.services_port == self.port:
            raise wrong("must be another port than the master's own", "services_port")
        return self

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [manager.cluster_name for manager in self.managers]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise wrong(
                    f"there is another resource manager called {name!r}; give each its own name",
                    *("additional_resource_managers", i - 1, "cluster_name"),
                )
        pools = [pool.pool_name for pool in self.resource_pools]
        for i, name in enumerate(pools):
            if name in pools[:i]:
                raise wrong(f"there is another pool called {name!r}", "resource_pools", i, "pool_name")
        return self

    @model_validator(mode="after")
    def _hand_out_pools(self) -> Self:
        """As in Determined's file, the pools of hosts with agents may stand beside their manager: the first takes
        them."""
        pools = [(i, pool) for i, pool in enumerate(self.resource_pools) if pool.provider is None]
        if not pools:
            return self
        taker = next((manager for manager in self.managers if manager.takes_pools), None)
        if taker is None:
            raise wrong(
                "is required: {type: hpc, partition: NAME}; only Docker hosts (resource_manager.type docker) have "
                "pools without it",
                *("resource_pools", pools[0][0], "provider"),
            )
        own = taker.pool_names()
        for i, pool in pools:
            if pool.pool_name in own:
                raise wrong(f"there is another pool called {pool.pool_name!r}", "resource_pools", i, "pool_name")
        given = [
            AgentPool.model_validate(pool.model_dump(exclude={"provider"}, exclude_unset=True)) for _, pool in pools
        ]
        full = taker.with_pools(given)
        # The model is frozen for everybody else.
        if self.resource_manager is taker:
            self.__dict__["resource_manager"] = full
        others = [full if manager is taker else manager for manager in self.additional_resource_managers]
        self.__dict__["additional_resource_managers"] = others
        return self


def parse_master(text: str, *, source: str = "master.yaml") -> MasterConfig:
    """Parse the complete master configuration.

    Args:
        text: YAML; an empty text gives a master with its own database and the `local` dispatcher.
        source: what the text is called in complaints, as a rule its file name.

    Raises:
        ConfigError: with everything that is wrong, in the order of the file.
    """
    document = read(text, source)
    config, complaints = check(MasterConfig, document.data, document)
    if config is None:
        raise ConfigError(complaints, source)
    if config.checkpoint_storage is not None:
        lacks = incomplete(config.checkpoint_storage.model_dump())
        if missing := [document.complain(("checkpoint_storage", *key), message) for key, message in lacks]:
            raise ConfigError(missing, source)
    config._warnings.extend(map(str, in_order(_superfluous(document, config))))
    return config


def _superfluous(document: Document, config: MasterConfig) -> Iterator[Complaint]:
    nothing = "means nothing here; remove it"
    for key in _SUPERFLUOUS:
        if document.data.get(key) is not None:
            yield document.complain((key,), nothing)
    security = document.data.get("security") or {}
    for key in Security.superfluous:
        if security.get(key) is not None:
            yield document.complain(("security", key), nothing)
    sections = [
        (("resource_manager",), document.data.get("resource_manager")),
        *(
            (("additional_resource_managers", i), section)
            for i, section in enumerate(document.data.get("additional_resource_managers") or ())
        ),
    ]
    for (path, section), manager in zip(sections, config.managers, strict=True):
        for key, why in manager.superfluous.items():
            if (section or {}).get(key) is not None:
                yield document.complain((*path, key), f"does nothing: {why}")
        for key, note in manager.notes():
            yield document.complain((*path, key), note)


# -- what it adds to experiments


def task_container_fragments(config: MasterConfig, pool: str, manager: str | None = None) -> list[dict[str, Any]]:
    """Partial experiment configurations for `parse_experiment`'s `defaults`, the most important first.

    The pool's own section, its partition's, the master's, the master's checkpoint storage, and what holds when
    nobody says anything. A section undoes only what it names.

    Args:
        pool: name of the pool; one that the configuration does not name gets what holds everywhere.
        manager: the cluster that serves the pool, for partitions that several clusters have.
    """
    sections = [section.fragment() for section in _sections(config, pool, manager)]
    storage: dict[str, Any] = {}
    if config.checkpoint_storage is not None:
        section = config.checkpoint_storage.model_dump(mode="json", exclude_unset=True)
        storage = {"checkpoint_storage": without_credentials(section)}
    return [fragment for fragment in (*sections, storage, BUILT_IN) if fragment]


def container_settings(config: MasterConfig, pool: str, manager: str | None = None) -> ContainerSettings:
    """Return what holds for the containers of a pool beside the experiment's configuration."""
    return ContainerSettings.of(_sections(config, pool, manager))


def _sections(config: MasterConfig, pool: str, manager: str | None) -> Iterator[TaskContainerDefaults]:
    """Return the sections that concern a pool, the most important first."""
    for candidate in config.managers:
        # As `Clusters.pools` names them.
        for prefix in filter(None, (candidate.pool_prefix, f"{candidate.cluster_name}.")):
            if pool.startswith(prefix):
                manager, pool = manager or candidate.cluster_name, pool.removeprefix(prefix)
                break
    partition = pool
    for derived in config.resource_pools:
        if derived.pool_name == pool and derived.provider is not None:
            partition = derived.provider.partition
            if derived.task_container_defaults is not None:
                yield derived.task_container_defaults
    for candidate in config.managers:
        if manager in (None, candidate.cluster_name):
            defaults = candidate.pool_defaults(pool if candidate.takes_pools else partition)
            if defaults is not None:
                yield defaults
    yield config.task_container_defaults
