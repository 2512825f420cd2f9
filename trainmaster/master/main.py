"""Runs a master: from a configuration to an address that serves requests, and an orderly stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from sqlalchemy import URL, Engine
from sqlalchemy.exc import OperationalError
from starlette.types import ASGIApp

from trainmaster.config.master import Database, MasterConfig
from trainmaster.master.admission.arrivals import Arrivals, FairListener
from trainmaster.master.admission.connections import Connections, raise_descriptors
from trainmaster.master.admission.request_shares import Shares
from trainmaster.master.app import make_app
from trainmaster.master.db import migrate
from trainmaster.master.db.binaries import NoServer
from trainmaster.master.db.embedded import EmbeddedServer, ServerFailed
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.folder_lease import FolderHeld, FolderLease
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, Watchdog, in_short
from trainmaster.master.http.dependencies import ServedMaster
from trainmaster.master.http.stack import stack, wrapped
from trainmaster.master.services.access import bootstrap, identity
from trainmaster.master.services.access.permissions import ROLES
from trainmaster.master.services.addresses import networks
from trainmaster.master.services.context import Settings
from trainmaster.master.services.logs.master_log import RecentLog
from trainmaster.master.services.store import Store, Wakeups
from trainmaster.master.site import BadSite, Site, reload_from, shown, warn_of_strangers
from trainmaster.master.tls import BadCertificate, ServedTls
from trainmaster.runtime.archive import build_runtime_zip
from trainmaster.version import VERSION

log = logging.getLogger(__name__)

INITIAL_PASSWORD = "TRAINMASTER_INITIAL_PASSWORD"  # noqa: S105
# Seconds for which a thread that works on something large may delay the others. A small request takes twenty
# turns: with Python's 5 ms each they would be a tenth of a second. Half a millisecond costs reports a tenth of theirs.
SWITCH = 0.002
GRACEFUL = 5  # seconds that open requests may take when the master stops


class CannotServe(RuntimeError):
    """The master cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class MasterAddress:
    """Data folder, host and port of a master on this machine."""

    data: Path
    host: str
    port: int


def serve(config: MasterConfig, place: MasterAddress, read: Callable[[], MasterConfig]) -> None:
    """Run until SIGINT or SIGTERM. Prints `listening on URL` once requests are answered. SIGHUP reloads the
    configuration through `read` (which may raise ConfigError or OSError). Raises CannotServe."""
    recent = RecentLog()
    logging.getLogger().addHandler(recent)
    _check_account()
    tls = _tls(config)
    listeners = [_bind(place)]
    if config.services_listener is not None:
        listeners.append(_bind(replace(place, port=config.services_listener)))
    url = f"{'https' if tls else 'http'}://{shown(place.host)}:{listeners[0].getsockname()[1]}"
    with _closing(listeners), database(config, place.data) as (engine, presence):
        master, site = make_master(config, place.data, engine, presence, url, tls, recent)
        # uvicorn puts a signal's former handler back and raises the signal again when it is done: without a handler of
        # ours that would end the process before the database is stopped in order.
        signal.signal(signal.SIGTERM, lambda *_: None)
        arrivals = Arrivals(config.limits, networks(config.trusted_proxies))
        for listener in listeners:
            listener.arrivals, listener.says_why = arrivals, tls is None
        connections = Connections(config.limits, raise_descriptors(), arrivals.logged_in)
        app = make_app(engine, master)
        server = _Server(master, url, wrapped(app, stack(config, master, app.state.guard)), connections, tls)

        def reload() -> None:
            reload_from(site, master.store, read, lambda new: set_level(new.log.level))
            if tls is not None:
                tls.reload()

        with _reloading(reload):
            server.run(sockets=list(listeners))
        if tls is not None:
            tls.stop()
        master.clusters.close()


@contextlib.contextmanager
def _closing(listeners: Sequence[socket.socket]) -> Iterator[None]:
    try:
        yield
    finally:
        for listener in listeners:
            listener.close()


