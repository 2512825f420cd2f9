from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, make_url, select, text
from sqlalchemy.orm import Session

from tests.support.database import database, engine_of
from trainmaster.master.db import migrate
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.tables import Allocation, Base
from trainmaster.master.values.exits import ExitRecords
from trainmaster.master.values.observed import ObservedJob

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
# JSON columns as other releases write them: keys that are missing, and keys that this release does not know.
OLD_VALUES: tuple[tuple[dict[str, Any] | None, dict[str, Any]], ...] = (
    (None, {}),
    ({}, {"0": {"exit_code": 1}}),
    (
        {"raw": "RUNNING", "nodes": ["n1"], "ends_at": None},
        {"0": {"node_rank": 0, "exit_code": 0, "spool": {"core": 3}}},
    ),
    (
        {"raw": "RUNNING", "text": "", "never": False, "estimated": 3.5, "nodes": [], "quota": {"hours": [3]}},
        {"1": {"node_rank": 1, "exit_code": -9, "preempted": {"reason": "scheduler", "by": "x"}, "received_at": 3.5}},
    ),
)


COPY = (
    "INSERT INTO allocations (id, task_id, token, state, submission, attempt, dispatcher, pool, slots, owner_id,"
    " cluster, num_nodes, observed_state, observed, explanation, preempt_acked, checkpoints_before, exits, exit_text,"
    " collected) VALUES ('u.' || :number, 't', 'det-' || :number, 'RUNNING', 'SUBMITTED', 1, 'here', 'main', 1, 1, '',"
    " 1, '', CAST(:observed AS jsonb), '', false, 0, CAST(:exits AS jsonb), '', false)"
)


def _stored(observed: object, exits: object) -> dict[str, str | None]:
    return {"observed": None if observed is None else json.dumps(observed), "exits": json.dumps(exits)}


def _of_other_releases(session: Session) -> Sequence[Allocation]:
    return session.scalars(select(Allocation).where(Allocation.id.like("u.%")).order_by(Allocation.id)).all()


@pytest.fixture(scope="module")
def climbing(server: EmbeddedServer) -> Iterator[str]:
    """The URL of one database that goes from each revision to the next."""
    with database(server) as url:
        yield url


@pytest.fixture
def left_at(server: EmbeddedServer, climbing: str, revision: str | None) -> Iterator[Engine]:
    """A database at `revision`; None: an empty one. Revisions must ascend from test to test."""
    if revision:
        with engine_of(climbing, pool_size=1) as engine:
            migrate.upgrade(engine, revision)
            assert migrate.current(engine) == revision
    template = make_url(climbing).database or ""
    with database(server, template if revision else "template1") as url, engine_of(url, pool_size=2) as engine:
        yield engine


@pytest.mark.parametrize("revision", [None, *migrate.revisions()])
def test_the_migrations_lead_to_the_tables_as_declared(left_at: Engine, revision: str | None) -> None:
    """From nothing, and from a database that was left at any earlier revision with an experiment under way in it."""
    engine = left_at
    if revision:
        with engine.begin() as connection:
            for statement in OLD_ROWS:
                connection.execute(text(statement))
            for number, (observed, exits) in enumerate(OLD_VALUES):
                connection.execute(text(COPY), {"number": number, **_stored(observed, exits)})
    migrate.upgrade(engine)

    def ours(thing: object, name: str | None, kind: str, *_: object) -> bool:
        return not (kind == "table" and str(name).startswith("metrics_"))  # the partitions

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours, "compare_server_default": False})
        assert compare_metadata(context, Base.metadata) == []
    with Session(engine) as session:
        assert [row.token for row in session.scalars(select(Allocation).order_by(Allocation.id))] == (
            ["det-old", *(f"det-{number}" for number in range(len(OLD_VALUES)))] if revision else []
        )
        for row, (observed, exits) in zip(_of_other_releases(session), OLD_VALUES if revision else (), strict=True):
            assert row.observed == (None if observed is None else ObservedJob.from_json(observed))
            assert ObservedJob.from_json((row.observed or ObservedJob()).to_json()) == (row.observed or ObservedJob())
            assert row.exits.to_json() == exits
            row.observed, row.exits = (row.observed or ObservedJob()).updated(restarts=1), ExitRecords({**exits})
        session.flush()
        session.expire_all()
        for row, (observed, _) in zip(_of_other_releases(session), OLD_VALUES if revision else (), strict=True):
            kept = {key: value for key, value in (observed or {}).items() if value not in (None, [], False)}
            assert row.observed is not None
            assert row.observed.to_json() == {**kept, "restarts": 1}


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
