"""Reports as columns and log lines as blocks, to be read fast"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

TEXTS = postgresql.ARRAY(sa.Text())
TIME = sa.DateTime(timezone=True)
REPORTS = ("metrics", "metrics_training", "metrics_validation", "metrics_generic", "metrics_profiling")

# Whoever changes a report drops, in the same transaction, the columns that hold it and those of later reports. The
# row of the trial's progress comes first: it is what somebody who condenses at this moment waits for, or is waited for.
CHANGED = """
    CREATE FUNCTION reports_changed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO series_progress AS p (trial_id, upto, pending, changed)
        SELECT trial_id, 0, 0, min(id) FROM before WHERE kind <> 'profiling' GROUP BY trial_id ORDER BY trial_id
        ON CONFLICT (trial_id) DO UPDATE SET changed = least(p.changed, excluded.changed);
        WITH lowest AS (
            SELECT trial_id, min(id) AS id FROM before WHERE kind <> 'profiling' GROUP BY trial_id
        ), gone AS (
            DELETE FROM series_steps s USING lowest
            WHERE s.trial_id = lowest.trial_id AND s.last_id >= lowest.id
            RETURNING s.trial_id, s.after_id, s.reports
        ), values_gone AS (
            DELETE FROM series_values v USING lowest WHERE v.trial_id = lowest.trial_id AND v.last_id >= lowest.id
        )
        UPDATE series_progress p SET upto = least(p.upto, back.upto), pending = p.pending + back.reports
        FROM (SELECT trial_id, min(after_id) AS upto, sum(reports) AS reports FROM gone GROUP BY trial_id) AS back
        WHERE p.trial_id = back.trial_id;
        RETURN NULL;
    END $$
"""

# Where the server can (PostgreSQL 14 on, built with it), lz4: it unpacks several times as fast.
LZ4 = """
    DO $$
    BEGIN
        EXECUTE 'ALTER TABLE log_blocks ALTER COLUMN text SET COMPRESSION lz4';
    EXCEPTION WHEN syntax_error OR feature_not_supported OR invalid_parameter_value THEN
        NULL;
    END $$
"""


def upgrade() -> None:
    op.create_table(
        "condensed_counted",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source", name=op.f("pk_condensed_counted")),
    )
    op.execute("INSERT INTO condensed_counted (source, id) VALUES ('metrics', 0), ('task_logs', 0)")
    op.create_table(
        "series_progress",
        sa.Column("trial_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.Column("changed", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("trial_id", name=op.f("pk_series_progress")),
    )
    op.create_table(
        "series_steps",
        sa.Column("trial_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("after_id", sa.BigInteger(), nullable=False),
        sa.Column("reports", sa.Integer(), nullable=False),
        sa.Column("steps", sa.LargeBinary(), nullable=False),
        sa.Column("times", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "group", "last_id", name=op.f("pk_series_steps")),
    )
    op.create_table(
        "series_values",
        sa.Column("trial_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("group", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("places", sa.LargeBinary(), nullable=True),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("trial_id", "group", "name", "last_id", name=op.f("pk_series_values")),
    )
    for table, column in (("series_steps", "steps"), ("series_steps", "times"), ("series_values", "values")):
        # Measurements hardly get smaller by being compressed, and unpacking them would cost more than reading them.
        op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")
    op.execute(CHANGED)
    for table in REPORTS:
        op.execute(
            f"CREATE TRIGGER reports_changed AFTER UPDATE ON {table} REFERENCING OLD TABLE AS before "
            "FOR EACH STATEMENT EXECUTE FUNCTION reports_changed()"
        )
    op.create_table(
        "log_progress",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("pending", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_log_progress")),
    )
    op.create_table(
        "log_blocks",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("last_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("first_id", sa.BigInteger(), nullable=False),
        sa.Column("levels", sa.Integer(), nullable=False),
        sa.Column("first_at", TIME, nullable=False),
        sa.Column("last_at", TIME, nullable=False),
        sa.Column("rank_ids", postgresql.ARRAY(sa.Integer()), nullable=False),
        *(
            sa.Column(name, TEXTS, nullable=False)
            for name in ("allocation_ids", "agent_ids", "container_ids", "stdtypes", "sources")
        ),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "last_id", name=op.f("pk_log_blocks")),
    )
    op.execute(LZ4)
    for table in ("series_progress", "log_progress"):
        op.create_index(f"ix_{table}_pending", table, ["pending"], postgresql_where=sa.text("pending >= 4096"))