@contextlib.contextmanager
def database(config: MasterConfig, data: Path) -> Iterator[tuple[Engine, Watchdog]]:
    """Yield the configured database, or the private one in `data`; at this version's schema. Raises CannotServe."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            url = database_url(config.db) if config.db else _private_database(data, stack)
            presence = Watchdog(url)
            engine = make_engine(url, presence=presence)
            stack.callback(engine.dispose)
            migrate.upgrade(engine)
        except (ServerFailed, NoServer, migrate.SchemaTooNew) as error:
            raise CannotServe(str(error)) from None
        except OperationalError as error:
            reason = str(error.orig).strip().splitlines()[0]
            raise CannotServe(f"The database does not answer: {reason}. Check db: in the configuration.") from None
        presence.start()
        stack.callback(presence.stop)
        yield engine, presence


@contextlib.contextmanager
def store_beside(config: MasterConfig, data: Path) -> Iterator[Store]:
    """Yield the database for a program beside the running master, or alone where none runs. Raises CannotServe."""
    with contextlib.ExitStack() as stack:
        url = database_url(config.db) if config.db else EmbeddedServer(data).url
        presence = Watchdog(url)
        engine = make_engine(url, presence=presence)
        stack.callback(engine.dispose)
        try:
            engine.connect().close()
        except OperationalError:
            engine, presence = stack.enter_context(database(config, data))
        yield Store(engine, presence, config.limits)


def _private_database(data: Path, stack: contextlib.ExitStack) -> str:
    lease = FolderLease(data)
    try:
        lease.acquire()
    except FolderHeld as error:
        raise CannotServe(str(error)) from None
    stack.callback(lease.release)
    server = EmbeddedServer(data)
    stack.callback(server.stop)
    return server.start()


def make_master(
    config: MasterConfig,
    data: Path,
    engine: Engine,
    presence: Watchdog,
    url: str,
    tls: ServedTls | None,
    recent: RecentLog,
) -> tuple[ServedMaster, Site]:
    """Build everything that the API and the controller work with. Raises CannotServe."""
    try:
        return _make_master(config, data, engine, presence, url, tls, recent)
    except DATABASE_UNAVAILABLE as error:
        why = in_short(error)
        raise CannotServe(f"The database went away while the master started: {why}. Start it again.") from None


def _make_master(
    config: MasterConfig,
    data: Path,
    engine: Engine,
    presence: Watchdog,
    url: str,
    tls: ServedTls | None,
    recent: RecentLog,
) -> tuple[ServedMaster, Site]:
    store = Store(engine, presence, config.limits)
    identity_ = bootstrap.prepare(store, _initial_passwords(config, data))
    prefix = f"det-{identity_.cluster_id[:8]}-"
    master_url = config.master_url or url
    try:
        site = Site(config, data, prefix, master_url)
    except BadSite as error:
        raise CannotServe(str(error)) from None
    warn_of_strangers(store, site.clusters)
    settings = Settings(
        version=VERSION,
        cluster_id=identity_.cluster_id,
        cluster_name=config.cluster_name or "",
        secret=identity_.secret,
        token_prefix=prefix,
        master_url=master_url,
        runtime_zip=build_runtime_zip(),
        log_retention_days=config.retention_policy.log_retention_days,
        roles=config.security.authz.type == "rbac",
        roles_shown=config.security.authz.rbac_ui_enabled,
        creators_role=creators_role(config),
        strict_queue=config.security.authz.strict_job_queue_control,
        token_days=config.security.token.default_lifespan_days,
        token_days_at_most=config.security.token.max_lifespan_days,
        longest_poll=config.longest_poll,
        limits=config.limits,
        webhook_key=config.webhooks.signing_key or identity.webhook_key(identity_.secret),
        notebook_timeout=float(config.notebook_timeout or 0),
        tensorboard_timeout=float(config.tensorboard_timeout),
        services_networks=networks(config.services_networks),
        open_services=config.unauthenticated_services,
        webhook_networks=networks(config.webhooks.allow_networks),
        master_anchors=(lambda: tls.anchors) if tls is not None else (lambda: ""),
        launch_error=config.launch_error,
        checkpoint_storage=storage_of(config),
        storage_endpoints=tuple(url.rstrip("/") for url in config.storage_endpoints),
        data=data,
    )
    shares = Shares(config.limits.waiting)
    shown = config.model_dump(mode="json", exclude_none=True)
    made = ServedMaster(
        store,
        settings,
        site.clusters,
        site.defaults,
        Wakeups(),
        config=shown,
        services_url=config.services_url,
        shares=shares,
        recent_log=recent,
    )
    return made, site


def storage_of(config: MasterConfig) -> Mapping[str, Any]:
    """Return the site's checkpoint storage with its credentials, which no experiment is given."""
    section = config.checkpoint_storage
    return section.model_dump(mode="json", exclude_none=True) if section is not None else {}


def creators_role(config: MasterConfig) -> int | None:
    """Return the number of the role that the creator of a workspace gets in it. Raises CannotServe for an invalid
    role."""
    given = config.security.authz.workspace_creator_assign_role
    if not given.enabled:
        return None
    role = ROLES.get(given.role_id)
    if role is None or role.anywhere_only:
        known = ", ".join(f"{role.id} ({role.name})" for role in ROLES.values() if not role.anywhere_only)
        raise CannotServe(
            f"security.authz.workspace_creator_assign_role.role_id: {given.role_id} is no role that can be given in "
            f"one workspace; there are {known}."
        )
    return role.id


def database_url(db: Database) -> str:
    """Return the SQLAlchemy URL of a configured database. Raises CannotServe for an unreadable password file."""
    password = db.password
    if db.password_file is not None:
        try:
            password = Path(db.password_file).read_text().splitlines()[0]
        except (OSError, IndexError) as error:
            raise CannotServe(
                f"db.password_file: {db.password_file} holds no password that can be read: {error}."
            ) from None
    socket_folder = db.host.startswith("/")  # as libpq has it
    query = {
        "sslmode": db.ssl_mode or "",
        "sslrootcert": str(db.ssl_root_cert or ""),
        "host": db.host if socket_folder else "",
    }
    url = URL.create(
        "postgresql+psycopg2",
        db.user,
        password,
        None if socket_folder else db.host,
        db.port,
        db.name,
        {key: value for key, value in query.items() if value},
    )
    return url.render_as_string(hide_password=False)


