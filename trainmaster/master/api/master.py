"""Endpoints about the master itself, its resource pools and its job queue."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse
from sqlalchemy import text

from trainmaster.master.api.policies import shown_message
from trainmaster.master.api.schemas.entities import Pagination, ResourcePool
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, in_short
from trainmaster.master.http.dependencies import ServedMaster, UserCaller, UsesMaster, stranger
from trainmaster.master.http.messages import Shape, rfc3339
from trainmaster.master.http.parameters import Descending, Scheduled
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import from_epoch
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.paging import cut
from trainmaster.master.services.resources import job_queue
from trainmaster.version import API_VERSION

router = APIRouter()

SEES_JOBS = Permission.VIEW_EXPERIMENT_METADATA


class MasterAnswer(Shape):
    version: str
    master_id: str
    cluster_id: str
    cluster_name: str
    telemetry_enabled: bool = False
    external_login_uri: str = ""
    external_logout_uri: str = ""
    branding: str = "trainmaster"
    rbac_enabled: bool = False
    product: str = "PRODUCT_UNSPECIFIED"
    user_management_enabled: bool = True
    feature_switches: list[str] = []  # noqa: RUF012
    strict_job_queue_control: bool = False
    has_custom_logo: bool = False
    cluster_message: dict[str, Any] | None = None
    trainmaster_version: str  # ours: of this program, where `version` is the API's
    max_context_bytes: int  # ours: bytes that an experiment's files may have together


class PoolsAnswer(Shape):
    resource_pools: list[ResourcePool]
    pagination: Pagination


@router.get("/info", tags=["master"])
async def info(master: UsesMaster) -> dict[str, Any]:
    settings = master.settings
    return {
        "version": API_VERSION,
        "trainmaster_version": settings.version,
        "master_id": settings.cluster_id,
        "cluster_id": settings.cluster_id,
        "cluster_name": settings.cluster_name,
        "telemetry": {"enabled": False, "otel_enabled": False, "otel_endpoint": ""},
        "sso_providers": None,
    }


@router.get("/api/v1/health", tags=["master"], dependencies=[Depends(stranger)])
@router.get("/health", tags=["master"], dependencies=[Depends(stranger)])
def health(master: UsesMaster) -> JSONResponse:
    """Whether the database and the clusters answer: "up", "degraded" while some of the clusters do not, and "down",
    with status 503, without the database or without any cluster."""
    try:
        with master.store.transaction() as session:
            session.execute(text("SELECT 1"))
        database = "up"
    except DATABASE_UNAVAILABLE as error:
        database = f"down: {in_short(error)}"
    managers = []
    for cluster in master.clusters:
        problem = master.clusters.problem(cluster)
        managers.append(
            {
                "cluster_name": cluster.name,
                "status": f"down: {problem}" if problem else "up",
                "notes": master.clusters.namesakes(cluster),
                "seconds_per_pass": master.clusters.last_pass(cluster),
                "seconds_per_look": master.clusters.last_look(cluster),
            }
        )
    answering = sum(manager["status"] == "up" for manager in managers)
    serving = database == "up" and answering > 0
    status = "down" if not serving else "up" if answering == len(managers) else "degraded"
    shown = {"status": status, "database": database, "resource_managers": managers}
    return JSONResponse(shown, 200 if serving else 503)


@router.get("/api/v1/master", tags=["master"], dependencies=[Depends(stranger)])
def master(master: UsesMaster) -> MasterAnswer:
    settings = master.settings
    return MasterAnswer(
        version=API_VERSION,
        trainmaster_version=settings.version,
        cluster_message=_banner(master),
        master_id=settings.cluster_id,
        cluster_id=settings.cluster_id,
        cluster_name=settings.cluster_name,
        feature_switches=list(master.config.get("feature_switches") or ()),
        rbac_enabled=settings.roles if settings.roles_shown is None else settings.roles_shown,
        max_context_bytes=settings.limits.context * 2**20,
        strict_job_queue_control=settings.roles and settings.strict_queue,
    )


def _banner(master: ServedMaster) -> dict[str, Any] | None:
    """Return the maintenance message. None also while the database does not answer: the master's name is served even
    then."""
    try:
        return shown_message(master.site_policies.message(shown=True))
    except DATABASE_UNAVAILABLE:
        return None


@router.get("/api/v1/resource-pools", tags=["queue"])
def resource_pools(
    master: UsesMaster, caller: UserCaller, offset: int = 0, limit: int = 0, unbound: bool = False
) -> PoolsAnswer:
    served = master.clusters.pools()
    bound = master.pool_bindings.bound() if unbound else frozenset()
    counts = master.job_queue.counts()
    compute = master.clusters.resolve("", 1).pool.name if served else ""
    aux = master.clusters.resolve("", 0).pool.name if served else ""
    wanted = [entry for entry in served if entry.pool.name not in bound]
    window = cut(offset, limit, len(wanted))
    resting = master.pool_health.paused_pools()
    shown = []
    for entry in wanted[window.start : window.end]:
        name = entry.pool.name
        queued, scheduled = counts.get(name, (0, 0))
        pool = ResourcePool.of(entry, compute=name == compute, aux=name == aux, queued=queued, scheduled=scheduled)
        if rest := resting.get(name):
            until = rfc3339(from_epoch(rest.until))
            pool.details = {"resting": {"failures": rest.failures, "until": until, "why": rest.why}}
        shown.append(pool)
    return PoolsAnswer(resource_pools=shown, pagination=Pagination.of(window))


@router.post("/api/x1/resource-pools/{name}/resume", tags=["queue"])
def resume_pool(name: str, master: UsesMaster, caller: UserCaller) -> dict[str, Any]:
    """Close the circuit breaker of a pool at once."""
    if name not in {served.pool.name for served in master.clusters.pools()}:
        raise NotFound(f"There is no resource pool {name!r}.")
    master.pool_health.resume(name)
    return {}


@router.get("/api/v1/job-queues-v2", tags=["queue"])
def job_queues(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    scheduled: Scheduled,
    resourcePool: str = "",
    offset: int = 0,
    limit: int = 0,
) -> dict[str, Any]:
    external = master.clusters.external_jobs()
    page = master.job_queue.page(
        resourcePool or None,
        offset,
        limit,
        descending=bool(descending),
        scheduled=scheduled,
        external=external,
        ranks=master.agents.queue_ranks(),
    )
    others = caller.holds(Permission.VIEW_EXTERNAL_JOBS)
    jobs = [
        _job(job, whole=others if job.external else caller.holds(SEES_JOBS, job.workspace_id)) for job in page.items
    ]
    return {"jobs": jobs, "pagination": Pagination.of(page.window).model_dump(by_alias=True)}


@router.get("/api/v1/job-queues", tags=["queue"])
def old_job_queues(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    scheduled: Scheduled,
    resourcePool: str = "",
    offset: int = 0,
    limit: int = 0,
) -> dict[str, Any]:
    """Return the same without jobs of which the caller may see only a part."""
    queues = job_queues(master, caller, descending, scheduled, resourcePool)
    whole = [job["full"] for job in queues["jobs"] if "full" in job]
    window = cut(offset, limit, len(whole))
    return {
        "jobs": whole[window.start : window.end],
        "pagination": Pagination.of(window).model_dump(by_alias=True),
    }


def _job(job: job_queue.QueuedJob, *, whole: bool) -> dict[str, Any]:
    """Return a job of the queue; of one in a workspace that the caller may not see, only its place and resources."""
    limited = {
        "summary": {"state": f"STATE_{'SCHEDULED' if job.scheduled else 'QUEUED'}", "jobsAhead": job.ahead},
        "type": f"TYPE_{job.kind}",
        "resourcePool": job.pool,
        "isPreemptible": not job.external,
        "priority": job.priority,
        "weight": job.weight,
        "jobId": job.job_id,
        "requestedSlots": job.requested_slots,
        "allocatedSlots": job.allocated_slots,
        "progress": job.progress,
        "workspaceId": job.workspace_id,
    }
    if not whole:
        return {"limited": limited}
    more = {
        "submissionTime": rfc3339(job.submitted_at),
        "username": job.username,
        "userId": job.user_id,
        "entityId": job.entity,
        "name": job.name,
        "explanation": job.explanation,
    }
    return {"full": {**limited, **more}}
