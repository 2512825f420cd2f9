"""Which run of a job joined an allocation"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allocation_nodes", sa.Column("run_id", sa.Text(), nullable=False, server_default=""))
