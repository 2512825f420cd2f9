"""Metric reports: one JSONB row a report, summaries on the trial's row in the same transaction.

The rules are Determined's (upstream 0.38.1): a report of a newer run puts older runs' later rows aside; reports of the
same run, group and steps are merged; NaN and infinities travel as strings.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, tuple_, update
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Checkpoint, Trial, metrics
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.store import Store

Json = dict[str, Any]
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
MAX_STEPS = 2**31 - 1
MAX_INTEGER = 10**300  # what still is a float
PROFILING = frozenset({"gpu", "cpu", "memory", "disk", "network"})


@dataclass(frozen=True)
class Report:
    """What a trial measured. `steps` counts batches, or whatever the trial counts."""

    group: str
    steps: int
    metrics: Mapping[str, Any]
    batch_metrics: Sequence[Mapping[str, Any]] | None
    at: dt.datetime

    @property
    def kind(self) -> str:
        if self.group in ("training", "validation"):
            return self.group
        return "profiling" if self.group in PROFILING else "generic"

    def stored(self) -> Json:
        """The JSON that is kept, and that metric streams return."""
        key = "validation_metrics" if self.group == "validation" else "avg_metrics"
        found: Json = {key: dict(self.metrics)}
        if self.batch_metrics:
            found["batch_metrics"] = list(self.batch_metrics)
        return found


def check(report: Report) -> None:
    """Raises Invalid with the name that does not fit."""
    if not report.group or "." in report.group:
        raise Invalid(f"The metric group {report.group!r} must not be empty or contain a dot.")
    if not 0 <= report.steps <= MAX_STEPS:
        raise Invalid(f"steps_completed must be between 0 and {MAX_STEPS}, but is {report.steps}.")
    if report.batch_metrics is not None and not isinstance(report.batch_metrics, list | tuple):
        raise Invalid("batch_metrics must be a list.")
    for name, value in report.metrics.items():
        if not name:
            raise Invalid("A metric's name must not be empty.")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise Invalid(f"The metric {name!r} is too large a number to calculate with.")
        if name in ("epoch", "epochs") and number(value) is None:
            raise Invalid(f"The metric {name!r} must be a number, but is {value!r}.")


def number(value: Any) -> float | None:
    """The value as a float, with the strings that stand for NaN and infinities; None when it is no number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    return SPECIAL.get(value) if isinstance(value, str) else None


def take(
    session: Session, trial: Trial, run_id: int, reports: Sequence[Report], metric: str, smaller: bool
) -> list[Report]:
    """Store `reports` of one run, in order, under the trial's row lock. Returns those that were new.

    `metric` and `smaller` name the searcher's metric, for the best validation.
    """
    fresh: list[Report] = []
    rows: list[Json] = []
    for report in reports:
        check(report)
        if run_id > 1:
            _put_aside(session, trial, run_id, report)
        if not _merge_into_existing(session, trial, run_id, report, rows):
            rows.append(
                {
                    "kind": report.kind,
                    "trial_id": trial.id,
                    "run_id": run_id,
                    "group": report.group,
                    "steps": report.steps,
                    "at": report.at,
                    "metrics": report.stored(),
                }
            )
            fresh.append(report)
        if report.kind != "profiling":
            trial.total_batches = max(trial.total_batches, report.steps)
        trial.summary_metrics = summarised(trial.summary_metrics, report)
        if report.group == "validation":
            _note_validation(session, trial, report, metric, smaller)
    if rows:
        session.execute(insert(metrics), rows)
    return fresh


def _put_aside(session: Session, trial: Trial, run_id: int, report: Report) -> None:
    m = metrics.c
    beyond = (m.steps > report.steps) | ((m.steps == report.steps) & (m.kind == report.kind))
    session.execute(
        update(metrics).where(m.trial_id == trial.id, m.run_id < run_id, ~m.archived, beyond).values(archived=True)
    )


