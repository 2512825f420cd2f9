"""A database that hangs is noticed, and nobody waits for it; one that works slowly is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from tests.support.master import make_folder, remove_folder, wait_for
from tests.support.postgres import Postgres
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.watchdog import CHECK_PERIOD, PATIENCE, PERIOD, DatabaseUnavailable, Watchdog
from trainmaster.master.services.store import Store

BOUND = 2 * (PATIENCE + PERIOD)  # seconds in which a hang is noticed


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    folder: Path = make_folder()
    postgres = Postgres(folder)
    postgres.start()
    yield postgres
    postgres.stop()
    remove_folder(folder)


def url(postgres: Postgres) -> str:
    password = postgres.password_file.read_text().strip()
    return f"postgresql+psycopg2://trainmaster:{password}@127.0.0.1:{postgres.port}/postgres"


def take(engine: Engine, seconds: float) -> None:
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": seconds})


@pytest.mark.slow
def test_statements_end_with_the_database_and_only_then(postgres: Postgres) -> None:
    presence = Watchdog(url(postgres))
    engine = make_engine(url(postgres), pool_size=2, presence=presence)
    store = Store(engine, presence)
    presence.start()
    try:
        take(engine, 8 * CHECK_PERIOD)  # nothing is heard of it for a while, and yet it comes
        assert presence.why_away == ""
        with postgres.hanging():
            began = time.monotonic()
            with pytest.raises(OperationalError, match="the database is unavailable: no answer within"):
                take(engine, 0)
            assert time.monotonic() - began < BOUND
            began = time.monotonic()
            with pytest.raises(DatabaseUnavailable, match="The database does not answer, for"), store.transaction():
                pass
            with pytest.raises(OperationalError):  # a new connection
                take(engine, 0)
            assert time.monotonic() - began < PATIENCE
        wait_for(lambda: not presence.why_away, "the database to be back")
        take(engine, 0)
        postgres.stop()
        wait_for(lambda: presence.why_away, "the end of the server to be noticed")
        postgres.start()
        wait_for(lambda: not presence.why_away, "the database to be back")
        take(engine, 0)
    finally:
        presence.stop()
        engine.dispose()
