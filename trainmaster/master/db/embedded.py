"""The private PostgreSQL server in the master's data folder.

It uses no TCP and no passwords: a Unix socket in a folder that only its owner can enter, and peer authentication, so
that the kernel verifies who connects. PostgreSQL refuses to run as root; a root master lets it run as an ordinary
account and maps root to the database's owner. The server asks the kernel to be stopped when the master dies (fast
shutdown), so that nothing is left behind on a login node; the next start recovers what was committed.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import pwd
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from trainmaster.master.db.binaries import Binaries, find_binaries

DATABASE = "trainmaster"
ROLE = "trainmaster"
SOCKET_PATH_LIMIT = 107  # sun_path less its NUL; PostgreSQL appends "/.s.PGSQL.5432.lock"
START_DEADLINE = 60.0  # seconds, recovery after a crash included
STOP_DEADLINE = 30.0
_PR_SET_PDEATHSIG = 1

SETTINGS = {
    "listen_addresses": "''",
    "unix_socket_permissions": "0700",
    "max_connections": "120",
    "shared_buffers": "'128MB'",
    "work_mem": "'16MB'",
    "max_wal_size": "'1GB'",
    "random_page_cost": "1.1",
    # A search fills empty tables within seconds; until ANALYZE runs, the planner assumes they hold a few rows.
    "autovacuum_naptime": "'10s'",
    "jit": "off",  # short statements only: compiling them costs more than it saves
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",  # a failed statement may contain what users sent, passwords and tokens included
    "log_destination": "stderr",
    "logging_collector": "off",
    "timezone": "'UTC'",
}


class ServerFailed(RuntimeError):
    """The private server cannot be set up or does not start; the message says why and where its log is."""


class EmbeddedServer:
    """A PostgreSQL of our own below `folder`/pg. `start` and `stop` are called from one thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.data = self.folder / "pg"
        self.log = self.folder / "postgresql.log"
        self._account = _server_account(self.folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def sockets(self) -> Path:
        """The socket folder: its path is short for any data folder, and the same after a restart."""
        mark = hashlib.sha256(str(self.data).encode()).hexdigest()[:10]
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        base = (
            Path(runtime) if self._account is None and os.path.isdir(runtime) and os.access(runtime, os.W_OK) else None
        )
        path = (base or Path(tempfile.gettempdir())) / f"trainmaster-{os.getuid()}-{mark}"
        return path if len(str(path)) <= SOCKET_PATH_LIMIT - 20 else Path("/tmp") / path.name  # noqa: S108

    @property
    def url(self) -> str:
        return f"postgresql+psycopg2://{ROLE}@/{DATABASE}?host={quote(str(self.sockets), safe='')}"

    def start(self) -> str:
        """Create the cluster if there is none, start the server, create the database. Returns the SQLAlchemy URL."""
        version = self.data / "PG_VERSION"
        binaries = find_binaries(int(version.read_text()) if version.exists() else None)
        self._check_access(binaries)
        if not version.exists():
            self._initdb(binaries)
        self._wait_for_predecessor()
        self._make_socket_folder()
        self._write_configuration()
        self._launch(binaries)
        self._create_database()
        self._watcher = threading.Thread(target=self._watch, args=(binaries,), name="postgres-watch", daemon=True)
        self._watcher.start()
        return self.url

    def stop(self) -> None:
        self._stopping.set()
        process = self._process
        if process and process.poll() is None:
            process.send_signal(signal.SIGINT)  # fast shutdown
            try:
                process.wait(STOP_DEADLINE)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()
        if self._watcher:
            self._watcher.join()
        with contextlib.suppress(OSError):
            self.sockets.rmdir()

    # -- setting up -----------------------------------------------------------------------------------------------

    def _check_access(self, binaries: Binaries) -> None:
        if self._account is None:
            return
        self.folder.chmod(0o711)  # the server's account must be able to walk through
        self.data.mkdir(mode=0o700, exist_ok=True)
        os.chown(self.data, self._account.pw_uid, self._account.pw_gid)
        for path in (self.data, binaries.folder / "postgres"):
            probe = ["test", "-x", str(path)]
            if subprocess.run(probe, preexec_fn=self._become, check=False).returncode != 0:
                raise ServerFailed(
                    f"PostgreSQL does not run as root, and the account {self._account.pw_name!r}, which would run it, "
                    f"cannot reach {path}. Choose a data folder outside private folders with --data, or start the "
                    "master as an ordinary user."
                )

    def _initdb(self, binaries: Binaries) -> None:
        self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [binaries.program("initdb"), "-D", str(self.data), "-U", ROLE, "--auth=peer", "--encoding=UTF8"]
        command += ["--no-locale", "--data-checksums", "--no-instructions"]
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), cwd="/", preexec_fn=self._become, check=False
        )
        if done.returncode != 0:
            raise ServerFailed(f"initdb could not create the database in {self.data}: {done.stderr.strip()}")

    def _make_socket_folder(self) -> None:
        path = self.sockets
        owner = self._account.pw_uid if self._account else os.getuid()
        try:
            path.mkdir(mode=0o700)
            if self._account:
                os.chown(path, owner, self._account.pw_gid)
        except FileExistsError:
            status = path.lstat()
            # In a shared /tmp another user could have created it first, and would read what we send.
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
                raise ServerFailed(f"{path} exists and is not the master's; remove it and start again.") from None
            path.chmod(0o700)

    def _write_configuration(self) -> None:
        settings = {**SETTINGS, "unix_socket_directories": f"'{self.sockets}'"}
        text = "".join(f"{key} = {value}\n" for key, value in settings.items())
        accounts = {pwd.getpwuid(os.getuid()).pw_name, (self._account or pwd.getpwuid(os.getuid())).pw_name}
        self._write("trainmaster.conf", text)
        self._write("pg_hba.conf", "local all all peer map=master\n")
        self._write("pg_ident.conf", "".join(f"master {name} {ROLE}\n" for name in sorted(accounts)))
        main = (self.data / "postgresql.conf").read_text()
        include = "include 'trainmaster.conf'\n"
        if include not in main:
            self._write("postgresql.conf", main + "\n" + include)

    def _write(self, name: str, text: str) -> None:
        path = self.data / name
        path.write_text(text)
        path.chmod(0o600)
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    # -- running --------------------------------------------------------------------------------------------------

    def _wait_for_predecessor(self) -> None:
        """Wait: a server whose master was killed is shutting down; the folder is ours once it has gone."""
        deadline = time.monotonic() + STOP_DEADLINE
        while (pid := self._running_pid()) is not None:
            if time.monotonic() > deadline:
                raise ServerFailed(f"A PostgreSQL server (process {pid}) still runs in {self.data} and does not stop.")
            time.sleep(0.05)

    def _running_pid(self) -> int | None:
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
            program = os.readlink(f"/proc/{pid}/exe")
        except (OSError, ValueError, IndexError):
            return None
        return pid if "postgres" in os.path.basename(program) else None

    def _launch(self, binaries: Binaries) -> None:
        with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab") as log:
            os.fchmod(log.fileno(), 0o600)  # created by an earlier version
            self._process = subprocess.Popen(
                [binaries.program("postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                cwd="/",
                start_new_session=True,  # a Ctrl-C for the master is not one for the database
                preexec_fn=self._prepare_child,
            )
        deadline = time.monotonic() + START_DEADLINE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace").strip().splitlines()[-3:]
                raise ServerFailed(f"PostgreSQL did not start in {self.data} (log: {self.log}): {' | '.join(tail)}")
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        own_pid = self._process is not None and lines[:1] == [str(self._process.pid)]
        return own_pid and len(lines) >= 8 and lines[7].strip() == "ready"

    def _create_database(self) -> None:
        import psycopg2

        connection = psycopg2.connect(host=str(self.sockets), user=ROLE, dbname="postgres")
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if not cursor.fetchone():
                    cursor.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            connection.close()

    def _watch(self, binaries: Binaries) -> None:
        """Restart the server if it dies while the master lives."""
        while not self._stopping.wait(0.5):
            if self._process and self._process.poll() is not None and not self._stopping.is_set():
                try:
                    self._launch(binaries)
                except ServerFailed:
                    self._stopping.wait(5)

    # -- in the child, before exec --------------------------------------------------------------------------------

    @property
    def _become(self) -> Callable[[], None] | None:
        account = self._account
        if account is None:
            return None

        def drop() -> None:
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

        return drop

    def _prepare_child(self) -> None:
        if self._become:
            self._become()
        # After the change of identity, which would clear it again (prctl(2)).
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT))
        os.umask(0o077)


def _server_account(folder: Path) -> pwd.struct_passwd | None:
    """Who runs the server: None for ourselves; for root the folder's ordinary owner, else `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    existing = folder / "pg"
    if existing.exists() and (owner := existing.stat().st_uid) != 0:
        try:
            return pwd.getpwuid(owner)
        except KeyError:
            raise ServerFailed(
                f"{existing} belongs to user {owner}, who does not exist on this machine; change its owner to "
                "an account that exists."
            ) from None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ServerFailed(
        "PostgreSQL does not run as root and there is neither a 'postgres' nor a 'nobody' account to run it as."
    )


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LD_LIBRARY_PATH", "HOME", "TZ")}
    return {**kept, "LC_ALL": "C"}
