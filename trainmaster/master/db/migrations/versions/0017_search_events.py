"""Events of searches since their snapshots; experiments whose trials lag behind their state"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE SEQUENCE search_versions AS bigint")
    op.create_table(
        "search_events",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("id", sa.BigInteger(), server_default=sa.text("nextval('search_versions')"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("time", sa.Double(), nullable=True),
        sa.Column("complaint", sa.Text(), nullable=False),
        sa.Column("actions", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiments.id"],
            name=op.f("fk_search_events_experiment_id_experiments"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "id", name=op.f("pk_search_events")),
    )
    # The snapshots that are there hold every event: they and their searches have the version 0.
    for column in ("search_version", "snapshot_version"):
        op.add_column("experiments", sa.Column(column, sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("experiments", sa.Column("tell_due", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.create_index("ix_experiments_tell_due", "experiments", ["id"], postgresql_where=sa.text("tell_due"))


def downgrade() -> None:
    op.drop_column("experiments", "tell_due")
    op.drop_column("experiments", "snapshot_version")
    op.drop_column("experiments", "search_version")
    op.drop_table("search_events")
    op.execute("DROP SEQUENCE search_versions")
