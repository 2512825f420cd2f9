"""The endpoint behind the first page: what needs its user, what runs, what waits and why."""

from __future__ import annotations

from fastapi import APIRouter

from trainmaster.master.api.schemas.views import HomeAnswer, HomeExperiment, HomePool, HomeTask
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.views.experiment_table import cell
from trainmaster.master.services.views.home import Entry, TaskEntry

router = APIRouter(prefix="/api/x1", tags=["experiments"])

MINUTE = 60
SERVICES = ("NOTEBOOK", "TENSORBOARD", "SHELL")  # kinds of tasks that a browser or a client opens


@router.get("/home")
def home(master: UsesMaster, caller: UserCaller) -> HomeAnswer:
    """Return what its caller needs to know first."""
    page = master.home_pages.read(caller)
    moment = now().timestamp()
    return HomeAnswer(
        at=moment - moment % MINUTE,  # to the minute: an unchanged page keeps its ETag
        needs=[_experiment(need) for need in page.needs],
        runs=[_experiment(run) for run in page.runs],
        waits=[_experiment(wait) for wait in page.waits],
        done=[_experiment(one) for one in page.done],
        tasks=[_task(task) for task in page.tasks],
        pools=_pools(master),
        total=page.total,
        others=page.others,
    )


def _experiment(one: Entry) -> HomeExperiment:
    view, row = one.view, one.view.row
    return HomeExperiment(
        id=row.id,
        name=row.name,
        state=one.state,
        why=one.why,
        user=view.username,
        user_id=row.owner_id,
        workspace_id=view.workspace_id,
        job_id=str(row.job_id),
        pool=row.resource_pool,
        slots=row.config.slots,
        since=one.since,
        progress=row.progress,
        metric=row.searcher_metric,
        smaller_is_better=row.smaller_is_better,
        best=cell(row.best_metric),
        best_trial=row.best_trial_id,
        recent=list(one.recent),
        trials=row.num_trials,
        running=one.running,
        waiting=one.waiting,
        slots_used=one.slots_used,
        slot_seconds=one.slot_seconds,
        expected_start=one.expected_start,
        expected_error=one.expected_error,
        failed_trial=one.failed_trial,
        eta=one.eta,
    )


def _task(one: TaskEntry) -> HomeTask:
    row, latest = one.row, one.latest
    waits = latest is not None and latest.leased_at is None
    return HomeTask(
        id=row.task_id,
        kind=row.kind,
        name=row.description or row.task_id,
        state=row.state if latest is None or row.state != "ACTIVE" else ("QUEUED" if waits else "RUNNING"),
        ready=latest is not None and latest.ready is True,
        why=latest.explanation if latest is not None and waits else row.reason,
        since=epoch(row.start_time),
        address=f"../proxy/{row.task_id}/" if row.kind in ("NOTEBOOK", "TENSORBOARD") else None,
    )


def _pools(master: UsesMaster) -> list[HomePool]:
    resting = master.pool_health.paused_pools()
    queued = master.job_queue.counts()
    return [
        HomePool(
            name=served.pool.name,
            cluster=served.cluster.name,
            slots=served.pool.slots_total,
            used=served.pool.slots_used,
            waiting=queued.get(served.pool.name, (0, 0))[0],
            rests=resting[served.pool.name].why if served.pool.name in resting else "",
            accelerator=served.pool.accelerator,
        )
        for served in master.clusters.pools()
    ]
