"""What the chaos ring spoils: masters behind a proxy, on a PostgreSQL that may be stopped, and their jobs."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psycopg2
import psycopg2.extras

import trainmaster
from tests.support.chaos import workload
from tests.support.chaos.connections import Proxy
from tests.support.master import MasterProcess, files, make_folder, remove_folder
from tests.support.postgres import Postgres
from trainmaster.client.errors import ClientError
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport
from trainmaster.master.db.engine import Leadership

T = TypeVar("T")
USER = "tmalice"  # whose jobs they are
PATIENCE = 120.0  # seconds for something that must come when a fault is over
RUNTIME = "zipimport; path = sys.path[0]"  # in the command that starts a runtime
LEADER = f"""
    SELECT usename FROM pg_stat_activity JOIN pg_locks USING (pid)
    WHERE locktype = 'advisory' AND granted AND objid = {Leadership.KEY}
"""


class Stopped(Exception):
    """The run is over: faults undo themselves and end."""


@dataclass(frozen=True)
class JobProcess:
    """A process of a job: the runtime, or a rank of the training."""

    pid: int
    command: tuple[str, ...]
    allocation: str

    @property
    def is_rank(self) -> bool:
        return self.command[-1] == "train.py" and "python" in self.command[0]

    @property
    def is_runtime(self) -> bool:
        return "python" in self.command[0] and any(RUNTIME in word for word in self.command)


class Site(ABC):
    """Masters with what they stand on. Subclasses add the cluster."""

    where = ""
    checkpoints: Path  # the folder that trials save into
    user: str | None = None  # who runs the masters; None: root

    def __init__(self, folder: Path, masters: int) -> None:
        self.folder = folder
        self.over = threading.Event()
        self.killed_ranks: dict[str, float] = {}  # allocation -> when
        self.cancelled: set[str] = set()  # allocations whose jobs a person has removed
        self._transports: list[Transport] = []
        self._clock = folder / "clock"
        self._clock.mkdir(mode=0o755)
        self.set_clock(0)
        library, source = self._clock / "clock.so", Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
        (folder / "database").mkdir()
        self.postgres = Postgres(folder / "database")
        self.postgres.start()
        self.masters: list[MasterProcess] = []
        names = [f"master{number}" for number in range(1, masters + 1)]
        source = self._source()  # type: ignore[assignment]
        for name in names:
            (folder / name).mkdir()
            environment = {**({"PYTHONPATH": str(source)} if source else {}), **self.environment}
            master = MasterProcess(folder / name, user=self.user, environment=environment)
            master.password = self.masters[0].password if self.masters else master.password
            self.masters.append(master)
        self.proxy = Proxy([master.port for master in self.masters]).start()
        for master in self.masters:
            # A role for each: so it is known whose a connection is.
            role, password = master.folder.name, self.postgres.password_file.read_text().strip()
            self._rows(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{password}'; SELECT 1 AS made", {})
            database = self.postgres.configuration().replace("user: trainmaster", f"user: {role}")
            master.config.write_text(f"master_url: {self.proxy.url}\n{database}{self.configuration()}")

    # -- what a cluster says --------------------------------------------------------------------------

    @property
    def environment(self) -> Mapping[str, str]:
        """Of the masters."""
        return {}

    @abstractmethod
    def configuration(self) -> str:
        """The resource manager and the storage of checkpoints."""

    @abstractmethod
    def keys(self) -> dict[str, Any]:
        """What an experiment needs beside the workload."""

    @abstractmethod
    def calm(self) -> None:
        """What its administrators look after when the faults are over."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """What still lies about of jobs, in words. All trials have ended."""

    def complaints(self) -> list[str]:
        """What the logs of our own programs call an error: bugs show there."""
        return [f"{master.folder.name}'s log: {line}" for master in self.masters for line in master.errors()]

    # -- life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        for master in self.masters:
            master.start()

    def close(self) -> None:
        for master in self.masters:
            with contextlib.suppress(ProcessLookupError):
                os.kill(master.pid, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                master.stop()
        for transport in self._transports:
            transport.close()
        self.proxy.stop()
        self.postgres.stop()

    def hold(self, seconds: float) -> float:
        """Wait while a fault is there; raises Stopped when the run is aborted."""
        if self.over.wait(seconds):
            raise Stopped
        return seconds

    def start_again(self, master: MasterProcess) -> None:
        """As a service manager does: until it stays up."""

        def started() -> bool:
            try:
                master.start()
            except AssertionError:  # its database is away
                return False
            return True

        self.eventually(started, f"{master.folder.name} to start", every=1.0)

    def eventually(self, look: Callable[[], T], what: str, seconds: float = PATIENCE, every: float = 0.2) -> T:
        """What `look` finds once it is true. Raises TimeoutError."""
        until = time.monotonic() + seconds
        while not (found := look()):
            if time.monotonic() > until:
                raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
            time.sleep(every)
        return found

    # -- questions ------------------------------------------------------------------------------------

    def rows(self, statement: str, **values: Any) -> list[dict[str, Any]]:
        """What the database answers, as soon as it does."""

        def ask() -> list[list[dict[str, Any]]]:
            try:
                return [self._rows(statement, values)]
            except psycopg2.OperationalError:
                return []

        return self.eventually(ask, "the database")[0]

    def _rows(self, statement: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.postgres.port, user="trainmaster", dbname="postgres",
            password=self.postgres.password_file.read_text().strip(), connect_timeout=5,
            application_name="chaos", options="-c statement_timeout=10000",
        )  # fmt: skip
        connection.autocommit = True
        try:
            with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
                cursor.execute(statement, values)
                return [dict(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    def leader(self) -> MasterProcess:
        """The master that leads; the first one while none does."""
        try:
            names = [row["usename"] for row in self._rows(LEADER, {})]
        except psycopg2.OperationalError:
            names = []
        return next((master for master in self.masters if master.folder.name in names), self.masters[0])

    def create(self, trials: int, at_once: int, *, steps: int, pause: float, seed: int) -> int:
        """A search; its id. Where the answer to the request was lost, there may be two of them."""
        text = workload.experiment(trials, at_once, steps=steps, pause=pause, seed=seed, keys=self.keys())

        def asked() -> int:
            try:
                return self.client().create_experiment(text, files(train__py=workload.TRAINING)).id
            except ClientError:
                return 0

        return self.eventually(asked, "an answer to the creation of a search", every=1.0)

    def client(self) -> Master:
        transport = Transport(self.proxy.url)
        self._transports.append(transport)
        master = Master(transport)
        master.login("determined", self.masters[0].password)
        return master

    def stepping_clock(self, *, bound: bool) -> dict[str, Any]:
        """What an experiment needs so that its trainings read the time that `set_clock` says. `bound`: into the file
        system of a container."""
        variables = {"LD_PRELOAD": str(self._clock / "clock.so"), "CLOCK_STEP": str(self._clock / "step")}
        folders = [str(self._clock)] if bound else []
        return {
            "environment": {"environment_variables": [f"{name}={value}" for name, value in variables.items()]},
            "bind_mounts": [{"host_path": path, "container_path": path, "read_only": True} for path in folders],
        }

    def set_clock(self, seconds: int) -> None:
        """Step the clock of all trainings to so many seconds beside the true time."""
        draft = self._clock / "draft"
        draft.write_text(f"{seconds}\n")
        draft.replace(self._clock / "step")

    def live_experiments(self) -> list[int]:
        states = ("COMPLETED", "CANCELED", "ERROR")
        return [row["id"] for row in self.rows("SELECT id FROM experiments WHERE state NOT IN %(ended)s", ended=states)]

    def progress(self) -> str:
        """How far the trials and the live attempts are, in a line."""
        trials = self.rows("SELECT state, count(*) FROM trials GROUP BY state ORDER BY state")
        query = """
            SELECT concat_ws(' ', state, submission, observed_state) AS state, count(*) FROM allocations
            WHERE ended_at IS NULL GROUP BY 1 ORDER BY 1
        """
        told = [[f"{row['count']} {row['state']}" for row in rows] for rows in (trials, self.rows(query))]
        return f"trials: {', '.join(told[0])}; live attempts: {', '.join(told[1])}"

    def processes(self) -> list[JobProcess]:
        """Of this site's jobs, on this machine: trainings, their shells, and the runtimes around them."""
        seen: dict[int, tuple[int, bool, tuple[str, ...], str]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment, command = (entry / "environ").read_bytes(), (entry / "cmdline").read_bytes()
                stat = (entry / "stat").read_text()
                parent = int(stat[stat.rindex(")") + 2 :].split()[1])
                marked = any(mark in environment or mark in command for mark in self.marks())
                named = [one for one in environment.split(b"\0") if one.startswith(b"DET_ALLOCATION_ID=")]
                words = tuple(command.decode(errors="replace").rstrip("\0").split("\0"))
                seen[int(entry.name)] = parent, marked, words, named[0].decode().partition("=")[2] if named else ""
        ours = {pid for pid, (_, marked, _, _) in seen.items() if marked} - {master.pid for master in self.masters}
        # In a container nothing of a runtime itself says whose it is; its training does.
        ours |= {seen[pid][0] for pid in ours if RUNTIME in " ".join(seen.get(seen[pid][0], (0, 0, ("",), ""))[2])}
        return [JobProcess(pid, seen[pid][2], seen[pid][3]) for pid in sorted(ours) if pid in seen]

    def marks(self) -> list[bytes]:
        """What the environment or the command of a process of this site's jobs has, and no other."""
        return [f"DET_MASTER={proxy.url}".encode() for proxy in self.proxies]

    @property
    def proxies(self) -> list[Proxy]:
        """Every way to the masters."""
        return [self.proxy]

    def _source(self) -> Path | None:
        """A copy of the package that the masters' account can read."""
        if self.user is None:
            return None
        package = Path(trainmaster.__file__).parent
        source = self.folder / "source"
        shutil.copytree(package, source / "trainmaster", ignore=shutil.ignore_patterns("__pycache__"))
        return source


@contextmanager
def folder_of_a_run() -> Iterator[Path]:
    folder = make_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


@contextmanager
def small_disk(path: Path, megabytes: int, mode: int = 0o700) -> Iterator[Path]:
    """A folder of the jobs' account on a disk of its own."""
    account = pwd.getpwnam(USER)
    path.mkdir(parents=True)
    options = f"size={megabytes}m,mode={mode:o},uid={account.pw_uid},gid={account.pw_gid}"
    mount("-t", "tmpfs", "-o", options, "tmpfs", str(path))
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False, capture_output=True)
        path.rmdir()


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """The disk of this folder is full inside the block."""
    ballast = folder / ".ballast"
    room = os.statvfs(folder)
    try:
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(room.f_bavail * room.f_frsize))
        yield
    finally:
        ballast.unlink(missing_ok=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


def words_of(names: Sequence[str], most: int = 8) -> str:
    """Some of the names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
