"""Tables of compacted copies that are read fast: metric reports as columns, log lines as blocks of text.

The reports and lines stay where they are and remain the source of truth. A loop compacts what has not changed for a
while; newer records are read from the reports and lines. The two `..._progress` tables hold how far compaction is for
each trial and task.
"""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, Column, DateTime, Index, Integer, LargeBinary, Table, Text, text

from trainmaster.master.db.tables import Base

# The id up to which rows have been counted, for each of the two tables.
counted = Table(
    "condensed_counted",
    Base.metadata,
    Column("source", Text, primary_key=True),  # metrics, task_logs
    Column("id", BigInteger, nullable=False),
)

# No foreign keys here: checking one would wait for the lock of the trial, which a writer of reports holds.
series_progress = Table(
    "series_progress",
    Base.metadata,
    Column("trial_id", Integer, primary_key=True, autoincrement=False),
    Column("upto", BigInteger, nullable=False),  # all valid reports up to this id are in the two tables below
    Column("pending", BigInteger, nullable=False),  # approximate number of counted rows that are not compacted
    Column("changed", BigInteger),  # the lowest id that was changed since compaction began
    Index("ix_series_progress_pending", "pending", postgresql_where=text("pending >= 4096")),
)

# The reports of one group in a range of ids, in the order of the ids: steps of 32 or of 64 bits, times of 64.
series_steps = Table(
    "series_steps",
    Base.metadata,
    Column("trial_id", Integer, primary_key=True, autoincrement=False),
    Column("group", Text, primary_key=True),
    Column("last_id", BigInteger, primary_key=True, autoincrement=False),
    Column("after_id", BigInteger, nullable=False),  # the range begins behind it
    Column("reports", Integer, nullable=False),
    Column("steps", LargeBinary, nullable=False),
    Column("times", LargeBinary, nullable=False),  # microseconds since 1970
)

# Their values of one metric, as doubles.
series_values = Table(
    "series_values",
    Base.metadata,
    Column("trial_id", Integer, primary_key=True, autoincrement=False),
    Column("group", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("last_id", BigInteger, primary_key=True, autoincrement=False),
    Column("places", LargeBinary),  # indices of the reports, 32-bit; NULL: all of them
    Column("values", LargeBinary, nullable=False),
)

log_progress = Table(
    "log_progress",
    Base.metadata,
    Column("task_id", Text, primary_key=True),
    Column("upto", BigInteger, nullable=False),  # all lines up to this id are in blocks
    Column("pending", BigInteger, nullable=False),  # approximate number of counted rows that are not compacted
    Index("ix_log_progress_pending", "pending", postgresql_where=text("pending >= 4096")),
)

# Lines in a range of ids: their text in lower case, and the distinct values of each column that they are filtered by.
log_blocks = Table(
    "log_blocks",
    Base.metadata,
    Column("task_id", Text, primary_key=True),
    Column("last_id", BigInteger, primary_key=True, autoincrement=False),
    Column("first_id", BigInteger, nullable=False),  # after the last line of the block before
    Column("levels", Integer, nullable=False),  # bit 1 << level
    Column("first_at", DateTime(timezone=True), nullable=False),
    Column("last_at", DateTime(timezone=True), nullable=False),
    Column("rank_ids", ARRAY(Integer), nullable=False),
    Column("allocation_ids", ARRAY(Text), nullable=False),
    Column("agent_ids", ARRAY(Text), nullable=False),
    Column("container_ids", ARRAY(Text), nullable=False),
    Column("stdtypes", ARRAY(Text), nullable=False),
    Column("sources", ARRAY(Text), nullable=False),
    Column("text", Text, nullable=False),
)
