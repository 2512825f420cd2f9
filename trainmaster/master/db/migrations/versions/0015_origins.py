"""Where nodes and browsers were seen, and tickets that admit once"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Empty: nobody looked. A service on another machine that was started before is reached again when it is restarted.
    op.add_column("allocation_nodes", sa.Column("peer", sa.Text(), nullable=False, server_default=""))
    op.add_column("user_sessions", sa.Column("origin", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "tickets",
        sa.Column("ticket_hash", sa.LargeBinary(), nullable=False),
        sa.Column("session_id", sa.BigInteger(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["user_sessions.id"], name=op.f("fk_tickets_session_id_user_sessions"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("ticket_hash", name=op.f("pk_tickets")),
    )
    op.create_index("ix_tickets_session_id", "tickets", ["session_id"])
    op.create_index("ix_tickets_expires_at", "tickets", ["expires_at"])


def downgrade() -> None:
    op.drop_table("tickets")
    op.drop_column("user_sessions", "origin")
    op.drop_column("allocation_nodes", "peer")
