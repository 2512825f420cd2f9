"""Measurements of many jobs in one transaction.

What trials report most often, training metrics in the order of their steps, leads to no decision: it is stored, and
summed up on the trial. So what arrives while one transaction is under way shares the next one, at the price of two
statements for all instead of a dozen for each. Whatever is more than that is left to `job_reports.take_reports`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from trainmaster.config.limits import in_force
from trainmaster.master.services.allocations.job_log import Json
from trainmaster.master.services.allocations.job_reports import HEARTBEAT_GRAIN, ReportAnswer
from trainmaster.master.services.clock import from_epoch, now
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.services.store import Store

_FIELDS = frozenset({"t", "kind", "group", "steps_completed", "metrics"})
_FEW_GROUPS = 10
_SHORT = 200  # characters of a name that nobody counts
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
        and metric_reports.kind_of(group) in ("training", "generic")
        and type(steps) is int
        and 0 < steps <= metric_reports.MAX_STEPS
        and type(measured) is dict
        and "" not in measured
        and len(group) <= _SHORT
        and max(map(len, measured), default=0) <= _SHORT
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
    with store.raw_cursor() as cursor:
        return _Gathering(cursor, sent).take()


class _Attempt(NamedTuple):
    """What is known of an attempt, its stream and its trial before its records are taken in."""

    id: str
    acked: int
    trial_id: int
    number: int
    ended_at: dt.datetime | None
    kill_at: dt.datetime | None
    preempt_at: dt.datetime | None
    preempt_reason: str | None
    heartbeat_at: dt.datetime | None
    total_batches: int
    summary: str  # JSON


class _Gathering:
    def __init__(self, cursor: Any, sent: Sequence[Sent]) -> None:
        self._cursor = cursor
        self._sent = {item.allocation_id: item for item in sorted(sent, key=lambda item: item.allocation_id)}
        self._order = [item.allocation_id for item in sent]

    def take(self) -> list[ReportAnswer | None]:
        taken: set[int] = set()
        rows: list[Json] = []
        changed: list[Json] = []
        streams: list[Json] = []
        answered: list[_Attempt] = []
        answers: dict[str, ReportAnswer] = {}
        self._cursor.execute(_ATTEMPTS, {"ids": list(self._sent)})
        for attempt in map(_Attempt._make, self._cursor.fetchall()):
            item = self._sent[attempt.id]
            skip = attempt.acked + 1 - item.first
            fresh = item.records[max(skip, 0) :]
            # Another attempt of the same trial, which should have gone, has to build on what the first one adds.
            if attempt.trial_id in taken or skip < 0 or not _goes_on(attempt.total_batches, fresh):
                continue
            summed = _summed(attempt, fresh) if fresh else {}
            if fresh and not _few(summed["summary"]):
                continue
            taken.add(attempt.trial_id)
            acked = attempt.acked + len(fresh)
            if fresh:
                rows += [_row(attempt, record) for record in fresh]
                changed.append(summed)
                streams.append({"id": attempt.id, "acked": acked})
            gone = attempt.ended_at is not None or attempt.kill_at is not None
            preempt = attempt.preempt_reason or "asked to" if attempt.preempt_at is not None else None
            answered.append(attempt)
            answers[attempt.id] = ReportAnswer(acked, preempt, gone)
        if rows:
            told = {"rows": _json(rows), "trials": _json(changed), "streams": _json(streams)}
            self._cursor.execute(_STORE, told)
        self._note_life(answered)
        return [answers.get(allocation_id) for allocation_id in self._order]

    def _note_life(self, attempts: Sequence[_Attempt]) -> None:
        at = now()
        stale = [
            row.id
            for row in attempts
            if row.heartbeat_at is None or (at - row.heartbeat_at).total_seconds() >= HEARTBEAT_GRAIN
        ]
        if stale:
            self._cursor.execute(_LIFE, {"ids": stale, "at": at})


def _goes_on(total: int, records: Sequence[Json]) -> bool:
    """Whether each record is of steps that its trial has not reported before: then there is nothing to merge with, and
    nothing of an earlier attempt to put aside."""
    last: dict[str, int] = {}
    for record in records:
        if record["steps_completed"] <= last.get(record["group"], total):
            return False
        last[record["group"]] = record["steps_completed"]
    return True


def _row(attempt: _Attempt, record: Json) -> Json:
    return {
        "kind": metric_reports.kind_of(record["group"]),
        "trial_id": attempt.trial_id,
        "run_id": attempt.number,
        "group": record["group"],
        "steps": record["steps_completed"],
        "at": from_epoch(float(record["t"])),
        "metrics": {"avg_metrics": record["metrics"]},
    }


def _summed(attempt: _Attempt, records: Sequence[Json]) -> Json:
    added: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in records:
        group = record["group"]
        for name, value in record["metrics"].items():
            added[group, name].append(value)
    return {
        "id": attempt.trial_id,
        "summary": metric_reports.summarised(from_json(attempt.summary), added),
        "total": max(attempt.total_batches, *(record["steps_completed"] for record in records)),
    }


def _few(summary: Json) -> bool:
    """Whether the trial has no more metrics than it may."""
    most = in_force().metric_names
    return len(summary) < _FEW_GROUPS and all(len(names) <= most for names in summary.values())


def _json(rows: Sequence[Json]) -> str:
    """A sum that has become infinite makes something that the database refuses, as it refuses it of one alone."""
    return to_json(rows, inf_nan_mode="constants").decode()


# The fields of _Attempt. What is read is locked, all streams before the first trial.
_ATTEMPTS = """
    WITH attempts AS MATERIALIZED (
        SELECT id, acked, trial_id, attempt, ended_at, kill_at, preempt_at, preempt_reason, heartbeat_at
        FROM report_streams JOIN allocations ON id = allocation_id
        WHERE allocation_id = ANY(%(ids)s) AND stream = 'core' AND trial_id IS NOT NULL
        ORDER BY id FOR UPDATE OF report_streams
    )
    SELECT attempts.*, total_batches, summary_metrics::text
    FROM attempts JOIN trials ON trials.id = trial_id ORDER BY trials.id FOR UPDATE OF trials
"""
_SUM = """
    summed AS (
        UPDATE trials SET summary_metrics = fresh.summary, total_batches = fresh.total
        FROM jsonb_to_recordset(CAST(%(trials)s AS jsonb)) AS fresh(id int, summary jsonb, total int)
        WHERE trials.id = fresh.id
    )
    UPDATE report_streams SET acked = fresh.acked
    FROM jsonb_to_recordset(CAST(%(streams)s AS jsonb)) AS fresh(id text, acked bigint)
    WHERE report_streams.allocation_id = fresh.id AND stream = 'core'
"""
_STORE = f"WITH stored AS ({metric_reports.INSERTION.format(rows='%(rows)s')}), {_SUM}"
_LIFE = "UPDATE allocations SET heartbeat_at = %(at)s WHERE id = ANY(%(ids)s)"
