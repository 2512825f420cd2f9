"""Checkpoints that no policy and no request removes"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.text("false")))
