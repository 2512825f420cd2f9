"""Endpoints behind the web page's tables of checkpoints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.views import checkpoint_table

router = APIRouter(prefix="/api/x1", tags=["checkpoints"])


class CheckpointTable(Shape):
    """`rows`: values in the order of `columns`, the newest first; times are seconds since 1970."""

    columns: list[str]
    rows: list[list[Any]]


@router.get("/experiments/{experiment_id}/checkpoints")
def of_experiment(experiment_id: int, master: UsesMaster, caller: UserCaller) -> CheckpointTable:
    return _answer(master.checkpoint_table.read(experiment_id=experiment_id))


@router.get("/trials/{trial_id}/checkpoints")
def of_trial(trial_id: int, master: UsesMaster, caller: UserCaller) -> CheckpointTable:
    return _answer(master.checkpoint_table.read(trial_id=trial_id))


def _answer(rows: Any) -> CheckpointTable:
    return CheckpointTable(columns=list(checkpoint_table.COLUMNS), rows=[list(row) for row in rows])
