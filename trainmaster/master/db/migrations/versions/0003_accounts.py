"""The Unix account that a user's jobs run as, and the one that a job was given"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("users", sa.Column("agent_uid", sa.BigInteger()))
    op.add_column("users", sa.Column("agent_user", sa.Text()))
    op.add_column("users", sa.Column("agent_gid", sa.BigInteger()))
    op.add_column("users", sa.Column("agent_group", sa.Text()))
    op.add_column("allocations", sa.Column("run_as", sa.Text()))
