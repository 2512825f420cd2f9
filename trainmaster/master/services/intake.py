"""Measurements of many jobs in one transaction.

What trials report most often, training metrics in the order of their steps, leads to no decision: it is stored, and
summed up on the trial. So what arrives while one transaction is under way shares the next one, at the price of seven
statements for all instead of a dozen for each. Whatever is more than that is left to `allocations.take_reports`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from trainmaster.master.services import metrics
from trainmaster.master.services.allocations import HEARTBEAT_GRAIN, Json, ReportAnswer
from trainmaster.master.services.clock import from_epoch, now
from trainmaster.master.services.store import Store

_FIELDS = frozenset({"t", "kind", "group", "steps_completed", "metrics"})
_EXACT = 2**53  # integers beyond are no floats


@dataclass(frozen=True)
class Sent:
    """Records number `first`.. of an allocation's stream `core`."""

    allocation_id: str
    first: int
    records: Sequence[Json]


def is_plain(records: Sequence[Json]) -> bool:
    """Whether all of them are finite measurements, none of them a validation: these decide nothing."""
    return bool(records) and all(map(_is_measurement, records))


def _is_measurement(record: Json) -> bool:
    group, steps, measured = record.get("group"), record.get("steps_completed"), record.get("metrics")
    return (
        record.get("kind") == "metrics"
        and _FIELDS.issuperset(record)
        and isinstance(group, str)
        and bool(group)
        and "." not in group
        and metrics.kind_of(group) in ("training", "generic")
        and type(steps) is int
        and 0 < steps <= metrics.MAX_STEPS
        and type(measured) is dict
        and "" not in measured
        and "t" in record
        and all(
            math.isfinite(value) if type(value) is float else type(value) is int and abs(value) < _EXACT
            for value in measured.values()
        )
    )


def take_together(store: Store, sent: Sequence[Sent]) -> list[ReportAnswer | None]:
    """Store plain records of different allocations, each exactly once; None for those that have to go the ordinary way:
    a stream that is new or whose records leave a gap, an attempt that goes back in its steps or goes on from another.

    The rows are locked in one order by all: streams, then trials, each by id.
    """
    with store.transaction() as session:
        return _Gathering(session, sent).take()


class _Gathering:
    def __init__(self, session: Session, sent: Sequence[Sent]) -> None:
        self._session = session
        self._sent = {item.allocation_id: item for item in sorted(sent, key=lambda item: item.allocation_id)}
        self._order = [item.allocation_id for item in sent]

    def take(self) -> list[ReportAnswer | None]:
        ids = list(self._sent)
        acked = {row.allocation_id: row.acked for row in self._ask(_STREAMS, ids=ids)}
        attempts = {row.id: row for row in self._ask(_ATTEMPTS, ids=ids) if row.id in acked}
        trials = {row.id: row for row in self._ask(_TRIALS, ids=sorted({row.trial_id for row in attempts.values()}))}
        rows: list[Json] = []
        changed: list[Json] = []
        streams: list[Json] = []
        answers: dict[str, ReportAnswer] = {}
        for allocation_id, attempt in attempts.items():
            item, trial, before = self._sent[allocation_id], trials.get(attempt.trial_id), acked[allocation_id]
            skip = before + 1 - item.first
            fresh = item.records[max(skip, 0) :]
            if trial is None or skip < 0 or not _goes_on(trial.total_batches, fresh):
                continue
            if fresh:
                rows += [_row(attempt, record) for record in fresh]
                changed.append({"id": trial.id, **_summary(trial.summary_metrics, trial.total_batches, fresh)})
                streams.append({"id": allocation_id, "acked": before + len(fresh)})
            gone = attempt.ended_at is not None or attempt.kill_at is not None
            preempt = attempt.preempt_reason or "asked to" if attempt.preempt_at is not None else None
            answers[allocation_id] = ReportAnswer(before + len(fresh), preempt, gone)
        if rows:
            self._tell(metrics.INSERT, rows)
            self._tell(_SUMMARIES, changed)
            self._tell(_ACKED, streams)
        self._note_life([attempts[allocation_id] for allocation_id in answers])
        return [answers.get(allocation_id) for allocation_id in self._order]

    def _note_life(self, attempts: Sequence[Row[Any]]) -> None:
        at = now()
        stale = [
            row.id
            for row in attempts
            if row.heartbeat_at is None or (at - row.heartbeat_at).total_seconds() >= HEARTBEAT_GRAIN
        ]
        if stale:
            self._session.execute(_LIFE, {"ids": stale, "at": at})

    def _ask(self, query: Any, **values: Any) -> Sequence[Row[Any]]:
        return self._session.execute(query, values).all()

    def _tell(self, statement: Any, rows: Sequence[Json]) -> None:
        sent = json.dumps(rows, separators=(",", ":"), allow_nan=False)
        self._session.execute(statement, {"rows": sent})


def _goes_on(total: int, records: Sequence[Json]) -> bool:
    """Whether each record is of steps that its trial has not reported before: then there is nothing to merge with, and
    nothing of an earlier attempt to put aside."""
    last: dict[str, int] = {}
    for record in records:
        if record["steps_completed"] <= last.get(record["group"], total):
            return False
        last[record["group"]] = record["steps_completed"]
    return True


def _row(attempt: Row[Any], record: Json) -> Json:
    return {
        "kind": metrics.kind_of(record["group"]),
        "trial_id": attempt.trial_id,
        "run_id": attempt.attempt,
        "group": record["group"],
        "steps": record["steps_completed"],
        "at": from_epoch(float(record["t"])).isoformat(),
        "metrics": {"avg_metrics": record["metrics"]},
    }


def _summary(before: Mapping[str, Any], total: int, records: Sequence[Json]) -> Json:
    added: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in records:
        group = record["group"]
        for name, value in record["metrics"].items():
            added[group, name].append(value)
    steps = max(record["steps_completed"] for record in records)
    return {"summary": metrics.summarised(dict(before), added), "total": max(total, steps)}


# A row lock on what is read; the planner reads few rows by their keys.
_STREAMS = text("""
    SELECT allocation_id, acked FROM report_streams
    WHERE allocation_id = ANY(:ids) AND stream = 'core' ORDER BY allocation_id FOR UPDATE
""")
_ATTEMPTS = text("""
    SELECT id, trial_id, attempt, ended_at, kill_at, preempt_at, preempt_reason, heartbeat_at FROM allocations
    WHERE id = ANY(:ids) AND trial_id IS NOT NULL
""")
_TRIALS = text("""
    SELECT id, total_batches, summary_metrics FROM trials WHERE id = ANY(:ids) ORDER BY id FOR UPDATE
""")
_SUMMARIES = text("""
    UPDATE trials SET summary_metrics = fresh.summary, total_batches = fresh.total
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS fresh(id int, summary jsonb, total int)
    WHERE trials.id = fresh.id
""")
_ACKED = text("""
    UPDATE report_streams SET acked = fresh.acked
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS fresh(id text, acked bigint)
    WHERE report_streams.allocation_id = fresh.id AND stream = 'core'
""")
_LIFE = text("UPDATE allocations SET heartbeat_at = :at WHERE id = ANY(:ids)")