def _merge_into_existing(session: Session, trial: Trial, run_id: int, report: Report, pending: list[Json]) -> bool:
    """Same run, group and steps: union of the keys, the first value stays. True when there was such a row."""
    for row in pending:
        if row["group"] == report.group and row["steps"] == report.steps:
            row["metrics"] = _union(row["metrics"], report.stored())
            return True
    m = metrics.c
    same = (m.trial_id == trial.id, m.group == report.group, m.steps == report.steps, m.run_id == run_id, ~m.archived)
    found = session.execute(select(m.id, m.kind, m.metrics).where(*same)).first()
    if found is None:
        return False
    merged = _union(found.metrics, report.stored())
    session.execute(update(metrics).where(m.id == found.id, m.kind == found.kind).values(metrics=merged))
    return True


def _union(first: Json, second: Json) -> Json:
    merged = {**second, **first}
    for key in ("avg_metrics", "validation_metrics"):
        if key in first and key in second:
            merged[key] = {**second[key], **first[key]}
    return merged


def _note_validation(session: Session, trial: Trial, report: Report, metric: str, smaller: bool) -> None:
    shown = {
        "totalBatches": report.steps,
        "endTime": report.at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "metrics": {"avgMetrics": dict(report.metrics)},
    }
    trial.latest_validation = shown
    value = number(report.metrics.get(metric))
    if value is not None and math.isfinite(value) and better(value, trial.searcher_metric, smaller):
        trial.searcher_metric = value
        trial.best_validation = shown
    session.execute(
        update(Checkpoint)
        .where(Checkpoint.trial_id == trial.id, Checkpoint.steps_completed == report.steps)
        .values(metric=value if value is None or math.isfinite(value) else None, validation=dict(report.metrics))
    )


def better(value: float, than: float | None, smaller: bool) -> bool:
    return than is None or (value < than if smaller else value > than)


def summarised(summary: Json, report: Report) -> Json:
    """The trial's summary after `report`: per group and metric count, min, max, sum, mean, last and type."""
    key = {"training": "avg_metrics", "validation": "validation_metrics"}.get(report.group, report.group)
    group = dict(summary.get(key, {}))
    for name, value in report.metrics.items():
        group[name] = _with(group.get(name), value)
    return {**summary, key: group}


def _with(before: Json | None, value: Any) -> Json:
    numeric = number(value)
    kind = _type(value) if before is None or before["type"] == _type(value) else "string"
    entry: Json = {"type": kind, "count": (before or {}).get("count", 0) + 1, "last": value}
    if kind != "number" or numeric is None:
        return entry
    if not math.isfinite(numeric):
        return {**(before or {}), **entry}
    total = (before or {}).get("sum", 0.0) + numeric
    finite = (before or {}).get("finite", 0) + 1
    entry |= {"sum": total, "mean": total / finite, "finite": finite}
    entry["min"] = min(numeric, (before or {}).get("min", numeric))
    entry["max"] = max(numeric, (before or {}).get("max", numeric))
    return entry


def _type(value: Any) -> str:
    if number(value) is not None:
        return "number"
    names = {bool: "boolean", str: "string", dict: "object", list: "array", type(None): "null"}
    return names.get(type(value), "string")


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


def stream(store: Store, trial_ids: Sequence[int], group: str | None, *, page: int = 1000) -> Iterator[StoredReport]:
    """All reports of some trials in (trial, steps, id) order, read page by page."""
    m = metrics.c
    after: tuple[int, int, int] = (-1, -1, -1)
    while True:
        query = select(metrics).where(m.trial_id.in_(trial_ids), ~m.archived)
        query = query.where(m.group == group) if group else query.where(m.kind != "profiling")
        query = query.where(tuple_(m.trial_id, m.steps, m.id) > after).order_by(m.trial_id, m.steps, m.id).limit(page)
        with store.transaction() as session:
            rows = session.execute(query).mappings().all()
        for row in rows:
            fields = {
                key: row[key] for key in ("id", "trial_id", "run_id", "group", "steps", "at", "archived", "metrics")
            }
            yield StoredReport(**fields)
        if len(rows) < page:
            return
        last = rows[-1]
        after = (last["trial_id"], last["steps"], last["id"])
