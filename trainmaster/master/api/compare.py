"""The endpoint behind the page that compares trials or experiments."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from trainmaster.master.api.experiment_views import Across, Group, Metric, Points, curves_of
from trainmaster.master.api.schemas.views import Curves, MetricName
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.metrics.series import Named
from trainmaster.master.services.views import comparison
from trainmaster.master.services.views.comparison import EXPERIMENTS, TRIALS, Compared, ComparisonRequest
from trainmaster.master.services.views.experiment_table import cell

router = APIRouter(prefix="/api/x1", tags=["experiments"])

Ids = Annotated[str, Query(max_length=400, description="up to 20 numbers with commas")]


class ComparedThing(Shape):
    """A trial or an experiment. `trial`: whose curve is shown: itself, or the best one of an experiment. `best`,
    `last`, `at_budget`: of the compared metric; `end`: where its curve ends. `queue_seconds`: how long its jobs have
    waited."""

    id: int
    experiment: int
    name: str
    trial: int | None
    state: str
    why: str
    user: str
    workspace_id: int
    started: float
    ended: float | None
    best: float | str | None
    last: float | str | None
    at_budget: float | str | None
    end: float | None
    steps: int
    trials: int
    attempts: int
    restarts: int
    slot_seconds: float
    queue_seconds: float
    pool: str
    nodes: list[str]


class MissingThing(Shape):
    id: int
    why: str


class ComparedSetting(Shape):
    """A setting of `part` hyperparameters, code, environment or configuration. `values`: one for each thing, or a
    single one that all have; null for what a thing does not have."""

    part: str
    name: str
    values: list[Any]


class Comparison(Shape):
    """`kind`: trials or experiments. `missing`: what was asked for and cannot be shown. `budget`: the furthest place on
    `x_name` that all curves reach. `settings`: those that differ first; `settings_left_out`: how many are not here."""

    kind: str
    things: list[ComparedThing]
    missing: list[MissingThing]
    group: str
    metric: str
    smaller_is_better: bool
    x_name: str
    budget: float | None
    curves: Curves | None
    metrics: list[MetricName]
    settings: list[ComparedSetting]
    settings_left_out: int


@router.get("/compare")
def compare(
    master: UsesMaster,
    caller: UserCaller,
    trials: Ids = "",
    experiments: Ids = "",
    metric: Metric = "",
    group: Group = "validation",
    x: Across = "",
    points: Points = 300,
) -> Comparison:
    """Trials or experiments side by side: curves, values, settings and costs. What cannot be seen is told apart."""
    if bool(trials) == bool(experiments):
        raise Invalid("Name what to compare: either trials=12,15 or experiments=3,4.")
    kind = TRIALS if trials else EXPERIMENTS
    ids = comparison.numbers(trials or experiments, kind)
    named = Named(group or "validation", metric) if metric else None
    compared = master.comparisons.compare(caller, ComparisonRequest(kind, ids, named, x, points))
    return Comparison(
        kind=kind,
        things=[_thing(thing, kind) for thing in compared.things],
        missing=[MissingThing(id=key, why=why) for key, why in compared.missing],
        group=compared.metric.group,
        metric=compared.metric.name,
        smaller_is_better=compared.smaller_is_better,
        x_name=compared.x_name,
        budget=compared.budget,
        curves=None if compared.grid is None else curves_of(compared.grid),
        metrics=[MetricName(group=group, name=name) for group, name in compared.metrics],
        settings=[
            ComparedSetting(part=setting.part, name=setting.name, values=list(setting.values))
            for setting in compared.settings
        ],
        settings_left_out=compared.settings_left_out,
    )


def _thing(one: Compared, kind: str) -> ComparedThing:
    experiment, trial = one.experiment, one.trial
    subject = trial if kind == TRIALS and trial is not None else experiment
    return ComparedThing(
        id=one.id,
        experiment=experiment.id,
        name=experiment.name,
        trial=None if trial is None else trial.id,
        state=one.state,
        why=one.why,
        user=one.username,
        workspace_id=one.workspace_id,
        started=epoch(subject.start_time),
        ended=None if subject.end_time is None else epoch(subject.end_time),
        best=cell(one.best),
        last=cell(one.last),
        at_budget=cell(one.at_budget),
        end=one.end,
        steps=0 if trial is None else trial.total_batches,
        trials=one.trials,
        attempts=one.attempts,
        restarts=0 if trial is None else trial.restarts,
        slot_seconds=one.slot_seconds,
        queue_seconds=one.queue_seconds,
        pool=experiment.resource_pool,
        nodes=list(one.job.nodes),
    )
