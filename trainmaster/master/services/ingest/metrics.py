"""Stores metric reports: one JSONB row per report, summaries on the trial's row in the same transaction.

The rules are Determined's (upstream 0.38.1): a report of a newer run puts older runs' later rows aside; reports of the
same run, group and steps are merged; NaN and infinities travel as strings.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import to_json
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Text,
    any_,
    func,
    literal,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from trainmaster.config.limits import Limits
from trainmaster.master.db.tables import Checkpoint, Trial, metrics
from trainmaster.master.services import bounds
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.metrics.metric_reports import MAX_STEPS, MetricReport, better, number
from trainmaster.master.values.stored import Json
from trainmaster.master.values.validation import StoredValidation

MAX_INTEGER = 10**300  # what still is a float


def check(limits: Limits, report: MetricReport) -> None:
    """Of a report whose size has been checked (`bounds.check_tree`). Raises Invalid with the name that does not fit."""
    bounds.check_length(limits, report.group, "metric_name", "The name of a metric group")
    if not report.group or "." in report.group:
        raise Invalid(f"The metric group {report.group!r} must not be empty or contain a dot.")
    if not 0 <= report.steps <= MAX_STEPS:
        raise Invalid(f"steps_completed must be between 0 and {MAX_STEPS}, but is {report.steps}.")
    if report.batch_metrics is not None and not isinstance(report.batch_metrics, list | tuple):
        raise Invalid("batch_metrics must be a list.")
    longest = limits.metric_name
    for name, value in report.metrics.items():
        if len(name) > longest:
            bounds.check_length(limits, name, "metric_name", f"The name of the metric {name:.60}")
        if not name:
            raise Invalid("A metric's name must not be empty.")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise Invalid(f"The metric {name!r} is too large a number to calculate with.")
        if name in ("epoch", "epochs") and number(value) is None:
            raise Invalid(f"The metric {name!r} must be a number, but is {value!r}.")


@dataclass(frozen=True)
class Addition:
    """What the reports of one run add to their trial.

    `rows`: to be inserted; `fresh`: the reports that they are of. `changed`: stored rows with new names in them.
    `validations`: each with the values of its row at that moment. `summary`, `total_batches`: the trial's after them.
    """

    trial_id: int
    rows: Sequence[Json]
    fresh: Sequence[MetricReport]
    changed: Sequence[Json]
    validations: Sequence[tuple[MetricReport, Json]]
    summary: Json
    total_batches: int


class TrialTotals(NamedTuple):
    """What a trial's row says of all its reports."""

    trial_id: int
    summary: Json
    total_batches: int


def merge_reports(
    limits: Limits,
    trial: TrialTotals,
    run_id: int,
    reports: Sequence[MetricReport],
    stored: dict[tuple[str, int], Json],
) -> Addition:
    """Return what `reports` of one run, in order, add to a trial. `stored`: the rows of this run for their groups and
    steps, which are completed here. Raises Invalid for too many metrics."""
    trial_id, summary, total = trial
    rows: list[Json] = []
    fresh: list[MetricReport] = []
    changed: dict[int, Json] = {}
    validations: list[tuple[MetricReport, Json]] = []
    added: dict[tuple[str, str], list[Any]] = {}
    for report in reports:
        # A sample of the machine is one of many at the same step: Determined's harness tells of no step at all.
        row = None if report.kind == "profiling" else stored.get((report.group, report.steps))
        new = report.metrics
        if row is None:
            row = stored[(report.group, report.steps)] = _row(trial_id, run_id, report)
            rows.append(row)
            fresh.append(report)
        else:  # what was said first stays; only names that are new are taken
            new = {name: value for name, value in report.metrics.items() if name not in row["metrics"][report.key]}
            row["metrics"] = _union(row["metrics"], report.stored())
            if "id" in row:
                changed[row["id"]] = row
        if report.kind != "profiling":
            total = max(total, report.steps)
        for name, value in new.items():
            added.setdefault((report.group, name), []).append(value)
        if report.group == "validation" and new:
            validations.append((report, row["metrics"][report.key]))
    after = summarised(summary, added)
    _check_names(limits, after, {group for group, _ in added})
    return Addition(trial_id, rows, fresh, list(changed.values()), validations, after, total)


