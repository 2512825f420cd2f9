"""When an administrator told a resting pool to go on, and an index on how jobs ended lately"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pool_standing",
        sa.Column("pool", sa.Text(), primary_key=True),
        sa.Column("resumed_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index(
        "ix_allocations_setbacks",
        "allocations",
        ["ended_at"],
        postgresql_where=sa.text("outcome = 'infrastructure'"),
    )
    op.create_index("ix_allocations_leased", "allocations", ["pool", "leased_at"])
