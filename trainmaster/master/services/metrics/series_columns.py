"""Compacts a trial's metric reports into columns, so that a long series takes few pages instead of one for each report.

Reports of many trials arrive mixed and are stored so in their table; a hundred thousand of one trial are as many
places. Reports that no longer change are therefore kept in a second form: of each group the steps and times of its
reports, and of each metric its values, as native arrays in ranges of ids. Reading takes these and the reports behind
the last range, in one snapshot.

Why a table and no cache in the master: it serves the first reader after a start, all masters, and takes no memory.

Never a wrong point:
- Ids of one trial's reports become visible in their order, since a writer holds the trial's row (`Locks` in
  docs/architecture/compaction.md); so all that counts up to an id is there when a report with that id is.
- A writer that changes reports drops the ranges from the lowest changed id on, by a trigger in the same transaction,
  and leaves the id in `changed`. Compaction empties it before reading, and keeps nothing when one is in the range.
"""

from __future__ import annotations

import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, text, update
from sqlalchemy.orm import Session

from trainmaster.master.db.compacted import series_progress, series_steps, series_values
from trainmaster.master.services.compaction import ENOUGH, Compaction, CompactionSource
from trainmaster.master.services.context import BoundService, MasterContext

MOST = 32_768  # reports compacted at once, about
LOCK_CLASS = 7304

SOURCE = CompactionSource(
    "metrics",
    text("SELECT max(id) FROM metrics WHERE kind <> 'profiling'"),
    text("""
        INSERT INTO series_progress AS p (trial_id, upto, pending)
        SELECT trial_id, 0, count(*) FROM metrics
        WHERE id > :after AND id <= :upto AND kind <> 'profiling' GROUP BY trial_id ORDER BY trial_id
        ON CONFLICT (trial_id) DO UPDATE SET pending = p.pending + excluded.pending
    """),
)

# The rows of a range, whatever their kind. The index is in the order of the steps: it is read from end to end, but only
# rows of the range are visited.
_REPORTS = text("""
    SELECT id, "group", steps, (extract(epoch FROM at) * 1000000)::bigint AS at,
           CASE "group" WHEN 'validation' THEN metrics->'validation_metrics' ELSE metrics->'avg_metrics' END AS values
    FROM metrics
    WHERE trial_id = :trial_id AND NOT archived AND id > :after AND id <= :upto AND kind <> 'profiling'
    ORDER BY id
""")