def is_append_only(total_batches: int, reports: Sequence[MetricReport]) -> bool:
    """Whether all reports are of steps beyond those that their trial has: then nothing is there to merge with, and
    nothing of an older run to put aside."""
    return all(report.kind == "profiling" or report.steps > total_batches for report in reports)


def store_reports(
    session: Session, trial: Trial, run_id: int, reports: Sequence[MetricReport], metric: str, smaller: bool
) -> Sequence[MetricReport]:
    """Store `reports` of one run, in order, under the trial's row lock. Returns those that were new.

    `metric` and `smaller` name the searcher's metric, for the best validation.
    """
    limits = bounds.limits_of(session)
    for report in reports:
        check(limits, report)
    stored: dict[tuple[str, int], Json] = {}
    if not is_append_only(trial.total_batches, reports):
        if run_id > 1 and _put_aside(session, trial, run_id, reports):
            _recount(session, trial, metric, smaller)
        stored = _stored_before(session, trial, run_id, reports)
    new = merge_reports(
        limits, TrialTotals(trial.id, trial.summary_metrics, trial.total_batches), run_id, reports, stored
    )
    trial.summary_metrics, trial.total_batches = new.summary, new.total_batches
    for report, values in new.validations:
        _note_validation(trial, report, values, metric, smaller)
    if new.rows:
        session.execute(_INSERT, {"rows": as_json(new.rows)})
    for row in new.changed:
        session.execute(
            update(metrics)
            .where(metrics.c.id == row["id"], metrics.c.kind == row["kind"])
            .values(metrics=row["metrics"])
        )
    validated = {report.steps for report, _ in new.validations}
    _note_on_checkpoints(session, trial, {steps: stored["validation", steps] for steps in validated}, metric)
    return new.fresh


def as_json(rows: Sequence[Json]) -> str:
    """Rows as the parameter of INSERTION. What JSON cannot hold is Invalid here, or for the database."""
    try:
        return to_json(rows, inf_nan_mode="constants").decode()
    except ValueError as error:
        raise Invalid(f"A report cannot be stored: {error}.") from None


# One JSON parameter, whose name is filled in: half the time of a VALUES list on both sides.
INSERTION = """
    INSERT INTO metrics (kind, trial_id, run_id, "group", steps, at, metrics)
    SELECT kind, trial_id, run_id, "group", steps, at, metrics
    FROM jsonb_to_recordset(CAST({rows} AS jsonb))
      AS report(kind text, trial_id int, run_id int, "group" text, steps bigint, at timestamptz, metrics jsonb)
"""


_INSERT = text(INSERTION.format(rows=":rows"))


def _row(trial_id: int, run_id: int, report: MetricReport) -> Json:
    return {
        "kind": report.kind,
        "trial_id": trial_id,
        "run_id": run_id,
        "group": report.group,
        "steps": report.steps,
        "at": report.at,
        "metrics": report.stored(),
    }


def _stored_before(
    session: Session, trial: Trial, run_id: int, reports: Sequence[MetricReport]
) -> dict[tuple[str, int], Json]:
    """Return what this run has already reported for the groups and steps of `reports`, samples of the machine left
    out."""
    reports = [report for report in reports if report.kind != "profiling"]
    if not reports:
        return {}
    m = metrics.c
    groups, steps = {report.group for report in reports}, {report.steps for report in reports}
    query = select(m.id, m.kind, m.group, m.steps, m.metrics).where(
        m.trial_id == trial.id,
        m.kind.in_(sorted({report.kind for report in reports})),
        m.group == any_(literal(sorted(groups), ARRAY(Text))),
        m.steps == any_(literal(sorted(steps), ARRAY(BigInteger))),
        m.run_id == run_id,
        ~m.archived,
    )
    return {(row["group"], row["steps"]): dict(row) for row in session.execute(query).mappings()}


