"""`trainmaster doctor`: checks everything that a trial will need, and reports what is wrong and how to fix it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import select, text
from sqlalchemy.exc import SQLAlchemyError

from trainmaster.config.master import MasterConfig
from trainmaster.config.storage import SharedFs
from trainmaster.dispatchers.base import ContainerSpec, DispatcherError, JobSpec
from trainmaster.master import exposure, shared_roots
from trainmaster.master.db import migrate
from trainmaster.master.db.binaries import NoServer, find_binaries
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.tables import User
from trainmaster.master.findings import Finding
from trainmaster.master.main import CannotServe, database_url
from trainmaster.master.services.clusters.clusters import Cluster, namesake
from trainmaster.master.site import BadSite, job_root_of, make_cluster

ACCOUNTS = 3  # of users, that are tried
LOW_DISK = 2 * 1024**3  # bytes


def examine(config: MasterConfig, data: Path, images: Sequence[str], accounts: Sequence[str] = ()) -> int:
    """Print every finding; return 0 when nothing is wrong, else 1. Leaves nothing behind."""
    bad = 0
    for finding in _findings(config, data, images, accounts):
        bad += finding.bad
        mark = "WRONG" if finding.bad else "note " if finding.fix else "ok   "
        print(f"{mark}  {finding.subject}: {finding.text}")
        if finding.fix:
            print(f"       -> {finding.fix}")
    print(f"{bad} problem{'s' if bad != 1 else ''} to fix." if bad else "No problems found.")
    return 1 if bad else 0


def _findings(config: MasterConfig, data: Path, images: Sequence[str], accounts: Sequence[str]) -> Iterator[Finding]:
    yield from _folder(data)
    yield from _database(config, data)
    names: dict[str, str] = {}  # of pools -> their cluster
    for manager in config.managers:
        # Not the master's own job folders: a dispatcher may start what waits there. A batch scheduler's does not, and
        # it checks who may write in them.
        with tempfile.TemporaryDirectory(prefix="trainmaster-doctor-") as elsewhere:
            try:
                root = job_root_of(manager, data) if manager.shared_folder else Path(elsewhere)
                cluster = make_cluster(config, manager, root, "det-doctor00-")
            except BadSite as error:
                yield Finding(f"cluster {manager.cluster_name}", str(error), "Correct the configuration.", bad=True)
                continue
            yield from _cluster(cluster, images, names)
            tried = (accounts or _linked_accounts(config, data)) if cluster.facts.runs_as_users else ()
            yield from shared_roots.findings(config, manager, cluster, job_root_of(manager, data), data, tried)
            cluster.dispatcher.close()
        yield from _shared_folder(cluster, job_root_of(manager, data), shared=manager.shared_folder)
    storage = config.checkpoint_storage
    as_users = any(manager.facts().runs_as_users for manager in config.managers)
    if isinstance(storage, SharedFs) and storage.host_path is not None and not as_users:
        yield from _writable("checkpoint_storage", Path(storage.host_path))
    yield from exposure.findings(config, data)


def _folder(data: Path) -> Iterator[Finding]:
    existing = next(path for path in (data, *data.parents) if path.exists())
    if not os.access(existing, os.W_OK):
        yield Finding("data folder", f"{existing} cannot be written", "Choose another with --data.", bad=True)
        return
    free = shutil.disk_usage(existing).free
    if free < LOW_DISK:
        yield Finding(
            "data folder", f"{existing} has only {free // 2**20} MB free", "Make room, or choose another.", bad=True
        )
    else:
        yield Finding("data folder", f"{data}, {free // 2**30} GB free")


def _database(config: MasterConfig, data: Path) -> Iterator[Finding]:
    if config.db is None:
        try:
            version = data / "pg" / "PG_VERSION"
            binaries = find_binaries(int(version.read_text()) if version.exists() else None)
        except NoServer as error:
            yield Finding("database", str(error), "Install it as the message says.", bad=True)
        else:
            yield Finding("database", f"private PostgreSQL {binaries.major} from {binaries.folder}")
        return
    where = f"{config.db.name} on {config.db.host}:{config.db.port}"
    try:
        engine = make_engine(database_url(config.db))
        with engine.connect() as connection:
            server = connection.execute(text("SHOW server_version")).scalar()
        revision = migrate.current(engine) or "empty"
        engine.dispose()
    except CannotServe as error:
        yield Finding("database", str(error), "Correct db.password_file.", bad=True)
    except Exception as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        yield Finding("database", f"{where} does not answer: {reason}", "Check db: in the configuration.", bad=True)
    else:
        yield Finding("database", f"{where}, PostgreSQL {server}, schema {revision}")


def _linked_accounts(config: MasterConfig, data: Path) -> Sequence[str]:
    """Return some of the accounts that users are linked to; none where the database does not answer."""
    try:
        engine = make_engine(database_url(config.db) if config.db else EmbeddedServer(data).url)
        with engine.connect() as connection:
            accounts = select(User.agent_user).where(User.agent_user.is_not(None), User.active).order_by(User.id)
            return list(dict.fromkeys(filter(None, connection.scalars(accounts))))[:ACCOUNTS]
    except (CannotServe, SQLAlchemyError):
        return ()


def _cluster(cluster: Cluster, images: Sequence[str], names: dict[str, str]) -> Iterator[Finding]:
    """Yield the findings on a cluster; `names` are those of the pools of clusters before it."""
    subject = f"cluster {cluster.name}"
    try:
        answer = cluster.dispatcher.probe()
        pools = cluster.dispatcher.pools()
    except DispatcherError as error:
        yield Finding(subject, str(error), "Trials will wait until it answers.", bad=True)
        return
    accounting = "accounting on" if answer.accounting else "accounting off"
    yield Finding(subject, f"{answer.scheduler} {answer.version}, {accounting}")
    for problem in answer.problems:
        yield Finding(subject, problem.text, problem.fix, bad=problem.fatal)
    if not pools:
        yield Finding(subject, "it has no resource pool", "Check its partitions.", bad=True)
    for pool in pools:
        state = "" if pool.up else ", down"
        default = ", default" if pool.is_default else ""
        slots = f"{pool.slots_total} {pool.slot_type.value} slots on {pool.nodes} nodes, {pool.slots_used} in use"
        name = cluster.pool_prefix + pool.name
        yield Finding(f"pool {name}", f"{slots}{default}{state}")
        if (first := names.setdefault(name, cluster.name)) != cluster.name:
            text = namesake(cluster.name, name, first)
            yield Finding(f"pool {name}", text, "Set pool_prefix for one of them if you want other names.")
        for problem in pool.problems:
            yield Finding(f"pool {name}", problem.text, problem.fix, bad=True)
    if cluster.facts.runs_as_users and (shared := [pool.name for pool in pools if not pool.exclusive]):
        yield Finding(
            subject,
            f"nodes of {', '.join(shared)} run jobs of several users at a time: another account of a node reaches what "
            "a training opens there for its ranks (docs/security.md, what is not promised)",
            "If that matters, have the scheduler give whole nodes to jobs (docs/hardening.md).",
        )
    for image in images:
        yield from _image(cluster, pools[0].name if pools else "", image)


def _image(cluster: Cluster, pool: str, image: str) -> Iterator[Finding]:
    spec = JobSpec(
        token="det-doctor00-check",  # noqa: S106
        allocation_id="doctor",
        pool=pool,
        slots=0,
        slot_type=cluster.dispatcher.pools()[0].slot_type,
        container=ContainerSpec(cluster.container_runtime, image),
    )
    complaints = cluster.dispatcher.check(spec)
    for complaint in complaints:
        yield Finding(f"image {image}", complaint, "Name an image that every node can read.", bad=True)
    if not complaints:
        yield Finding(f"image {image}", f"usable with {cluster.container_runtime}")


def _shared_folder(cluster: Cluster, job_root: Path, *, shared: bool) -> Iterator[Finding]:
    if not cluster.facts.here:
        return  # the cluster must see it; the dispatcher reports its problems
    yield from _writable(f"job folders of {cluster.name}", job_root)
    if shared and str(job_root).startswith(("/tmp/", "/dev/shm/", "/var/tmp/")):  # noqa: S108
        yield Finding(
            f"job folders of {cluster.name}",
            f"{job_root} looks like a node's own disk",
            "Set job_storage_root to a folder that every node sees under the same path.",
        )


def _writable(subject: str, folder: Path) -> Iterator[Finding]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        yield Finding(subject, f"{folder} cannot be written: {error.strerror}", "Mend its permissions.", bad=True)
    else:
        yield Finding(subject, f"{folder} can be written")
