"""Metric reports: one JSONB row per report, summaries on the trial's row in the same transaction.

The rules are Determined's (upstream 0.38.1): a report of a newer run puts older runs' later rows aside; reports of the
same run, group and steps are merged; NaN and infinities travel as strings.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    RowMapping,
    any_,
    literal,
    select,
    tuple_,
)
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import metrics
from trainmaster.master.services.context import BoundService
from trainmaster.master.values.stored import Json

SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MAX_STEPS = 2**63 - 1
PROFILING = frozenset({"gpu", "cpu", "memory", "disk", "network"})


def kind_of(group: str) -> str:
    """Return the partition that a group's reports are kept in."""
    if group in ("training", "validation"):
        return group
    return "profiling" if group in PROFILING else "generic"


@dataclass(frozen=True)
class MetricReport:
    """What a trial measured. `steps` counts batches, or whatever the trial counts."""

    group: str
    steps: int
    metrics: Mapping[str, Any]
    batch_metrics: Sequence[Mapping[str, Any]] | None
    at: dt.datetime

    @property
    def kind(self) -> str:
        return kind_of(self.group)

    @property
    def key(self) -> str:
        return "validation_metrics" if self.group == "validation" else "avg_metrics"

    def stored(self) -> Json:
        """Return the JSON that is kept, and that metric streams return."""
        stored: Json = {self.key: dict(self.metrics)}
        if self.batch_metrics:
            stored["batch_metrics"] = list(self.batch_metrics)
        return stored


def number(value: Any) -> float | None:
    """Return the value as a float, with the strings that stand for NaN and infinities; None when it is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return SPECIAL.get(value) if isinstance(value, str) else None


def better(value: float, than: float | None, smaller: bool) -> bool:
    return than is None or (value < than if smaller else value > than)


@dataclass(frozen=True)
class StoredReport:
    id: int
    trial_id: int
    run_id: int
    group: str
    steps: int
    at: dt.datetime
    archived: bool
    metrics: Json


_FIELDS = ("id", "trial_id", "run_id", "group", "steps", "at", "archived", "metrics")


def _stored_report(row: RowMapping) -> StoredReport:
    return StoredReport(**{name: row[name] for name in _FIELDS})


def stored_reports(session: Session, ids: Sequence[int], kinds: Sequence[str]) -> dict[int, StoredReport]:
    """Read the reports of some kinds, by id."""
    if not ids:
        return {}
    query = select(metrics).where(
        metrics.c.id == any_(literal(list(ids), ARRAY(BigInteger))), metrics.c.kind.in_(kinds)
    )
    return {row["id"]: _stored_report(row) for row in session.execute(query).mappings()}


class MetricReports(BoundService):
    """Stored metric reports of trials, as streams."""

    def stream(self, trial_ids: Sequence[int], group: str | None, *, page: int = 1000) -> Iterator[StoredReport]:
        """All reports of some trials in (trial, steps, id) order, read page by page."""
        for trial_id in sorted(set(trial_ids)):
            yield from self._stream_of(trial_id, group, page)

    def _stream_of(self, trial_id: int, group: str | None, page: int) -> Iterator[StoredReport]:
        m = metrics.c
        query = select(metrics).where(m.trial_id == trial_id, ~m.archived)
        query = query.where(m.group == group, m.kind == kind_of(group)) if group else query.where(m.kind != "profiling")
        after = (-1, -1)
        while True:
            piece = query.where(tuple_(m.steps, m.id) > after).order_by(m.steps, m.id).limit(page)
            with self._store.transaction() as session:
                rows = session.execute(piece).mappings().all()
            yield from map(_stored_report, rows)
            if len(rows) < page:
                return
            after = (rows[-1]["steps"], rows[-1]["id"])
