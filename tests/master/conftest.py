"""A real PostgreSQL for the tests of the master: the private server, one a folder of tests, one database a test."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from trainmaster.master.db import migrate
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine


@pytest.fixture(scope="package")
def server() -> Iterator[EmbeddedServer]:
    """Not below pytest's own folder: as root the server runs as another user, who could not walk through it."""
    folder = Path(tempfile.mkdtemp(prefix="tm-test-pg-"))
    folder.chmod(0o711)
    server = EmbeddedServer(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


def create_database(server: EmbeddedServer, name: str) -> str:
    """The URL of a new, empty database, which stays for as long as the server."""
    admin = make_engine(server.url, pool_size=1)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return server.url.replace("/trainmaster?", f"/{name}?")


@pytest.fixture
def empty_url(server: EmbeddedServer) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    admin = make_engine(server.url, pool_size=1)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        yield server.url.replace("/trainmaster?", f"/{name}?")
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """A database at the present schema."""
    engine = make_engine(empty_url, pool_size=8)
    migrate.upgrade(engine)
    yield engine
    engine.dispose()
