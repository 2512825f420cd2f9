"""Workspaces and projects whole: defaults, notes, keys, pins, and which pools a workspace may use"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    json = postgresql.JSONB(astext_type=sa.Text())
    for table in ("workspaces", "projects"):
        op.add_column(table, sa.Column("state", sa.Text(), nullable=False, server_default=""))
        op.add_column(table, sa.Column("error", sa.Text(), nullable=False, server_default=""))
    op.add_column("workspaces", sa.Column("agent_uid", sa.BigInteger()))
    op.add_column("workspaces", sa.Column("agent_user", sa.Text()))
    op.add_column("workspaces", sa.Column("agent_gid", sa.BigInteger()))
    op.add_column("workspaces", sa.Column("agent_group", sa.Text()))
    op.add_column("workspaces", sa.Column("checkpoint_storage", json))
    op.add_column("workspaces", sa.Column("compute_pool", sa.Text(), nullable=False, server_default=""))
    op.add_column("workspaces", sa.Column("aux_pool", sa.Text(), nullable=False, server_default=""))
    op.add_column("projects", sa.Column("key", sa.Text()))
    op.add_column("projects", sa.Column("notes", json, nullable=False, server_default="[]"))
    op.execute("UPDATE projects SET key = 'P' || id")
    op.alter_column("projects", "key", nullable=False)
    op.create_index("uq_projects_key", "projects", ["key"], unique=True)
    op.create_index("uq_projects_name", "projects", ["workspace_id", "name"], unique=True)
    op.create_index("ix_experiments_project_id", "experiments", ["project_id", "id"])
    op.create_table(
        "workspace_pins",
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.Column("pinned_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_workspace_pins_user_id_users"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspaces.id"],
            name=op.f("fk_workspace_pins_workspace_id_workspaces"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_id", "workspace_id", name=op.f("pk_workspace_pins")),
    )
    op.create_table(
        "pool_bindings",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"],
            ["workspaces.id"],
            name=op.f("fk_pool_bindings_workspace_id_workspaces"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("pool", "workspace_id", name=op.f("pk_pool_bindings")),
    )
