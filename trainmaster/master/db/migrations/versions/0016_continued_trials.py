"""What was given as a generic task's configuration; warm starts, tasks of continued trials, numbers of storages"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Null: of older tasks only the complete configuration is known.
    op.add_column("standalone_tasks", sa.Column("given", postgresql.JSONB(), nullable=True))
    op.add_column("experiments", sa.Column("warm_start", sa.Uuid(), nullable=True))
    op.add_column("trials", sa.Column("warm_start", sa.Uuid(), nullable=True))
    op.add_column("trials", sa.Column("earlier_tasks", postgresql.JSONB(), server_default="[]", nullable=False))
    op.add_column("checkpoints", sa.Column("storage_id", sa.Integer(), nullable=True))
    op.execute(
        "INSERT INTO storages (config) SELECT DISTINCT storage FROM checkpoints "
        "WHERE jsonb_typeof(storage) = 'object' AND storage NOT IN (SELECT config FROM storages)"
    )
    op.execute("UPDATE checkpoints SET storage_id = (SELECT min(id) FROM storages WHERE config = checkpoints.storage)")


def downgrade() -> None:
    op.drop_column("checkpoints", "storage_id")
    op.drop_column("trials", "earlier_tasks")
    op.drop_column("trials", "warm_start")
    op.drop_column("experiments", "warm_start")
    op.drop_column("standalone_tasks", "given")
