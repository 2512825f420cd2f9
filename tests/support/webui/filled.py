"""Ten thousand experiments as a site has them after some months, with names that nobody should have."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, text

from trainmaster.master.db.tables import Experiment, Job

SIZE = 10_000
SUBJECTS = (
    "vit-base imagenet",
    "llama-lora",
    "unet cells",
    "wind forecast",
    "bert glue mnli",
    "mnist search",
    "gnn qm9",
)
METRICS = (("val_loss", True), ("accuracy", False), ("validation_error", True))
POOLS = ("gpu-a100", "gpu-h100", "cpu-long")
LABELS: Sequence[list[str]] = (["baseline"], ["ablation", "paper"], [], ["vit"], ["sweep", "lr"])
HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "invoice\u202egpj.exe",
    "zero\u200bwidth and \u0007 bell",
    "x" * 5000,
    '=HYPERLINK("http://evil.example","click")',
    "ünïcödé 実験 🧪 & \"quotes\" 'single'",
)


def fill(connection: Connection, size: int = SIZE, *, now: dt.datetime | None = None) -> None:
    """Fills an empty database whose users 1 and 2 exist. The newest experiments run, wait or have failed."""
    rows = [_experiment(number, size, now or dt.datetime.now(dt.UTC)) for number in range(1, size + 1)]
    jobs = [{"job_id": row["job_id"], "job_type": "EXPERIMENT", "owner_id": row["owner_id"]} for row in rows]
    connection.execute(insert(Job), jobs)
    connection.execute(insert(Experiment), rows)
    connection.execute(
        text("""
        INSERT INTO tasks (task_id, task_type, job_id, start_time, end_time)
        SELECT 'filled-' || id, 'TRIAL', job_id, start_time, coalesce(end_time, now()) FROM experiments""")
    )
    connection.execute(
        text("""
        INSERT INTO trials (id, experiment_id, task_id, request_id, state, reason, hparams, seed, attempts, restarts,
            setbacks, searcher_told, runner_state, progress, total_batches, summary_metrics, searcher_metric,
            checkpoint_count, checkpoint_size, start_time, end_time)
        SELECT id, id, 'filled-' || id, 'request-' || id, 'COMPLETED', '',
            jsonb_build_object('lr', 1.0 / (id % 997 + 1), 'optimizer', CASE id % 3 WHEN 0 THEN 'sgd' ELSE 'adam' END),
            id, 1, 0, 0, false, '', 1.0, 1000,
            jsonb_build_object('validation_metrics', jsonb_build_object(searcher_metric, jsonb_build_object(
                'type', 'number', 'count', 10, 'min', best_metric, 'max', best_metric, 'last', best_metric),
                'f1', jsonb_build_object('type', 'number', 'count', 10, 'last', id % 100 / 100.0))),
            best_metric, 2, 2000000, start_time, coalesce(end_time, now())
        FROM experiments""")
    )
    connection.execute(text("UPDATE experiments SET best_trial_id = id WHERE best_metric IS NOT NULL"))
    connection.execute(text(f"SELECT setval(pg_get_serial_sequence('experiments', 'id'), {size})"))
    connection.execute(text(f"SELECT setval(pg_get_serial_sequence('trials', 'id'), {size})"))


def _experiment(number: int, size: int, now: dt.datetime) -> dict[str, Any]:
    metric, smaller = METRICS[number % len(METRICS)]
    state, unmanaged = _state(number, size)
    config = {
        "name": "x",
        "searcher": {"name": "random", "metric": metric},
        "hyperparameters": {},
        "resources": {"slots_per_trial": 1},
    }
    name = f"{SUBJECTS[number * 5 % len(SUBJECTS)]} {number % 41}"
    from_end = size - number
    if 10 <= from_end < 10 + len(HOSTILE):
        name = HOSTILE[from_end - 10]
    began = now - dt.timedelta(minutes=3 + from_end * 17)
    return {
        "id": number,
        "job_id": uuid.uuid5(uuid.NAMESPACE_OID, f"filled {number}"),
        "owner_id": 1 + number % 2,
        "project_id": 1,
        "state": state,
        "reason": "trial 3 ran out of memory on node n17" if state == "ERROR" else "",
        "unmanaged": unmanaged,
        "name": name,
        "description": f"number {number}",
        "labels": LABELS[number % len(LABELS)],
        "config": config,
        "original_config": json.dumps(config),
        "resource_pool": POOLS[number % len(POOLS)],
        "searcher_type": ("adaptive_asha", "random", "single")[number % 3],
        "searcher_metric": metric,
        "smaller_is_better": smaller,
        "seed": number,
        "num_trials": number * 13 % 300 + 1,
        "best_metric": None
        if number % 11 == 0
        else (number * 7919 % 10007) / 10007 * (1e-4 if number % 50 == 0 else 1),
        "progress": (number * 37 % 100) / 100 if unmanaged or state in ("PAUSED", "ERROR") else 1.0,
        "checkpoint_size": number * 7919 % 10007 * 1000,
        "start_time": began,
        "end_time": None if state in ("ACTIVE", "PAUSED") else began + dt.timedelta(minutes=number * 31 % 997 + 1),
    }


def _state(number: int, size: int) -> tuple[str, bool]:
    if number > size - 5:
        return "ACTIVE", True  # it is reported from elsewhere: no controller looks after it
    if number % 23 == 0:
        return "ERROR", False
    if number % 151 == 0:
        return "PAUSED", True
    if number % 61 == 0:
        return "CANCELED", False
    return "COMPLETED", False