class SeriesColumns(BoundService):
    """Compaction of metric reports."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._compaction = Compaction(master)

    # -- writing ------------------------------------------------------------------------------------------------------
    def due(self) -> list[int]:
        """Trials with enough new reports to compact."""
        p = series_progress.c
        with self._store.autocommit() as session:
            return list(
                session.scalars(select(p.trial_id).where(p.pending >= ENOUGH).order_by(p.pending.desc()).limit(16))
            )

    def compact(self, trial_id: int) -> bool:
        """Store the next range of a trial's reports as columns. Returns whether there may be more. When another
        transaction changed them meanwhile, it does nothing. Writers of new reports never wait for it; writers that
        change reports wait for the last few statements."""
        p = series_progress.c
        with self._store.transaction() as session:
            # Two processes that empty `changed` would not see each other's changes; one that lost the lock cannot write
            # either.
            if not session.scalar(select(func.pg_try_advisory_xact_lock(LOCK_CLASS, trial_id))):
                return False
            with self._store.transaction() as beginning:
                begin = update(series_progress).where(p.trial_id == trial_id).values(changed=None)
                progress = beginning.execute(begin.returning(p.upto, p.pending)).first()
            if progress is None:
                return False
            after: int = progress.upto
            pending: int = progress.pending
            settled = self._compaction.counted_upto(SOURCE)
            span = settled - after
            if pending > 2 * MOST:
                span = max(span * MOST // pending, 1)
            groups: dict[str, _Group] = {}
            end, last = after, 0
            with self._store.autocommit() as reading:
                while not last and end < settled:
                    end = min(end + span, settled)
                    rows = reading.execute(_REPORTS, {"trial_id": trial_id, "after": after, "upto": end})
                    groups, last = _gather(rows)
            # Not up to `end`: a report that drew its id before others were counted may become visible only later, but
            # never after one of its own trial with a higher id.
            upto = last or after
            reports = sum(len(group.steps) for group in groups.values())
            left = 0 if end == settled else max(pending - reports, 0)
            unchanged = (p.trial_id == trial_id) & (p.upto == after) & (p.changed.is_(None) | (p.changed > upto))
            done = update(series_progress).where(unchanged).values(upto=upto, pending=left).returning(p.upto)
            if session.execute(done).first() is None:
                return False
            where = {"trial_id": trial_id, "last_id": upto}
            if steps := [{**where, "after_id": after, **group.row()} for group in groups.values()]:
                session.execute(insert(series_steps), steps)
            if values := [{**where, **row} for group in groups.values() for row in group.columns()]:
                session.execute(insert(series_values), values)
        return end < settled


def forget(session: Session, trial_ids: Sequence[int]) -> None:
    """Remove the columns of trials that are being removed. Their progress is removed first, so that compaction finds
    none."""
    p = series_progress.c
    session.execute(select(p.trial_id).where(p.trial_id.in_(trial_ids)).order_by(p.trial_id).with_for_update())
    for table in (series_progress, series_steps, series_values):
        session.execute(delete(table).where(table.c.trial_id.in_(trial_ids)))


@dataclass
class _Group:
    name: str
    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))
    values: dict[str, tuple[array[int], array[float]]] = field(
        default_factory=lambda: defaultdict(lambda: (array("i"), array("d")))
    )

    def add(self, row: Row[Any]) -> None:
        place = len(self.steps)
        self.steps.append(row.steps)
        self.times.append(row.at)
        for name, value in (row.values or {}).items():
            if (type(value) is float or type(value) is int) and -sys.float_info.max <= value <= sys.float_info.max:
                places, values = self.values[name]
                places.append(place)
                values.append(value)

    def row(self) -> dict[str, Any]:
        return {
            "group": self.name,
            "reports": len(self.steps),
            "steps": _packed(_narrow(self.steps)),
            "times": _packed(self.times),
        }

    def columns(self) -> Iterable[dict[str, Any]]:
        for name, (places, values) in self.values.items():
            everywhere = len(places) == len(self.steps)
            yield {
                "group": self.name,
                "name": name,
                "places": None if everywhere else _packed(places),
                "values": _packed(values),
            }


def _gather(rows: Iterable[Row[Any]]) -> tuple[dict[str, _Group], int]:
    """Gather the reports by group; return these and the id of the last one, 0 where there is none."""
    groups: dict[str, _Group] = {}
    last = 0
    for row in rows:
        group = groups.get(row.group)
        if group is None:
            group = groups[row.group] = _Group(row.group)
        group.add(row)
        last = row.id
    return groups, last


def _narrow(steps: array[int]) -> array[int]:
    """Return steps in 32 bits where they fit: all but those that count tokens do."""
    return array("i", steps) if max(steps, default=0) < 2**31 else steps


def _packed(values: array[Any]) -> bytes:
    """Little-endian, whatever this machine is: several masters may serve one database."""
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


# -- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnBlock:
    """A section of a series in the order of the reports: steps, times (microseconds since 1970) and values of the same
    length, the place of each point's report, and by that place the epochs."""

    steps: Sequence[int]
    times: Sequence[int]
    values: Sequence[float]
    places: Sequence[int]
    epochs: Sequence[float | None] | Mapping[int, float]

    def epoch(self, point: int) -> float | None:
        place = self.places[point]
        return self.epochs.get(place) if isinstance(self.epochs, Mapping) else self.epochs[place]


def upto(session: Session, trial_ids: Sequence[int]) -> dict[int, int]:
    """Return the id up to which reports are kept as columns; trials without columns have no entry."""
    p = series_progress.c
    query = select(p.trial_id, p.upto).where(p.trial_id.in_(trial_ids), p.upto > 0)
    return {row.trial_id: row.upto for row in session.execute(query)}


def pieces(session: Session, trial_id: int, group: str, name: str, epoch: str) -> list[ColumnBlock]:
    """Return the blocks of a metric, oldest first, with the metric `epoch` of the same reports."""
    s, v, e = series_steps.c, series_values.c, series_values.alias("epochs").c
    same = [(c.trial_id == s.trial_id) & (c.group == s.group) & (c.last_id == s.last_id) for c in (v, e)]
    query = (
        select(
            s.steps,
            s.times,
            v.places,
            v["values"].label("measured"),
            e.places.label("epoch_places"),
            e["values"].label("epochs"),
        )
        .select_from(series_steps)
        .join(v.trial_id.table, same[0] & (v.name == name))
        .outerjoin(e.trial_id.table, same[1] & (e.name == epoch))
        .where(s.trial_id == trial_id, s.group == group)
        .order_by(s.last_id)
    )
    return [_piece(row) for row in session.execute(query)]


def _piece(row: Any) -> ColumnBlock:
    times, values = _unpacked("q", row.times), _unpacked("d", row.measured)
    steps = _unpacked("q", row.steps) if len(row.steps) == len(row.times) else array("q", _unpacked("i", row.steps))
    epochs: Sequence[float | None] | Mapping[int, float] = {}
    if row.epochs is not None:
        epochs = _unpacked("d", row.epochs)
        if row.epoch_places is not None:
            epochs = dict(zip(_unpacked("i", row.epoch_places), epochs, strict=True))
    if row.places is None:
        return ColumnBlock(steps, times, values, range(len(steps)), epochs)
    places = _unpacked("i", row.places)
    return ColumnBlock([steps[place] for place in places], [times[place] for place in places], values, places, epochs)


def _unpacked(kind: str, packed: bytes) -> array[Any]:
    values: array[Any] = array(kind)
    values.frombytes(packed)
    if sys.byteorder == "big":
        values.byteswap()
    return values
