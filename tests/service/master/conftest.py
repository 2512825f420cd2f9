"""A real PostgreSQL for the tests of the master's parts; see `tests.support.database`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.support.attempts import Attempts
from tests.support.database import database, engine_of, make_template, private_server
from trainmaster.master.db.embedded import EmbeddedServer


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    with private_server() as server:
        yield server


@pytest.fixture(scope="session")
def template(server: EmbeddedServer) -> str:
    return make_template(server)


@pytest.fixture
def empty_url(server: EmbeddedServer) -> Iterator[str]:
    """The URL of a fresh, empty database."""
    with database(server) as url:
        yield url


@pytest.fixture
def engine(server: EmbeddedServer, template: str) -> Iterator[Engine]:
    """A database at the present schema."""
    with database(server, template) as url, engine_of(url) as engine:
        yield engine


@pytest.fixture(scope="session")
def attempts(server: EmbeddedServer, template: str) -> Iterator[Attempts]:
    """One database for all tests that use this; each makes attempts of its own, on a cluster of its own."""
    with database(server, template) as url, engine_of(url, pool_size=4) as engine:
        yield Attempts(engine)
