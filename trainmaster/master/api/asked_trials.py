"""Endpoints for programs that run the trials of a search themselves: ask for trials, tell what they measure."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field

from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.waiting import wait_for
from trainmaster.master.services.ingest.asked_trials import MOST_ASKED, MOST_TOLD, Asked, Told

router = APIRouter(prefix="/api/x1", tags=["experiments"])


class PostAsk(Body):
    """`count`: of trials, at most. `timeout_seconds`: how long to wait for one."""

    count: int = Field(1, ge=1, le=MOST_ASKED)
    timeout_seconds: float = Field(0.0, ge=0, allow_inf_nan=False)


class AskedTrial(Shape):
    """`steps`: of its last report; 0 for a trial that has not begun. `parent`: the trial whose checkpoint it begins
    with."""

    id: int
    hparams: dict[str, Any]
    seed: int
    steps: int
    parent: int | None


class AskAnswer(Shape):
    """`over`: the search needs nobody any more."""

    over: bool
    trials: list[AskedTrial]


class TrialTold(Body):
    """`metrics`: of a validation after `steps`. `end`: the trial is over. Without both: its program is alive."""

    trial_id: int = Field(ge=1, le=2**31 - 1)
    steps: int = Field(0, ge=0, le=2**53)
    metrics: dict[str, Any] | None = None
    end: Literal["completed", "failed", "out_of_memory", "invalid"] | None = None


class PostTell(Body):
    """Reports, in order."""

    reports: list[TrialTold] = Field(max_length=MOST_TOLD)


class TellAnswer(Shape):
    """For each report what its trial is to do: continue, pause (save: somebody will ask for it again), or stop."""

    decisions: list[str]


@router.post("/experiments/{experiment_id}/ask")
async def ask(experiment_id: int, body: PostAsk, master: UsesMaster, caller: UserCaller) -> AskAnswer:
    """Take trials that nobody runs; waits for one, at most the time-out."""
    take = partial(master.threads.run, caller, master.asked_trials.ask, experiment_id, body.count)

    async def look() -> Asked | None:
        found = await take()
        return found if found.trials or found.over else None

    timeout = min(body.timeout_seconds, master.settings.longest_poll)
    found = await wait_for(master.wakeups, f"search:{experiment_id}", look, timeout)
    if found is None:
        return AskAnswer(over=False, trials=[])
    return AskAnswer(
        over=found.over,
        trials=[
            AskedTrial(id=it.id, hparams=dict(it.hparams), seed=it.seed, steps=it.steps, parent=it.parent)
            for it in found.trials
        ],
    )


@router.post("/experiments/{experiment_id}/tell")
def tell(experiment_id: int, body: PostTell, master: UsesMaster, caller: UserCaller) -> TellAnswer:
    """Tell what trials measured, or that they ended: all reports are taken in, or none."""
    told = [Told(it.trial_id, it.steps, it.metrics, it.end) for it in body.reports]
    return TellAnswer(decisions=list(master.asked_trials.tell(experiment_id, told)))
