"""Models with versions, configuration templates, and which checkpoint a trial came from"""

from __future__ import annotations

import datetime as dt

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    json = postgresql.JSONB(astext_type=sa.Text())

    def time(name: str) -> sa.Column[dt.datetime]:
        return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)

    op.create_table(
        "models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("labels", json, nullable=False),
        sa.Column("metadata", json, nullable=False),
        sa.Column("archived", sa.Boolean(), nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        time("created_at"),
        time("updated_at"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_models_user_id_users")),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_models_workspace_id_workspaces"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_index("ix_models_workspace_id", "models", ["workspace_id"])
    op.create_table(
        "model_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("checkpoint", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.Column("labels", json, nullable=False),
        sa.Column("metadata", json, nullable=False),
        sa.Column("user_id", sa.Integer(), nullable=False),
        time("created_at"),
        time("updated_at"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_model_versions_user_id_users")),
        sa.ForeignKeyConstraint(
            ["checkpoint"], ["checkpoints.uuid"], name=op.f("fk_model_versions_checkpoint_checkpoints")
        ),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_model_versions_model_id_models"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_versions")),
    )
    op.create_index("uq_model_versions_version", "model_versions", ["model_id", "version"], unique=True)
    op.create_index("ix_model_versions_checkpoint", "model_versions", ["checkpoint"])
    op.create_table(
        "templates",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", json, nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name=op.f("fk_templates_workspace_id_workspaces"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_templates")),
    )
    op.create_table(
        "trial_sources",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("trial_id", sa.Integer(), nullable=False),
        sa.Column("checkpoint", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("model_id", sa.Integer(), nullable=True),
        sa.Column("model_version", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_trial_sources_trial_id_trials"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["checkpoint"],
            ["checkpoints.uuid"],
            name=op.f("fk_trial_sources_checkpoint_checkpoints"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trial_sources")),
    )
    op.create_index("ix_trial_sources_checkpoint", "trial_sources", ["checkpoint"])
    op.create_index("ix_trial_sources_trial_id", "trial_sources", ["trial_id"])
