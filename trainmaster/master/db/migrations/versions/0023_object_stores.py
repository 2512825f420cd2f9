"""Checkpoints in object stores: what jobs send, and the digests of their files"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "uploads",
        sa.Column("checkpoint", sa.Uuid(), primary_key=True),
        sa.Column("experiment_id", sa.Integer(), sa.ForeignKey("experiments.id", ondelete="CASCADE"), nullable=False),
        sa.Column("trial_id", sa.Integer(), sa.ForeignKey("trials.id", ondelete="CASCADE"), nullable=False),
        sa.Column("allocation_id", sa.Text(), nullable=False),
        sa.Column("storage", postgresql.JSONB(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("ranks", postgresql.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_index("ix_uploads_trial_id", "uploads", ["trial_id"])
    op.create_index("ix_uploads_experiment_id", "uploads", ["experiment_id"])
    op.create_index(
        "ix_uploads_unfinished", "uploads", ["checkpoint"], postgresql_where=sa.text("state <> 'COMPLETED'")
    )
    op.create_table(
        "stored_files",
        sa.Column("checkpoint", sa.Uuid(), sa.ForeignKey("uploads.checkpoint", ondelete="CASCADE"), primary_key=True),
        sa.Column("path", sa.Text(), primary_key=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("there", sa.Boolean(), nullable=False),
        sa.Column("upload", sa.Text(), nullable=True),
    )
