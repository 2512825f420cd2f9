"""Decides when a trial or task has enough new records to compact; shared by `series_columns` and `log_blocks`.

Rows are counted in the order of their ids, some thousands at a time, up to an id that was the newest a while ago: newer
rows may still be merged with others, and a transaction that drew a lower id may still be open. The count only decides
when compaction pays off; the rows themselves decide what is compacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import TextClause, select, update

from trainmaster.master.db.compacted import counted
from trainmaster.master.services.context import BoundService

RANGE = 32_768  # ids counted at once
ENOUGH = 4096  # minimum rows of a trial or task for compaction; the partial indices of `pending` use it too


@dataclass(frozen=True)
class CompactionSource:
    """`newest` asks for the highest id; `count` adds to what is pending of each owner of rows after `:after`, up to
    `:upto`."""

    name: str
    newest: TextClause
    count: TextClause


class Compaction(BoundService):
    """How far series and logs are compacted."""

    def newest(self, source: CompactionSource) -> int:
        with self._store.autocommit() as session:
            return int(session.execute(source.newest).scalar_one() or 0)

    def count(self, source: CompactionSource, settled: int) -> bool:
        """Count the next rows up to `settled`. Returns whether some are left."""
        if self.counted_upto(source) >= settled:
            return False  # without a lock: usually there is nothing new
        with self._store.transaction() as session:
            query = select(counted.c.id).where(counted.c.source == source.name).with_for_update()
            after: int = session.execute(query).scalar_one()
            upto = min(settled, after + RANGE)
            if upto <= after:
                return False
            span: Mapping[str, Any] = {"after": after, "upto": upto}
            session.execute(source.count, span)
            session.execute(update(counted).where(counted.c.source == source.name).values(id=upto))
        return upto < settled

    def counted_upto(self, source: CompactionSource) -> int:
        with self._store.autocommit() as session:
            return int(session.execute(select(counted.c.id).where(counted.c.source == source.name)).scalar_one())
