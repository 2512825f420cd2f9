"""Tasks that belong to no experiment, and where the services in jobs listen"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

JSON = postgresql.JSONB(astext_type=sa.Text())
TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "standalone_tasks",
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("project_id", sa.Integer(), nullable=True),
        sa.Column("owner_id", sa.Integer(), nullable=False),
        sa.Column("parent_id", sa.Text(), nullable=True),
        sa.Column("forked_from", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("config", JSON, nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("archive", sa.LargeBinary(), nullable=False),
        sa.Column("secrets", JSON, nullable=True),
        sa.Column("shows", JSON, nullable=True),
        sa.Column("pausable", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("setbacks", sa.Integer(), nullable=False),
        sa.Column("idle_timeout", sa.Double(), nullable=True),
        sa.Column("idle", sa.Boolean(), nullable=True),
        sa.Column("used_at", TIME, nullable=True),
        sa.Column("start_time", TIME, server_default=sa.func.now(), nullable=False),
        sa.Column("end_time", TIME, nullable=True),
        _belongs("task_id", "tasks.task_id", "CASCADE"),
        _belongs("workspace_id", "workspaces.id", "CASCADE"),
        _belongs("project_id", "projects.id", "SET NULL"),
        _belongs("owner_id", "users.id", None),
        _belongs("parent_id", "standalone_tasks.task_id", "SET NULL"),
        sa.PrimaryKeyConstraint("task_id", name=op.f("pk_standalone_tasks")),
    )
    op.create_index("ix_standalone_tasks_workspace_id", "standalone_tasks", ["workspace_id"])
    op.create_index("ix_standalone_tasks_parent_id", "standalone_tasks", ["parent_id"])
    op.create_index("ix_standalone_tasks_kind", "standalone_tasks", ["kind", "start_time"])
    op.create_index(
        "ix_standalone_tasks_live", "standalone_tasks", ["task_id"], postgresql_where=sa.text("end_time IS NULL")
    )
    op.add_column("allocations", sa.Column("ready", sa.Boolean(), nullable=True))
    op.add_column("allocations", sa.Column("proxy", JSON, nullable=True))


def _belongs(column: str, to: str, gone: str | None) -> sa.ForeignKeyConstraint:
    name = op.f(f"fk_standalone_tasks_{column}_{to.partition('.')[0]}")
    return sa.ForeignKeyConstraint([column], [to], name=name, ondelete=gone)
