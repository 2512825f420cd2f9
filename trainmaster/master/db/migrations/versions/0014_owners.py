"""Templates have owners"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("templates", sa.Column("owner_id", sa.Integer(), nullable=True))
    op.create_foreign_key(op.f("fk_templates_owner_id_users"), "templates", "users", ["owner_id"], ["id"])
