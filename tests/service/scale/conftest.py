from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.support.bound import bind
from tests.support.database import database, engine_of, make_template, private_server
from tests.support.scale.filling import Size, fill
from trainmaster.master.services.master import Master
from trainmaster.master.services.store import Store


@pytest.fixture(scope="package")
def size() -> Size:
    """TRAINMASTER_SCALE_POINTS makes it larger."""
    return Size(points=int(os.environ.get("TRAINMASTER_SCALE_POINTS", Size.points)))


@pytest.fixture(scope="package")
def full(size: Size) -> Iterator[Engine]:
    """A database of that size."""
    with (
        private_server() as server,
        database(server, make_template(server)) as url,
        engine_of(url, pool_size=4) as engine,
    ):
        fill(engine, size)
        yield engine


@pytest.fixture(scope="package")
def master(full: Engine) -> Master:
    return bind(Store(full))
