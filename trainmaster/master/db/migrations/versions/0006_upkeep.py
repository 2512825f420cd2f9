"""How long a trial's logs stay, which experiments have checkpoints to give up, and what is to be removed of them"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("log_retention_days", sa.Integer()))
    op.add_column("experiments", sa.Column("gc_due", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.create_index("ix_experiments_gc_due", "experiments", ["id"], postgresql_where=sa.text("gc_due"))
    op.create_table(
        "checkpoint_removals",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint", sa.Uuid(), nullable=False),
        sa.Column("globs", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint"],
            ["checkpoints.uuid"],
            name=op.f("fk_checkpoint_removals_checkpoint_checkpoints"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoint_removals")),
    )