def _put_aside(session: Session, trial: Trial, run_id: int, reports: Sequence[MetricReport]) -> bool:
    """Archive what older runs reported beyond the point to which this run went back. True when there was any.

    Samples of the machine say nothing about how far the training is, so they neither put aside nor are put aside.
    """
    lowest: dict[str, int] = {}
    for report in reports:
        if report.kind != "profiling":
            lowest[report.kind] = min(report.steps, lowest.get(report.kind, report.steps))
    if not lowest:
        return False
    m = metrics.c
    same_kind = [(m.kind == kind) & (m.steps >= steps) for kind, steps in lowest.items()]
    beyond = or_(m.steps > min(lowest.values()), *same_kind)
    older = (m.trial_id == trial.id, m.kind != "profiling", m.run_id < run_id, ~m.archived, beyond)
    if session.execute(select(m.id).where(*older).limit(1)).first() is None:
        return False
    session.execute(update(metrics).where(*older).values(archived=True))
    return True


_RECOUNT = text("""
    SELECT "group", name, count(*) AS count,
           array_agg(DISTINCT CASE WHEN finite OR value IN ('"NaN"', '"Infinity"', '"-Infinity"') THEN 'number'
                                   ELSE jsonb_typeof(value) END) AS types,
           (array_agg(value ORDER BY id DESC))[1] AS last,
           count(*) FILTER (WHERE finite) AS finite,
           coalesce(sum(number) FILTER (WHERE abs(number) < 1e290), 0) AS sum,
           coalesce(sum(number * 2.0::float8 ^ -60) FILTER (WHERE abs(number) >= 1e290), 0) AS huge,
           min(number) AS min, max(number) AS max
    FROM (SELECT id, "group", name, value, jsonb_typeof(value) = 'number' AS finite,
                 CASE WHEN jsonb_typeof(value) = 'number' THEN value::float8 END AS number
          FROM metrics, jsonb_each(coalesce(metrics->'avg_metrics', metrics->'validation_metrics')) AS e(name, value)
          WHERE trial_id = :trial_id AND NOT archived) AS points
    GROUP BY "group", name
""")


def _recount(session: Session, trial: Trial, metric: str, smaller: bool) -> None:
    """Compute the trial's summary, best and latest validation and steps again, after rows were put aside."""
    summary: dict[str, Json] = {}
    for row in session.execute(_RECOUNT, {"trial_id": trial.id}):
        entry: Json = {"type": row.types[0] if len(row.types) == 1 else "string", "count": row.count, "last": row.last}
        if entry["type"] == "number" and row.finite:
            # PostgreSQL fails where a sum overflows or a product underflows, so it sums up huge values made smaller.
            total = _bounded(row.sum + row.huge * 2.0**60)
            entry |= {
                "finite": row.finite,
                "sum": total,
                "mean": total / row.finite,
                "min": row.min,
                "max": row.max,
            }
        summary.setdefault(_summary_key(row.group), {})[row.name] = entry
    trial.summary_metrics = summary
    m = metrics.c
    kept = (m.trial_id == trial.id, m.kind != "profiling", ~m.archived)
    trial.total_batches = session.scalar(select(func.max(m.steps)).where(*kept)) or 0
    value = func.jsonb_extract_path(m.metrics, "validation_metrics", metric, type_=JSONB)
    validations = select(m.steps, m.at, m.metrics).where(*kept, m.group == "validation")
    ranked = validations.where(func.jsonb_typeof(value) == "number").order_by(value if smaller else value.desc(), m.id)
    latest = session.execute(validations.order_by(m.id.desc()).limit(1)).first()
    best = session.execute(ranked.limit(1)).first()
    trial.latest_validation, trial.best_validation = (
        StoredValidation.of(row.steps, row.at, row.metrics["validation_metrics"]) if row else None
        for row in (latest, best)
    )
    trial.searcher_metric = number(best.metrics["validation_metrics"][metric]) if best else None


