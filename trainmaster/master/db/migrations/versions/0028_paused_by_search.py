"""Trials that the search pauses or begins with another's checkpoint; what methods drew and saw, with their events"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("parent_id", sa.Integer(), nullable=True))
    op.add_column("trials", sa.Column("search_pause", sa.Text(), server_default="", nullable=False))
    op.add_column("trials", sa.Column("begun_anew", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("search_events", sa.Column("others", sa.JSON(), nullable=True))
    op.add_column("search_events", sa.Column("slot_seconds", sa.Double(), nullable=True))
    op.add_column("search_events", sa.Column("at", sa.Double(), nullable=True))
    op.add_column("search_events", sa.Column("drawn", sa.JSON(), nullable=True))
