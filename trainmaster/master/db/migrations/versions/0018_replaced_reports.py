"""Finds a trial's replaced reports by an index: those that a later attempt has repeated, or that were deleted"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_metrics_archived", "metrics", ["trial_id"], unique=False, postgresql_where=sa.text("archived"))
