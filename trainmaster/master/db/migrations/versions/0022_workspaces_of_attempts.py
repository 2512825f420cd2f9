"""Keeps the workspace in which an attempt ran where its experiment or project is moved afterwards"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allocations", sa.Column("workspace_id", sa.Integer(), nullable=True))
    op.add_column("allocations", sa.Column("workspace_name", sa.Text(), nullable=True))