def _initial_passwords(config: MasterConfig, data: Path) -> dict[str, str]:
    """Return the first users' passwords by their names: one for all, from the environment or the configuration, else
    one for each, generated and left in a file."""
    names = [name for name, _ in identity.FIRST_USERS]
    given = os.environ.get(INITIAL_PASSWORD) or config.security.initial_user_password
    if given:
        return dict.fromkeys(names, given)
    path = data / "initial-password"
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        made = {name: identity.generate_password() for name in names}
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.writelines(f"{name}: {password}\n" for name, password in made.items())
        return made
    passwords = dict(line.split(": ", 1) for line in lines if ": " in line)
    # An earlier version left one password for all.
    return {name: passwords.get(name) or lines[0].strip() for name in names}


def _bind(place: MasterAddress) -> FairListener:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = FairListener(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # asyncio sets this only on sockets that name their protocol. Without it the second packet of an answer waits for
    # the client's delayed acknowledgement of the first: 40 ms a request.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise CannotServe(
            f"The address {place.host}:{place.port} cannot be used: {error.strerror}. Choose another with --port."
        ) from None
    return listener


def _tls(config: MasterConfig) -> ServedTls | None:
    """Return the certificate to serve with, if there is one. Raises CannotServe."""
    if config.security.tls is None:
        return None
    try:
        return ServedTls(config.security.tls)
    except (BadCertificate, OSError) as error:
        raise CannotServe(str(error)) from None


def _check_account() -> None:
    if os.geteuid() == 0:
        log.warning("the master runs as root, and so will its jobs where they run as the master's account")


@contextlib.contextmanager
def _reloading(reload: Callable[[], None]) -> Iterator[None]:
    """Inside the block, SIGHUP calls `reload`, in a thread: it queries the database, while requests are still
    answered."""
    asked, over = threading.Event(), threading.Event()

    def wait() -> None:
        while asked.wait() and not over.is_set():
            asked.clear()
            try:
                reload()
            except Exception:  # the next SIGHUP must find a waiting thread
                log.exception("the configuration could not be reloaded; nothing has changed")

    thread = threading.Thread(target=wait, name="reload", daemon=True)
    thread.start()
    before = signal.signal(signal.SIGHUP, lambda *_: asked.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
        over.set()
        asked.set()
        thread.join()


class _Server(uvicorn.Server):
    """uvicorn, which ends long polls as soon as the master is asked to stop, and reports when it is ready."""

    def __init__(
        self, master: ServedMaster, url: str, app: ASGIApp, connections: Connections, tls: ServedTls | None
    ) -> None:
        certificate, key = tls.files if tls is not None else (None, None)
        super().__init__(
            uvicorn.Config(
                app,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                http=connections.protocol,  # type: ignore[arg-type]
                log_config=None,
                access_log=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=GRACEFUL,
                proxy_headers=False,  # `origins.ProxyHeaders` reads them, from trusted proxies only
                server_header=False,
            )
        )
        self._master, self._url, self._tls = master, url, tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            if self._tls is not None and self.config.ssl is not None:
                self._tls.serve(self.config.ssl)
            _spare_the_collector()
            print(f"listening on {self._url}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._master.wakeups.close()
        self._master.shares.close()
        super().handle_exit(sig, frame)


def _spare_the_collector() -> None:
    """Exclude the objects that exist by now from garbage collection: they live as long as the process, half a million,
    and a full collection over them blocks every thread for 0.2 s."""
    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)  # requests create many objects that are freed at once without it


def configure_logging(level: str) -> None:
    """Configure log lines on stderr: time, level, logger, message."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    set_level(level)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(_was_refused)
    logging.getLogger("uvicorn.error").addFilter(_is_no_mere_stop)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _was_refused(record: logging.LogRecord) -> bool:
    """uvicorn 0.54 logs an error when a WebSocket is refused with a response of its own (ASGI's extension
    `websocket.http.response`), which it has sent by then."""
    return record.msg != "ASGI callable returned without completing handshake."


def _is_no_mere_stop(record: logging.LogRecord) -> bool:
    """uvicorn ends the requests that are open for longer than GRACEFUL when the master stops, as those that wait for a
    database that is away, and logs each as an error, with a traceback. Their clients try again."""
    if str(record.msg).startswith("Cancel %s running task"):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def set_level(level: str) -> None:
    """`log.level` as the configuration writes it."""
    names = {"warn": "warning", "fatal": "critical", "trace": "debug"}
    logging.getLogger().setLevel(names.get(level, level).upper())
