"""PostgreSQL for tests: one private server per test run for those that call services directly, with a database for each
test, and the data folders of masters.

The schema is made once, in a template from which PostgreSQL copies each database, and in a folder that is copied for
each new master.
"""

from __future__ import annotations

import contextlib
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


@contextlib.contextmanager
def private_server() -> Iterator[EmbeddedServer]:
    """Not below pytest's own folder: as root the server runs as another user, who could not walk through it."""
    folder = Path(tempfile.mkdtemp(prefix="tm-test-pg-"))
    folder.chmod(0o711)
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

    def copy_to(self, data: Path) -> None:
        """Copy it to `data`, a folder that does not exist."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="tm-test-data-", dir="/var/tmp"))
            server = EmbeddedServer(self._folder)
            server.start()
            with engine_of(server.url, pool_size=1) as engine:
                migrate.upgrade(engine)
            server.stop()
        subprocess.run(["cp", "-a", str(self._folder), str(data)], check=True)  # as root the files are another user's

    def remove(self) -> None:
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
