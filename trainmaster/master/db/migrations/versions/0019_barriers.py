"""Numbers the barriers of each attempt, so that a call reads its own alone; removes those of ended attempts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_NUMBERED = """
UPDATE gatherings SET number = numbered.number, size = numbered.size
FROM (
    SELECT entry.id,
           (row_number() OVER (PARTITION BY allocation_id, kind ORDER BY entry.id) - 1) / greatest(num_nodes, 1)
               AS number,
           octet_length(data::text) AS size
    FROM gatherings AS entry JOIN allocations ON allocations.id = entry.allocation_id
) AS numbered
WHERE numbered.id = gatherings.id
"""


def upgrade() -> None:
    op.execute(
        "DELETE FROM gatherings USING allocations "
        "WHERE allocations.id = gatherings.allocation_id AND allocations.ended_at IS NOT NULL"
    )
    op.add_column("gatherings", sa.Column("number", sa.Integer(), server_default="0", nullable=False))
    op.add_column("gatherings", sa.Column("size", sa.Integer(), server_default="0", nullable=False))
    op.execute(_NUMBERED)
    op.create_index("ix_gatherings_number", "gatherings", ["allocation_id", "kind", "number"], unique=False)
