"""Steps up to 2^63 - 1; how many reports of a trial were refused for good"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Each rewrites its table: about a minute for a hundred million reports.
    op.alter_column("metrics", "steps", type_=sa.BigInteger(), existing_nullable=False)
    op.alter_column("trials", "total_batches", type_=sa.BigInteger(), existing_nullable=False)
    op.alter_column("checkpoints", "steps_completed", type_=sa.BigInteger(), existing_nullable=False)
    op.add_column("trials", sa.Column("refused_reports", sa.BigInteger(), server_default=sa.text("0"), nullable=False))


def downgrade() -> None:
    op.drop_column("trials", "refused_reports")
    op.alter_column("checkpoints", "steps_completed", type_=sa.Integer(), existing_nullable=False)
    op.alter_column("trials", "total_batches", type_=sa.Integer(), existing_nullable=False)
    op.alter_column("metrics", "steps", type_=sa.Integer(), existing_nullable=False)
