from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.master.conftest import create_database, server  # noqa: F401
from tests.support.scale.filling import Size, fill
from trainmaster.master.db import migrate
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.services.store import Store


@pytest.fixture(scope="package")
def size() -> Size:
    """TRAINMASTER_SCALE_POINTS makes it larger."""
    return Size(points=int(os.environ.get("TRAINMASTER_SCALE_POINTS", Size.points)))


@pytest.fixture(scope="package")
def full(server: EmbeddedServer, size: Size) -> Iterator[Engine]:  # noqa: F811
    """A database of that size."""
    engine = make_engine(create_database(server, "scale"), pool_size=4)
    migrate.upgrade(engine)
    fill(engine, size)
    yield engine
    engine.dispose()


@pytest.fixture(scope="package")
def store(full: Engine) -> Store:
    return Store(full)
