"""Events of searches since their snapshots.

A search is its snapshot (`experiments.search`) and the events behind it, in the order of their ids. The ids are the
versions of searches: `experiments.search_version` is that of the last event, `experiments.snapshot_version` that of the
snapshot. They come from one sequence, which never returns a number twice, also not after a rollback: two states of a
search under one version are the same state.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Double, ForeignKey, Integer, Sequence, Table, Text

from trainmaster.master.db.tables import Base

search_versions = Sequence("search_versions", metadata=Base.metadata, data_type=BigInteger)

search_events = Table(
    "search_events",
    Base.metadata,
    Column("experiment_id", ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True),
    Column("id", BigInteger, primary_key=True, server_default=search_versions.next_value()),
    # The fields of `SearchEvent`.
    Column("kind", Text, nullable=False),
    Column("trial", Integer, nullable=False),
    Column("value", Double),
    Column("time", Double),
    Column("complaint", Text, nullable=False),
    Column("actions", Integer, nullable=False),
    # JSON and not JSONB, which changes how numbers are written.
    Column("others", JSON(none_as_null=True)),
    Column("slot_seconds", Double),
    Column("at", Double),
    Column("drawn", JSON(none_as_null=True)),
)
