"""Names for versions of models ("production" and the like)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "model_aliases",
        sa.Column("model_id", sa.Integer(), sa.ForeignKey("models.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("alias", sa.Text(), primary_key=True),
        sa.Column("version_id", sa.Integer(), sa.ForeignKey("model_versions.id", ondelete="CASCADE"), nullable=False),
    )
    op.create_index("ix_model_aliases_version_id", "model_aliases", ["version_id"])
