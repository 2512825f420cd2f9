"""One database for all tests of a folder; each test makes attempts of its own, on a cluster of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.master.conftest import create_database, server
from tests.support.attempts import Attempts
from trainmaster.master.db import migrate
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

__all__ = ["server"]


@pytest.fixture(scope="package")
def attempts(server: EmbeddedServer) -> Iterator[Attempts]:
    engine = make_engine(create_database(server, "attempts"), pool_size=4)
    migrate.upgrade(engine)
    yield Attempts(engine)
    engine.dispose()