def _union(first: Json, second: Json) -> Json:
    merged = {**second, **first}
    for key in ("avg_metrics", "validation_metrics"):
        if key in first and key in second:
            merged[key] = {**second[key], **first[key]}
    return merged


def _note_validation(trial: Trial, report: MetricReport, values: Json, metric: str, smaller: bool) -> None:
    trial.latest_validation = StoredValidation.of(report.steps, report.at, values)
    value = number(values.get(metric))
    if value is not None and math.isfinite(value) and better(value, trial.searcher_metric, smaller):
        trial.searcher_metric = value
        trial.best_validation = trial.latest_validation


def _note_on_checkpoints(session: Session, trial: Trial, rows: Mapping[int, Json], metric: str) -> None:
    """Checkpoints know the validation of their own steps. `rows`: the reports by steps."""
    if not rows or trial.checkpoint_count == 0:
        return
    query = select(Checkpoint).where(Checkpoint.trial_id == trial.id, Checkpoint.steps_completed.in_(rows))
    for checkpoint in session.scalars(query):
        values = rows[checkpoint.steps_completed]["metrics"]["validation_metrics"]
        value = number(values.get(metric))
        checkpoint.metric = value if value is not None and math.isfinite(value) else None
        checkpoint.validation = dict(values)


def summarised(summary: Json, added: Mapping[tuple[str, str], Sequence[Any]]) -> Json:
    """Return the trial's summary after new values by group and name: count, min, max, sum, mean, last and type of
    each."""
    after = dict(summary)
    for (group, name), values in added.items():
        key = _summary_key(group)
        if after.get(key) is summary.get(key):
            after[key] = dict(summary.get(key, {}))
        after[key][name] = _after(after[key].get(name), values)
    return after


def _check_names(limits: Limits, summary: Json, groups: Iterable[str]) -> None:
    """Raise Invalid when a trial would have too many metrics: each of its reports works on the sums of all."""
    for group in groups:
        if excess := limits.over(
            "metric_names", len(summary[_summary_key(group)]), f"The trial has {{}} {group} metrics"
        ):
            raise Invalid(excess)
    if excess := limits.over("metric_groups", len(summary), "The trial has {} groups of metrics"):
        raise Invalid(excess)


def _summary_key(group: str) -> str:
    return {"training": "avg_metrics", "validation": "validation_metrics"}.get(group, group)


def _after(before: Json | None, values: Sequence[Any]) -> Json:
    known = before or {}
    kinds = {"number"} if _PLAIN.issuperset(map(type, values)) else set(map(_type, values))
    if before is not None:
        kinds.add(before["type"])
    entry: Json = {"type": "string", "count": known.get("count", 0) + len(values), "last": values[-1]}
    if len(kinds) == 1:
        (entry["type"],) = kinds
    if entry["type"] != "number":
        return entry
    finite = [value for value in map(number, values) if value is not None and math.isfinite(value)]
    if finite:
        total, count = _bounded(known.get("sum", 0.0) + sum(finite)), known.get("finite", 0) + len(finite)
        entry |= {"sum": total, "mean": total / count, "finite": count}
        entry["min"] = min(*finite, known.get("min", finite[0]))
        entry["max"] = max(*finite, known.get("max", finite[0]))
    return {**known, **entry}


def _bounded(total: float) -> float:
    """Return a sum that JSON can hold: of values near the end of what a float holds it may be infinite."""
    return min(max(total, -sys.float_info.max), sys.float_info.max)


_PLAIN = frozenset({int, float})


def _type(value: Any) -> str:
    if number(value) is not None:
        return "number"
    names = {bool: "boolean", str: "string", dict: "object", list: "array", type(None): "null"}
    return names.get(type(value), "string")
