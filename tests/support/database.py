"""PostgreSQL for tests: one private server per test run for those that call services directly, with a database for each
test, and the data folders of masters.

The schema is made once, in a template from which PostgreSQL copies each database, and in a folder that is copied for
each new master.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from trainmaster.master.db import migrate
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

TEMPLATE = "template_of_tests"
IN_MEMORY = Path("/dev/shm")
ROOMY = 4 << 30  # bytes that it must have free


def make_data_folder() -> Path:
    """A folder for the files of a server, which the account that runs it can walk through.

    In memory where there is room: the hundreds of files of a new database are created and flushed ten times as fast as
    on a disk. Not below pytest's own folder, which only root can enter.
    """
    with contextlib.suppress(OSError):
        room = os.statvfs(IN_MEMORY)
        if os.access(IN_MEMORY, os.W_OK) and room.f_bavail * room.f_frsize >= ROOMY:
            _sweep()
            folder = Path(tempfile.mkdtemp(prefix=f"tm-test-pg-{os.getpid()}-", dir=IN_MEMORY))
            folder.chmod(0o711)
            return folder
    folder = Path(tempfile.mkdtemp(prefix="tm-test-pg-", dir="/var/tmp"))
    folder.chmod(0o711)
    return folder


def _sweep() -> None:
    """Remove what runs that were killed have left in memory."""
    for left in IN_MEMORY.glob("tm-test-pg-*-*"):
        if not Path("/proc", left.name.split("-")[3]).exists():
            shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def private_server() -> Iterator[EmbeddedServer]:
    folder = make_data_folder()
    server = EmbeddedServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@contextlib.contextmanager
def database(server: EmbeddedServer, template: str = "template1") -> Iterator[str]:
    """The URL of a database that lives inside the block; an empty one unless it is copied from `template`."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with _administration(server) as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        yield url_of(server, name)
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


@contextlib.contextmanager
def engine_of(url: str, pool_size: int = 8) -> Iterator[Engine]:
    engine = make_engine(url, pool_size=pool_size)
    try:
        yield engine
    finally:
        engine.dispose()


def make_template(server: EmbeddedServer) -> str:
    """The name of a database at the present schema, to copy others from."""
    with _administration(server) as connection:
        connection.execute(text(f"CREATE DATABASE {TEMPLATE}"))
    with engine_of(url_of(server, TEMPLATE), pool_size=1) as engine:
        migrate.upgrade(engine)
    return TEMPLATE


class PreparedData:
    """A master's data folder with a database at the present schema and nothing in it. Made at its first use."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._copies: dict[Path, Path] = {}  # where the files of the database are, by data folder

    def copy_to(self, data: Path) -> None:
        """Make `data`, a folder that does not exist; `pg` in it is a link. `forget` removes what the link leads to."""
        if self._folder is None:
            self._folder = make_data_folder()
            server = EmbeddedServer(self._folder)
            server.start()
            with engine_of(server.url, pool_size=1) as engine:
                migrate.upgrade(engine)
            server.stop()
        folder = self._copies[data] = make_data_folder()
        # As root the files are another user's.
        subprocess.run(["cp", "-a", str(self._folder / "pg"), str(folder)], check=True)
        data.mkdir(mode=0o700)
        (data / "pg").symlink_to(folder / "pg")

    def forget(self, folder: Path) -> None:
        """Remove the databases of the data folders at or below `folder`."""
        for data in [data for data in self._copies if data.is_relative_to(folder)]:
            shutil.rmtree(self._copies.pop(data), ignore_errors=True)

    def remove(self) -> None:
        self.forget(Path("/"))
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None


def url_of(server: EmbeddedServer, name: str) -> str:
    return server.url.replace("/trainmaster?", f"/{name}?")


@contextlib.contextmanager
def _administration(server: EmbeddedServer) -> Iterator[Connection]:
    with (
        engine_of(server.url, pool_size=1) as engine,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        yield connection
