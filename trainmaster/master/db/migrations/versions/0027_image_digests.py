"""Which content the images had that jobs ran in"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("allocation_nodes", sa.Column("image_digest", sa.Text(), nullable=False, server_default=""))
