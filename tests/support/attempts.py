"""Creates attempts in a real database, without a controller that acts on them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, select, text

from trainmaster.master.db.tables import Allocation, Experiment, Job, Task, Trial, task_logs
from trainmaster.master.services.access import bootstrap
from trainmaster.master.services.store import Store

CLUSTER = "hpc"
CONFIG = {"entrypoint": "true", "resources": {"slots_per_trial": 1}, "checkpoint_storage": None}


class Attempts:
    """Makes experiments with trials, and an attempt of each trial."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.store = Store(engine)
        bootstrap.prepare(self.store, dict.fromkeys(("admin", "determined"), "a password of the Test 1"))

    def experiment(self, config: Mapping[str, Any] | None = None) -> int:
        job = Job(job_id=uuid.uuid4(), job_type="EXPERIMENT", owner_id=1)
        with self.store.transaction() as session:
            session.add(job)
            session.flush()
            row = Experiment(
                job_id=job.job_id,
                owner_id=1,
                project_id=1,
                state="ACTIVE",
                name="x",
                config={**CONFIG, **(config or {})},
                original_config="",
                resource_pool="main",
                searcher_type="single",
                searcher_metric="loss",
                smaller_is_better=True,
                seed=1,
            )
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
