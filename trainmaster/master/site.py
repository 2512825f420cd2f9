"""Applies the administrator's configuration file: clusters and defaults, and their reload on SIGHUP.

A reload is all or nothing: a file that is wrong, or that would leave live jobs without their cluster, changes nothing
and is logged. Loops need no notification either; the controller compares the clusters it runs with those in `Clusters`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainmaster.config.master import MasterConfig, container_settings, task_container_fragments
from trainmaster.config.messages import ConfigError
from trainmaster.config.resource_managers import DispatcherOptions
from trainmaster.dispatchers import sections
from trainmaster.dispatchers.base import Rejected, Setup
from trainmaster.files import replace_file
from trainmaster.master.services.clusters import clusters as clusters_
from trainmaster.master.services.clusters.clusters import Cluster, Clusters, DerivedPool, PoolSettings, namesake
from trainmaster.master.services.context import SiteDefaults
from trainmaster.master.services.store import Store

log = logging.getLogger(__name__)

FIXED = (
    *("port", "host", "data", "db", "security", "cluster_name", "master_url", "webhooks", "trusted_proxies"),
    *("services_url", "services_port", "services_networks", "unauthenticated_services", "launch_error"),
)
"""Keys that are read once, when the master starts."""


class BadSite(RuntimeError):
    """The configuration cannot be applied; the message says why and what to do."""


class Site:
    """The clusters and defaults of one master; the only place that derives them from the configuration."""

    def __init__(self, config: MasterConfig, data: Path, prefix: str, master_url: str) -> None:
        """`prefix`: the beginning of every token of this master. Raises BadSite."""
        self._config, self._data, self._prefix, self._master_url = config, data, prefix, master_url
        self.clusters = Clusters([self._made(config, manager) for manager in config.managers])
        self.defaults = SiteDefaults(
            lambda pool: defaults_of(self._config, self._data, pool), open_services=config.unauthenticated_services
        )

    def reload(self, config: MasterConfig, store: Store) -> list[str]:
        """Apply another configuration; return notes for the administrator. Raises BadSite, and then nothing has
        changed."""
        old = {manager.cluster_name: manager for manager in self._config.managers}
        new = {manager.cluster_name: manager for manager in config.managers}
        live = clusters_.live_jobs(store)
        for name, manager in old.items():
            _check_jobs_keep_their_cluster(name, manager, new.get(name), live.get(name, 0), self._data)
        running = {cluster.name: cluster for cluster in self.clusters}
        made = []
        for name, manager in new.items():
            if old.get(name) == manager and url_of(config, manager) == running[name].master_url:
                same = replace(running[name], derived=_derived(config), settings=pool_settings(config, manager))
                # The same object where nothing has changed: its loop continues.
                made.append(running[name] if same == running[name] else same)
            else:
                made.append(self._made(config, manager))
        notes = [
            f"{key}: the change takes effect when the master is started again."
            for key in FIXED
            if getattr(config, key) != getattr(self._config, key)
        ]
        self._config = config
        self.clusters.replace(made)
        return notes

    def _made(self, config: MasterConfig, manager: DispatcherOptions) -> Cluster:
        cluster = make_cluster(config, manager, job_root_of(manager, self._data), self._prefix)
        _announce(cluster, cluster.master_url or self._master_url)
        return cluster


def reload_from(
    site: Site, store: Store, read: Callable[[], MasterConfig], describe: Callable[[MasterConfig], None]
) -> None:
    """Read the file again and take it over, or say in the log what is wrong with it. `describe` gets a configuration
    that was taken over."""
    try:
        config = read()
        notes = site.reload(config, store)
    except ConfigError as error:
        for complaint in error.complaints:
            log.error("%s", complaint)
        log.error("the configuration was not reloaded: nothing has changed")
    except (BadSite, OSError, UnicodeDecodeError) as error:
        log.error("the configuration was not reloaded, nothing has changed: %s", error)
    else:
        for note in (*config.warnings, *notes):
            log.warning("%s", note)
        describe(config)
        log.info("the configuration was reloaded: %s", ", ".join(c.name for c in site.clusters))


def dry_run(config: MasterConfig) -> list[str]:
    """Create every cluster without contacting it; return a description of the configuration, line by line. Raises
    BadSite."""
    lines = []
    for manager in config.managers:
        # Not the real job folders: a dispatcher may start what waits there.
        with tempfile.TemporaryDirectory(prefix="trainmaster-check-") as elsewhere:
            cluster = make_cluster(config, manager, Path(elsewhere), "det-check000-")
            cluster.dispatcher.close()
        defaults = [
            f"{what} pool {name}"
            for what, name in (("default", cluster.default_compute), ("zero-slot", cluster.default_aux))
            if name
        ]
        runtime = (
            f"containers by {cluster.container_runtime}" if cluster.container_runtime != "none" else "no containers"
        )
        lines.append(f"cluster {cluster.name}: {', '.join([manager.type, runtime, *defaults])}")
    lines += [
        f"pool {pool.pool_name}: {f'partition {pool.provider.partition}' if pool.provider else 'hosts with agents'}"
        + ("" if pool.task_container_defaults is None else ", with defaults of its own")
        for pool in config.resource_pools
    ]
    lines += _shared_names(config)
    return [*lines, "The configuration is right. `trainmaster doctor` also asks the clusters."]


def _shared_names(config: MasterConfig) -> Iterator[str]:
    """Yield what the configuration alone shows of pools that two clusters have under one name."""
    first: dict[str, str] = {}
    for manager in config.managers:
        for name in manager.pool_names():
            called = manager.pool_prefix + name
            if called in first:
                yield namesake(manager.cluster_name, called, first[called])
            first.setdefault(called, manager.cluster_name)


def warn_of_strangers(store: Store, clusters: Clusters) -> None:
    """Warn of live jobs whose cluster the configuration does not name: they would wait silently for ever."""
    known = {cluster.name for cluster in clusters}
    for name, count in clusters_.live_jobs(store).items():
        if name not in known:
            log.warning(
                "%d live jobs belong to the resource manager %r, which the configuration does not name: they stay as "
                "they are until it does again",
                count,
                name,
            )


def job_root_of(manager: DispatcherOptions, data: Path) -> Path:
    """Where the job folders of a resource manager lie."""
    return Path(manager.job_storage_root or data / "jobs" / manager.cluster_name)


def make_cluster(config: MasterConfig, manager: DispatcherOptions, root: Path, prefix: str) -> Cluster:
    """Create one configured resource manager with its job folders in `root`. Raises BadSite."""
    setup = Setup(name=manager.cluster_name, prefix=prefix, job_root=root, options=manager.settings())
    facts = manager.facts()
    try:
        if facts.here:
            root.mkdir(parents=True, exist_ok=True)
        dispatcher = sections.make(manager.type, setup)
    except Rejected as error:
        raise BadSite(str(error)) from None
    except OSError as error:
        raise BadSite(f"job_storage_root: {root} cannot be made: {error.strerror}.") from None
    return Cluster(
        name=manager.cluster_name,
        dispatcher=dispatcher,
        job_root=root,
        master_url=url_of(config, manager),
        container_runtime=manager.container_run_type,
        node_data=manager.node_data or "",
        node_data_limit=manager.node_data_limit,
        derived=_derived(config),
        pool_prefix=manager.pool_prefix,
        default_compute=manager.default_compute_resource_pool,
        default_aux=manager.default_aux_resource_pool,
        facts=facts,
        settings=pool_settings(config, manager),
    )


def defaults_of(config: MasterConfig, data: Path, pool: str) -> Sequence[Mapping[str, Any]]:
    """Return the configuration's defaults for experiments of a pool; checkpoints go below the data folder unless it
    names a place."""
    fallback: list[dict[str, Any]] = []
    if config.checkpoint_storage is None or config.checkpoint_storage.kind is None:
        (data / "checkpoints").mkdir(mode=0o700, exist_ok=True)
        fallback = [{"checkpoint_storage": {"type": "shared_fs", "host_path": str(data / "checkpoints")}}]
    return [*task_container_fragments(config, pool), *fallback]


def pool_settings(config: MasterConfig, manager: DispatcherOptions) -> dict[str, PoolSettings]:
    """Return settings of every pool that the configuration names, in lower case, and under "" for all others."""
    partitions = {pool.pool_name: pool.provider.partition for pool in config.resource_pools if pool.provider}
    settings = {}
    for name in ("", *partitions, *manager.pool_names()):
        container = container_settings(config, name, manager.cluster_name)
        settings[name.lower()] = PoolSettings(
            {**container.variables(), **manager.pool_environment(partitions.get(name, name))},
            tuple(container.startup_hooks),
            container.work_dir,
            network_mode=container.network_mode,
            shm_size=container.shm_size_bytes,
        )
    return settings


def _check_jobs_keep_their_cluster(
    name: str, old: DispatcherOptions, new: DispatcherOptions | None, live: int, data: Path
) -> None:
    if not live:
        return
    jobs = f"{live} live job{'s' if live != 1 else ''}"
    if new is None:
        raise BadSite(
            f"The resource manager {name!r} has {jobs} and is no longer named. Let them end or kill them before it is "
            "taken out."
        )
    if new.type != old.type:
        raise BadSite(f"The type of the resource manager {name!r} cannot change while it has {jobs}.")
    if job_root_of(new, data) != job_root_of(old, data):
        raise BadSite(f"The job_storage_root of the resource manager {name!r} cannot change while it has {jobs}.")


def _derived(config: MasterConfig) -> list[DerivedPool]:
    return [
        DerivedPool(pool.pool_name, pool.provider.partition, pool.description)
        for pool in config.resource_pools
        if pool.provider is not None
    ]


def url_of(config: MasterConfig, manager: DispatcherOptions) -> str:
    """Return the address that a cluster's `master_host` and `master_port` give its jobs; empty when it has none."""
    host = manager.master_host
    scheme = "https" if config.security.tls is not None else "http"
    return f"{scheme}://{shown(host)}:{manager.master_port or config.port}" if host else ""


def shown(host: str) -> str:
    """Return a host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host


def _announce(cluster: Cluster, url: str) -> None:
    """Write our address to the file that jobs read when they cannot reach the one they know."""
    if not cluster.facts.here:
        return
    path = cluster.master_url_file
    # A folder of several users' jobs is like /tmp: a name that can be guessed may be taken.
    try:
        owner = replace_file(path, f"{url}\n", 0o644).st_uid
    except PermissionError:
        log.warning(
            "jobs on %s are not told where the master is when it moves: %s belongs to somebody else; remove it and "
            "start the master again",
            cluster.name,
            path,
        )
    except OSError as error:  # such as a full disk: jobs still know the address that they were given
        log.warning("jobs on %s are not told where the master is when it moves: %s", cluster.name, error)
    else:
        cluster.announcement.note(owner)
