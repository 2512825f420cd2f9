"""Fills a database with the rows of a busy site after some months, by SQL in seconds."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, insert, text

from trainmaster.master.db.tables import Experiment, Job
from trainmaster.master.services.access import bootstrap
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.master import Master
from trainmaster.master.services.metrics import series_columns
from trainmaster.master.services.store import Store

NAMES = ("loss", "accuracy", "precision", "recall", "f1", "lr", "grad_norm", "throughput", "memory", "epoch_time")
BEGAN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Size:
    """How much there is. `points` counts values of metrics; a report has ten of them.

    A tenth of the reports belongs to the first trial, and half of the log lines.
    """

    experiments: int = 200
    trials: int = 10_000
    largest: int = 5_000
    points: int = 1_000_000
    lines: int = 200_000
    live: int = 100

    @property
    def reports(self) -> int:
        return self.points // len(NAMES)


def fill(engine: Engine, size: Size) -> None:
    """Fill an empty database of the present schema."""
    store = Store(engine)
    bootstrap.prepare(store, dict.fromkeys(("admin", "determined"), "a password of the Test 1"))
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL synchronous_commit = off"))
        _experiments(connection, size)
        for statement in (_TASKS, _TRIALS, _ALLOCATIONS, _CHECKPOINTS, _STORY, _LOGS):
            connection.execute(text(statement), _parameters(size))
        for kind, share in (("training", 10), ("validation", 1)):
            connection.execute(text(_METRICS), {**_parameters(size), "kind": kind, "share": share})
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


def compact(master: Master) -> None:
    """What the master's compactor would do in the end."""
    for source in (series_columns.SOURCE, log_blocks.SOURCE):
        newest = master.compaction.newest(source)
        while master.compaction.count(source, newest):
            pass
    for trial_id in master.series_columns.due():
        while master.series_columns.compact(trial_id):
            pass
    for task_id in master.log_blocks.due():
        while master.log_blocks.compact(task_id):
            pass


def _parameters(size: Size) -> dict[str, Any]:
    return {
        "trials": size.trials,
        "experiments": size.experiments,
        "largest": size.largest,
        "reports": size.reports,
        "lines": size.lines,
        "live": size.live,
        "names": list(NAMES),
    }


def _experiments(connection: Connection, size: Size) -> None:
    config = {
        "name": "x",
        "searcher": {"name": "random", "metric": "loss", "smaller_is_better": True, "max_trials": size.trials},
        "hyperparameters": {f"p{i}": {"type": "double", "minval": 0, "maxval": 1} for i in range(10)},
        "max_restarts": 5,
        "resources": {"slots_per_trial": 1},
    }
    rows = [_experiment(number, config, size) for number in range(1, size.experiments + 1)]
    jobs = [{"job_id": row["job_id"], "job_type": "EXPERIMENT", "owner_id": row["owner_id"]} for row in rows]
    connection.execute(insert(Job), jobs)
    connection.execute(insert(Experiment), rows)


def _experiment(number: int, config: dict[str, Any], size: Size) -> dict[str, Any]:
    return {
        "id": number,
        "job_id": uuid.uuid5(uuid.NAMESPACE_OID, str(number)),
        "owner_id": 1 + number % 2,
        "project_id": 1,
        "state": "ACTIVE" if number == 1 else "COMPLETED",
        "name": f"experiment {number % 17}",
        "description": f"number {number}",
        "labels": [f"label{number % 5}"],
        "config": config,
        "original_config": json.dumps(config),
        "resource_pool": "default",
        "searcher_type": "random",
        "searcher_metric": "loss",
        "smaller_is_better": True,
        "seed": number,
        "num_trials": size.largest if number == 1 else (size.trials - size.largest) // max(size.experiments - 1, 1),
        "best_metric": number / 7,
        "progress": number % 100 / 100,
        "checkpoint_size": number * 7919 % 10007,
        "start_time": BEGAN + dt.timedelta(minutes=number),
        "end_time": BEGAN + dt.timedelta(minutes=number + number * 31 % 997) if number > 1 else None,
    }


_NUMBERED = "FROM generate_series(1, :trials) AS t(n)"
_OWNER = "CASE WHEN n <= :largest THEN 1 ELSE 2 + (n - :largest - 1) % greatest(:experiments - 1, 1) END"

_TASKS = f"""
    INSERT INTO tasks (task_id, task_type, job_id, start_time, end_time)
    SELECT 'task-' || n, 'TRIAL', (SELECT job_id FROM experiments WHERE id = {_OWNER}), now(),
           CASE WHEN n > :live THEN now() END
    {_NUMBERED}"""

