"""Creates experiments, trials and attempts in a real database, without a controller that acts on them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, select, text

from tests.support.bound import bind
from trainmaster.master.db.tables import Allocation, Experiment, Job, Task, Trial, task_logs
from trainmaster.master.services.access import bootstrap
from trainmaster.master.services.store import Store

CLUSTER = "hpc"
CONFIG = {"entrypoint": "true", "resources": {"slots_per_trial": 1}, "checkpoint_storage": None}


class Attempts:
    """Makes experiments with trials, and an attempt of each trial."""

    def __init__(self, engine: Engine, password: str = "a password of the Test 1") -> None:
        self.engine = engine
        self.store = Store(engine)
        self.master = bind(self.store)
        self.identity = bootstrap.prepare(self.store, dict.fromkeys(("admin", "determined"), password))

    def experiment(self, config: Mapping[str, Any] | None = None, **facts: Any) -> int:
        job = Job(job_id=uuid.uuid4(), job_type="EXPERIMENT", owner_id=1)
        with self.store.transaction() as session:
            session.add(job)
            session.flush()
            known = {
                "owner_id": 1,
                "project_id": 1,
                "state": "ACTIVE",
                "name": "x",
                "config": {**CONFIG, **(config or {})},
                "original_config": "",
                "resource_pool": "main",
                "searcher_type": "single",
                "searcher_metric": "loss",
                "smaller_is_better": True,
                "seed": 1,
            }
            row = Experiment(job_id=job.job_id, **{**known, **facts})
            session.add(row)
            session.flush()
            return row.id

    def attempt(self, experiment_id: int | None = None, **facts: Any) -> str:
        """A trial with one live attempt, which is its token too; of an experiment of its own unless one is named."""
        number = self.experiment() if experiment_id is None else experiment_id
        name = f"det-{uuid.uuid4().hex[:12]}"
        with self.store.transaction() as session:
            job_id = session.get_one(Experiment, number).job_id
            session.add(Task(task_id=name, task_type="TRIAL", job_id=job_id))
            session.flush()
            trial = Trial(
                experiment_id=number,
                task_id=name,
                request_id=name,
                state="ACTIVE",
                hparams={},
                seed=1,
                summary_metrics={},
            )
            session.add(trial)
            session.flush()
            known = {"state": "PENDING", "submission": "SUBMITTED", "native_id": "1", "slots": 1, **facts}
            row = Allocation(id=name, task_id=name, trial_id=trial.id, token=name, attempt=1, owner_id=1, **known)
            row.dispatcher, row.pool = known.get("dispatcher", CLUSTER), known.get("pool", "main")
            session.add(row)
        return name

    def many(self, experiment_id: int, trials: Sequence[Mapping[str, Any]], **facts: Any) -> None:
        """Trials with an attempt each, thousands at once. A trial: `id` (its request's), `hparams`, `seed`, and `live`:
        whether it runs, or has ended. `facts`: of the attempts."""
        with self.store.transaction() as session:
            job_id = session.get_one(Experiment, experiment_id).job_id
            known = {"submission": "SUBMITTED", "dispatcher": CLUSTER, **facts}
            rows = {"experiment": experiment_id, "job": job_id, "rows": json.dumps(list(trials)), **known}
            for statement in (_TASKS, _TRIALS, _ALLOCATIONS):
                session.execute(text(statement), rows)
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))

    def live(self, experiment_id: int) -> list[str]:
        """The ids of the experiment's attempts that have not ended, in the order of their trials."""
        query = select(Allocation.id).join(Trial, Trial.id == Allocation.trial_id).order_by(Trial.id)
        query = query.where(Trial.experiment_id == experiment_id, Allocation.ended_at.is_(None))
        with self.store.autocommit() as session:
            return list(session.scalars(query))

    def row(self, name: str) -> Allocation:
        with self.store.autocommit() as session:
            return session.get_one(Allocation, name)

    def change(self, name: str, **facts: Any) -> None:
        with self.store.transaction() as session:
            row = session.get_one(Allocation, name)
            for key, value in facts.items():
                setattr(row, key, value)

    def log(self, name: str) -> list[str]:
        with self.store.autocommit() as session:
            query = select(task_logs.c.log).where(task_logs.c.task_id == name).order_by(task_logs.c.id)
            return list(session.scalars(query))


def waits(store: Store) -> bool:
    """Whether a transaction waits for a row that another has locked."""
    with store.autocommit() as session:  # one look each: within a transaction the answer would stay the same
        query = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')")
        return bool(session.execute(query).scalar_one())


_ROWS = "jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id text, hparams jsonb, seed bigint, live boolean)"
_TASKS = f"""
    INSERT INTO tasks (task_id, task_type, job_id, end_time)
    SELECT CAST(:experiment AS text) || '.' || id, 'TRIAL', CAST(:job AS uuid), CASE WHEN NOT live THEN now() END
    FROM {_ROWS}"""
_TRIALS = f"""
    INSERT INTO trials (experiment_id, task_id, request_id, state, reason, hparams, seed, attempts, restarts, setbacks,
        searcher_told, runner_state, progress, total_batches, summary_metrics, checkpoint_count, checkpoint_size,
        end_time)
    SELECT :experiment, CAST(:experiment AS text) || '.' || id, id, CASE WHEN live THEN 'ACTIVE' ELSE 'COMPLETED' END,
        '', hparams, seed, 1, 0, 0, false, '', 0, 0, '{{}}', 0, 0, CASE WHEN NOT live THEN now() END
    FROM {_ROWS}"""
_ALLOCATIONS = f"""
    INSERT INTO allocations (id, task_id, trial_id, token, state, submission, attempt, dispatcher, pool, slots,
        owner_id, native_id, cluster, lease_job, leased_at, num_nodes, observed_state, explanation, preempt_acked,
        checkpoints_before, exits, exit_text, collected, ended_at)
    SELECT t.task_id || '.1', t.task_id, t.id, 'det-' || t.id, 'RUNNING', :submission, 1, :dispatcher, 'main', 1,
        1, CAST(t.id AS text), '', CAST(t.id AS text), now(), 1, 'running', '', false, 0, '{{}}', '', false, t.end_time
    FROM {_ROWS} JOIN trials t ON t.request_id = r.id AND t.experiment_id = :experiment"""
