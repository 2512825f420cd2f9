"""What the database notifies reaches its listener, and a lost connection is made known."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, text

from tests.support.database import database, engine_of, private_server
from trainmaster.master.db.engine import Listener, notify

DEADLINE = 30.0  # seconds


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with private_server() as server, database(server) as url, engine_of(url, pool_size=4) as made:
        yield made


def test_listener_reports_missed_notifications_after_reconnect(engine: Engine) -> None:
    heard, missed = threading.Event(), threading.Event()
    listener = Listener(engine, {"news": lambda _: heard.set()}, missed.set)
    listener.start()
    try:
        assert missed.wait(DEADLINE)  # it has begun to listen: whatever happened before may have been missed
        missed.clear()
        with engine.begin() as connection:
            notify(connection, "news", ["one"])
        assert heard.wait(DEADLINE)
        heard.clear()
        ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
        with engine.begin() as connection:
            assert connection.execute(text(ended)).scalar() == 1
        assert missed.wait(DEADLINE)
        with engine.begin() as connection:
            notify(connection, "news", ["two"])
        assert heard.wait(DEADLINE)
    finally:
        listener.stop()