_TRIALS = f"""
    INSERT INTO trials (id, experiment_id, task_id, request_id, state, reason, hparams, seed, attempts, restarts,
        setbacks, searcher_told, runner_state, progress, total_batches, summary_metrics,
        latest_validation, best_validation,
        searcher_metric, checkpoint_count, checkpoint_size, start_time, end_time)
    SELECT n, {_OWNER}, 'task-' || n, 'request-' || n, CASE WHEN n <= :live THEN 'ACTIVE' ELSE 'COMPLETED' END, '',
           (SELECT jsonb_object_agg('p' || i, (n * i) % 1000 / 1000.0) FROM generate_series(1, 10) AS i), n, 1, n % 3,
           0, false, '', 1.0, n % 1000,
           jsonb_build_object('avg_metrics', s.summary, 'validation_metrics', s.summary), v.shown, v.shown,
           (n * 7919) % 10007 / 10007.0, 2, 2000000, now() - n * interval '1 minute',
           CASE WHEN n > :live THEN now() - n * interval '30 s' END
    {_NUMBERED},
    LATERAL (SELECT jsonb_object_agg(name, jsonb_build_object('type', 'number', 'count', 10, 'min', n, 'max', n,
        'sum', n, 'mean', n, 'last', n, 'finite', 10)) AS summary FROM unnest(CAST(:names AS text[])) AS name) AS s,
    LATERAL (SELECT jsonb_build_object('totalBatches', n % 1000, 'endTime', '2026-01-01T00:00:00.000Z', 'metrics',
        jsonb_build_object('avgMetrics', jsonb_build_object('loss', (n * 31) % 997))) AS shown) AS v"""

_ALLOCATIONS = f"""
    INSERT INTO allocations (id, task_id, trial_id, token, state, submission, attempt, dispatcher, pool, slots,
        owner_id, cluster, num_nodes, observed_state, explanation, preempt_acked, checkpoints_before,
        exits, exit_text, collected,
        ended_at)
    SELECT 'task-' || n || '.1', 'task-' || n, n, 'token-' || n,
           CASE WHEN n <= :live THEN 'RUNNING' ELSE 'TERMINATED' END,
           CASE WHEN n <= :live / 2 THEN 'NEW' ELSE 'SUBMITTED' END, 1, 'default', 'default', 1, 1 + ({_OWNER}) % 2,
           '', 1, '', '', false, 0, '{{}}', '', n > :live + 50, CASE WHEN n > :live THEN now() - interval '1 hour' END
    {_NUMBERED}"""

_CHECKPOINTS = f"""
    INSERT INTO checkpoints (uuid, experiment_id, trial_id, task_id, state, report_time, steps_completed, size,
        resources, metadata, storage, metric)
    SELECT gen_random_uuid(), {_OWNER}, n, 'task-' || n, 'COMPLETED', now() - (n * 2 + i) * interval '1 s', i * 500,
           1000000, '{{"state/model.pt": 1000000}}', jsonb_build_object('steps_completed', i * 500),
        '{{"type": "shared_fs"}}',
           (n * i) % 1009 / 1009.0
    {_NUMBERED}, generate_series(1, 2) AS i"""

_STORY = f"""
    INSERT INTO story (experiment_id, trial_id, subject, event, before, after, why, decisions)
    SELECT {_OWNER}, n, 'trial', 'Created', '', 'ACTIVE', 'the search wants it', '["Allocate(attempt=1)"]'
    {_NUMBERED}, generate_series(1, 4) AS i"""

# A tenth to the first trial, the rest evenly.
_METRICS = """
    INSERT INTO metrics (kind, trial_id, run_id, "group", steps, at, metrics)
    SELECT :kind, CASE WHEN n % 10 = 0 THEN 1 ELSE 1 + rest % :trials END, 1, :kind,
           CASE WHEN n % 10 = 0 THEN n / 10 ELSE 1 + rest / :trials END, now(),
           jsonb_build_object(CASE :kind WHEN 'validation' THEN 'validation_metrics' ELSE 'avg_metrics' END,
               (SELECT jsonb_object_agg(name, (n % 97) / 97.0 + length(name))
                FROM unnest(CAST(:names AS text[])) AS name))
    FROM generate_series(1, CAST(:reports AS bigint) * :share / 11) AS t(n), LATERAL (SELECT n - n / 10) AS r(rest)"""

_LOGS = """
    INSERT INTO task_logs (task_id, allocation_id, at, level, rank_id, agent_id, stdtype, source, log)
    SELECT 'task-' || CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + n % :trials END,
           'task-' || CASE WHEN n % 2 = 0 THEN 1 ELSE 1 + n % :trials END || '.1', now() + n * interval '1 ms', 3, 0,
           'n1', 'stdout', 'task', 'epoch ' || n || ' loss 0.123 accuracy 0.987 of a line as trainings print it'
    FROM generate_series(1, :lines) AS t(n)"""
