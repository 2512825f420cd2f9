"""What was given as a generic task's configuration"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Null: of older tasks only the complete configuration is known.
    op.add_column("standalone_tasks", sa.Column("given", sa.dialects.postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("standalone_tasks", "given")
