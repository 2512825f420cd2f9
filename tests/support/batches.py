"""Calls of jobs as tests hand them to the services: any number at once, each with its answer or its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sqlalchemy import insert

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Experiment, ModelDefinition
from trainmaster.master.services.allocations.leases import LeaseRequest
from trainmaster.master.services.batches import CannotBatch
from trainmaster.master.services.errors import ServiceError
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.exits import ExitReport

CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: single, metric: loss}
"""


def request(name: str, job: str = "7", run: str = "run", rank: int = 0, nodes: int = 1) -> LeaseRequest:
    return LeaseRequest(name, job, run, rank, nodes, "n1", [0], ["10.0.0.1"])


def waiting(attempts: Attempts, files: bytes = b"") -> str:
    """An attempt whose job may ask for its lease."""
    number = attempts.experiment(parse_experiment(CONFIG).to_json())
    with attempts.store.transaction() as session:
        session.get_one(Experiment, number).context_size = len(files)
        session.execute(insert(ModelDefinition).values(experiment_id=number, archive=files))
    return attempts.attempt(number, native_id="7", exits={})


def running(attempts: Attempts) -> str:
    """An attempt that reports; no search waits for its validations."""
    number = attempts.experiment()
    with attempts.store.transaction() as session:
        session.get_one(Experiment, number).unmanaged = True
    return attempts.attempt(number, lease_job="1", exits={})


def reports(attempts: Attempts, calls: Sequence[ReportCall]) -> list[Any]:
    return taken(partial(attempts.master.report_calls.take_reports), calls)


def leases(attempts: Attempts, calls: Sequence[LeaseRequest]) -> list[Any]:
    return taken(partial(attempts.master.leases.lease, slot_types={}), calls)


def exits(attempts: Attempts, calls: Sequence[ExitReport]) -> list[Any]:
    return taken(partial(attempts.master.exits.take_exits), calls)


def taken(take: Callable[..., Sequence[Any]], calls: Sequence[Any]) -> list[Any]:
    """As the group commit does it: what has to be alone, or fails with its batch, is taken in by itself. A single call
    is not tried together with nobody first."""
    try:
        outcomes = take(calls, wait=len(calls) == 1)
    except ServiceError as error:
        outcomes = [CannotBatch() if len(calls) > 1 else error for _ in calls]
    return [
        taken(take, [call])[0] if isinstance(outcome, CannotBatch) else outcome
        for call, outcome in zip(calls, outcomes, strict=True)
    ]
