from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, text

from trainmaster.master.db import migrate
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.tables import Base


def test_the_migrations_lead_to_the_tables_as_declared(engine: Engine) -> None:
    def ours(thing: object, name: str | None, kind: str, *_: object) -> bool:
        return not (kind == "table" and str(name).startswith("metrics_"))  # the partitions

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours, "compare_server_default": False})
        assert compare_metadata(context, Base.metadata) == []


def test_upgrading_twice_changes_nothing(engine: Engine) -> None:
    before = migrate.current(engine)
    migrate.upgrade(engine)
    assert migrate.current(engine) == before == "0001"


def test_two_masters_may_upgrade_at_once(empty_url: str) -> None:
    engine = make_engine(empty_url, pool_size=2)
    errors: list[Exception] = []

    def upgrade() -> None:
        try:
            migrate.upgrade(engine)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert migrate.current(engine) == "0001"
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(migrate.SchemaTooNew, match="written by a newer one"):
        migrate.upgrade(engine)


def test_metrics_go_to_the_partition_of_their_kind(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                'INSERT INTO metrics (kind, trial_id, run_id, "group", steps, at, metrics) '
                "VALUES ('validation', 1, 1, 'validation', 1, now(), '{}')"
            )
        )
        assert connection.execute(text("SELECT count(*) FROM metrics_validation")).scalar() == 1
