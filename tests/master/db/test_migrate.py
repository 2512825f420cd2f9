from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from trainmaster.master.db import migrate
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.tables import Allocation, Base

# A job under way, in words that every schema so far understands.
OLD_ROWS = (
    "INSERT INTO users (id, username, admin, active, remote) VALUES (1, 'ada', false, true, false)",
    "INSERT INTO jobs (job_id, job_type, owner_id) VALUES ('00000000-0000-0000-0000-000000000001', 'EXPERIMENT', 1)",
    "INSERT INTO tasks (task_id, task_type, job_id) VALUES ('t', 'TRIAL', '00000000-0000-0000-0000-000000000001')",
    "INSERT INTO allocations (id, task_id, token, state, submission, attempt, dispatcher, pool, slots, owner_id,"
    " cluster, num_nodes, observed_state, explanation, preempt_acked, checkpoints_before, exits, exit_text, collected)"
    " VALUES ('t.1', 't', 'det-old', 'RUNNING', 'SUBMITTED', 1, 'here', 'main', 1, 1, '', 1, '', '', false, 0, '{}',"
    " '', false)",
)


@pytest.mark.parametrize("revision", [None, *migrate.revisions()])
def test_the_migrations_lead_to_the_tables_as_declared(empty_url: str, revision: str | None) -> None:
    """From nothing, and from a database that was left at any earlier revision with an experiment under way in it."""
    engine = make_engine(empty_url, pool_size=2)
    if revision:
        migrate.upgrade(engine, revision)
        with engine.begin() as connection:
            for statement in OLD_ROWS:
                connection.execute(text(statement))
    migrate.upgrade(engine)

    def ours(thing: object, name: str | None, kind: str, *_: object) -> bool:
        return not (kind == "table" and str(name).startswith("metrics_"))  # the partitions

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours, "compare_server_default": False})
        assert compare_metadata(context, Base.metadata) == []
    with Session(engine) as session:
        assert [row.token for row in session.scalars(select(Allocation))] == (["det-old"] if revision else [])
    engine.dispose()


def test_upgrading_twice_changes_nothing(engine: Engine) -> None:
    before = migrate.current(engine)
    migrate.upgrade(engine)
    assert migrate.current(engine) == before == migrate.revisions()[-1]


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
    assert migrate.current(engine) == migrate.revisions()[-1]
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
