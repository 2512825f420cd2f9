"""Endpoints about the master as a whole: configuration, log, running tasks, and slot usage."""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import AfterValidator

from trainmaster.config.secrets import masked
from trainmaster.master.api.schemas.entities import ALLOCATION_STATES
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, rfc3339
from trainmaster.master.http.parameters import words
from trainmaster.master.http.streams import line_of
from trainmaster.master.http.waiting import NOTHING, waiting
from trainmaster.master.lifecycle.states import AllocationState
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.logs.log_store import LEVELS
from trainmaster.master.services.logs.master_log import MasterLogLine
from trainmaster.master.services.orchestration.task_orchestrator import COMMAND, NOTEBOOK, SHELL, TENSORBOARD
from trainmaster.master.services.removal import checkpoint_gc
from trainmaster.master.services.views import slot_usage
from trainmaster.master.values.stored import Json
from trainmaster.texts import csv_cell

router = APIRouter(tags=["cluster"])
V1 = "/api/v1"
CHECK_PERIOD = 0.5  # seconds between two reads for a client that follows the master's log


def _utc(time: dt.datetime) -> dt.datetime:
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


Moment = Annotated[dt.datetime, AfterValidator(_utc)]

# -- configuration and log ----------------------------------------------------------------------------------------


@router.get(f"{V1}/master/config")
def config(master: UsesMaster, caller: UserCaller) -> Json:
    """Return the configuration as it was read, without passwords; with the key that signs webhook events."""
    shown = masked(master.config)
    level = logging.getLevelName(logging.getLogger().level).lower()
    log = {**(shown.get("log") or {}), "level": level}
    return {"config": {**shown, "log": log, "webhooks": {"signing_key": master.settings.webhook_key}}}


class LogConfig(Body):
    level: str | None = None
    color: bool | None = None


class Config(Body):
    log: LogConfig = LogConfig()


class FieldMask(Body):
    paths: list[str] = []  # noqa: RUF012


class PatchConfig(Body):
    config: Config = Config()
    field_mask: FieldMask | str = FieldMask()


@router.patch(f"{V1}/master/config")
def patch_config(body: PatchConfig, master: UsesMaster, caller: UserCaller) -> Json:
    """Set the level of the master's log, until the master is restarted."""
    mask = body.field_mask.split(",") if isinstance(body.field_mask, str) else body.field_mask.paths
    if strange := [path for path in mask if path not in ("log", "log.level", "log.color")]:
        raise Invalid(f"{strange[0]} cannot be changed while the master runs; log.level can.")
    level = body.config.log.level
    if level is not None and ("log" in mask or "log.level" in mask or not mask):
        for word in words([level.upper()], "LOG_LEVEL_", LEVELS):
            logging.getLogger().setLevel("DEBUG" if word == "TRACE" else word)
    return {}


@router.get(f"{V1}/master/telemetry")
def telemetry(master: UsesMaster, caller: UserCaller) -> Json:
    return {"enabled": False, "segmentKey": ""}


@router.get(f"{V1}/master/logs")
async def logs(
    master: UsesMaster, caller: UserCaller, offset: int = 0, limit: int = 0, follow: bool = False
) -> StreamingResponse:
    """Return this process's latest log lines; a negative offset counts from the end. Without roles everybody gets
    them, as `det trial support-bundle` expects: users who may not read them see only when and where something was
    logged."""
    readable = caller.holds(Permission.VIEW_MASTER_LOGS)

    async def body() -> AsyncIterator[bytes]:
        number, sent = offset, 0
        with waiting(master.wakeups, NOTHING, period=CHECK_PERIOD) as turn:
            while True:
                for entry in master.recent_log.after(number):
                    yield line_of({"logEntry": _log_entry(entry if readable else entry.masked)})
                    sent, number = sent + 1, entry.id + 1
                    if 0 < limit <= sent:
                        return
                number = max(number, 0)
                if not follow or not await turn.again():
                    return

    return StreamingResponse(body(), media_type="application/json")


def _log_entry(entry: MasterLogLine) -> Json:
    level = entry.level if entry.level in LEVELS else "UNSPECIFIED"
    return {"id": entry.id, "timestamp": rfc3339(entry.at), "level": f"LOG_LEVEL_{level}", "message": entry.text}


# -- tasks and queue ----------------------------------------------------------------------------------------------


@router.get(f"{V1}/tasks")
def tasks(master: UsesMaster, caller: UserCaller) -> Json:
    """List the attempts that have not ended, by their names."""
    pools = {entry.pool.name: entry.cluster.kind for entry in master.clusters.pools()}
    on_agents = master.agents.containers()
    found = {}
    for row, name, priority, ports in master.slot_usage.live_attempts(caller.workspaces):
        nodes: Mapping[str, str | None] = on_agents.get(row.token) or dict.fromkeys(
            row.observed.nodes if row.observed is not None else ()
        )
        resources: list[Json] = [
            {
                "resourcesId": container or node,
                "allocationId": row.id,
                "containerId": container,
                "agentDevices": {node: {"devices": []}},
            }
            for node, container in nodes.items()
        ]
        found[row.id] = {
            "taskId": row.task_id,
            "allocationId": row.id,
            "name": name,
            "registeredTime": rfc3339(row.created_at),
            "resources": resources,
            "slotsNeeded": row.slots,
            "resourcePool": row.pool,
            "schedulerType": pools.get(row.pool, ""),
            "priority": priority,
            "proxyPorts": [_port(row.task_id, entry) for entry in ports or ()],
            "state": ALLOCATION_STATES[AllocationState(row.state)],
        }
    found |= {one.id: _collection(one) for one in master.checkpoint_policies.running(caller.workspaces)}
    return {"allocationIdToSummary": found}


def _collection(one: checkpoint_gc.Collection) -> Json:
    """Return the removal of an experiment's checkpoints, which the master does itself, as the task that it is in
    Determined: scripts wait until it has gone."""
    return {
        "taskId": one.id,
        "allocationId": one.id,
        "name": f"Checkpoint GC (Experiment {one.experiment_id})",
        "registeredTime": rfc3339(one.since),
        "resources": [],
        "slotsNeeded": 0,
        "resourcePool": "",
        "schedulerType": "",
        "priority": None,
        "proxyPorts": [],
        "state": ALLOCATION_STATES[AllocationState.RUNNING],
    }


@router.get("/tasks")
def tasks_plain(master: UsesMaster, caller: UserCaller) -> Json:
    """Return the same as scripts of older releases read it: in snake_case, without an envelope."""
    return {key: _plain(summary) for key, summary in tasks(master, caller)["allocationIdToSummary"].items()}


def _plain(summary: Json) -> Json:
    resources = [
        {
            "resources_id": one["resourcesId"],
            "resources_type": "",
            "allocation_id": one["allocationId"],
            "agent_devices": {agent: devices["devices"] for agent, devices in one["agentDevices"].items()},
            "container_id": one["containerId"],
        }
        for one in summary["resources"]
    ]
    ports = [{_snake(key): value for key, value in port.items()} for port in summary["proxyPorts"]]
    return {_snake(key): value for key, value in summary.items()} | {"resources": resources, "proxy_ports": ports}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _port(task_id: str, entry: Mapping[str, Any]) -> Json:
    port = entry["proxy_port"]
    flags = {"proxyTcp": bool(entry.get("proxy_tcp")), "unauthenticated": bool(entry.get("unauthenticated"))}
    return {"serviceId": f"{task_id}:{port}", "port": port, **flags}


@router.get(f"{V1}/tasks/count")
def count_tasks(master: UsesMaster, caller: UserCaller) -> Json:
    """Those that have not ended."""
    counts = master.standalone_tasks.counts(caller.workspaces)
    return {f"{kind.lower()}s": counts[kind] for kind in (COMMAND, NOTEBOOK, SHELL, TENSORBOARD)}


@router.get(f"{V1}/job-queues/stats")
def queue_stats(
    master: UsesMaster,
    caller: UserCaller,
    pools: Annotated[list[str], Query(alias="resourcePools")] = [],  # noqa: B006
) -> Json:
    waits = master.slot_usage.queue_stats()
    counts = master.job_queue.counts()
    names = [entry.pool.name for entry in master.clusters.pools()]
    results = []
    for name in names:
        if pools and name not in pools:
            continue
        queued, scheduled = counts.get(name, (0, 0))
        results.append(
            {
                "resourcePool": name,
                "stats": {"queuedCount": queued, "scheduledCount": scheduled},
                "aggregates": [{"periodStart": str(day), "seconds": seconds} for day, seconds in waits.get(name, ())],
            }
        )
    return {"results": results}


# -- what slots were used for -------------------------------------------------------------------------------------


@router.get(f"{V1}/resources/allocation/raw")
def raw(
    master: UsesMaster,
    caller: UserCaller,
    after: Annotated[Moment | None, Query(alias="timestampAfter")] = None,
    before: Annotated[Moment | None, Query(alias="timestampBefore")] = None,
) -> Json:
    entries = master.slot_usage.between(*_span(after, before))
    return {"resourceEntries": [_raw(use) for use in entries]}


@router.get("/resources/allocation/raw")
def raw_csv(
    master: UsesMaster, caller: UserCaller, timestamp_after: Moment, timestamp_before: Moment
) -> PlainTextResponse:
    header = ["experiment_id", "kind", "username", "labels", "slots", "start_time", "end_time", "seconds"]
    rows = (
        [use.experiment_id or "", use.kind.lower(), use.username, ",".join(use.labels), use.slots, rfc3339(use.start),
         rfc3339(use.end), f"{use.seconds:.3f}"]
        for use in master.slot_usage.between(timestamp_after, timestamp_before)
    )  # fmt: skip
    return _csv(header, rows)


@router.get("/resources/allocation/allocations-csv")
def allocations_csv(
    master: UsesMaster, caller: UserCaller, timestamp_after: Moment, timestamp_before: Moment
) -> PlainTextResponse:
    header = [
        "allocation_id", "task_type", "username", "workspace_name", "experiment_id", "task_id", "resource_pool",
        "slots", "start_time", "end_time", "seconds",
    ]  # fmt: skip
    rows = (
        [use.allocation_id, use.kind, use.username, use.workspace, use.experiment_id or "", use.task_id, use.pool,
         use.slots, rfc3339(use.start), "" if use.running else rfc3339(use.end), f"{use.seconds:.3f}"]
        for use in master.slot_usage.between(timestamp_after, timestamp_before)
    )  # fmt: skip
    return _csv(header, rows)


@router.get(f"{V1}/resources/allocation/aggregated")
def aggregated(
    master: UsesMaster,
    caller: UserCaller,
    first: Annotated[dt.date | None, Query(alias="startDate")] = None,
    last: Annotated[dt.date | None, Query(alias="endDate")] = None,
    period: str = "",
) -> Json:
    monthly = _monthly(period)
    sums = _sums(master, first, last, monthly)
    entries = [
        {
            "periodStart": str(one.start),
            "period": f"RESOURCE_ALLOCATION_AGGREGATION_PERIOD_{'MONTHLY' if monthly else 'DAILY'}",
            "seconds": one.seconds,
            "byUsername": dict(one.by_user),
            "byExperimentLabel": dict(one.by_label),
            "byResourcePool": dict(one.by_pool),
            "byAgentLabel": {},
        }
        for one in sums
    ]
    return {"resourceEntries": entries}


@router.get("/resources/allocation/aggregated")
def aggregated_csv(
    master: UsesMaster, caller: UserCaller, start_date: dt.date, end_date: dt.date, period: str = ""
) -> PlainTextResponse:
    header = ["aggregation_type", "aggregation_key", "date", "seconds"]
    rows: list[Sequence[Any]] = []
    for one in _sums(master, start_date, end_date, _monthly(period)):
        rows.append(["total", "total", one.start, f"{one.seconds:.3f}"])
        parts = {"username": one.by_user, "experiment_label": one.by_label, "resource_pool": one.by_pool}
        rows += [
            [kind, key, one.start, f"{seconds:.3f}"]
            for kind, by in parts.items()
            for key, seconds in sorted(by.items())
        ]
    return _csv(header, rows)


def _sums(master: UsesMaster, first: dt.date | None, last: dt.date | None, monthly: bool) -> list[slot_usage.Sum]:
    if first is None or last is None:
        raise Invalid("Give the first and the last day, as startDate=2026-01-01&endDate=2026-01-31.")
    return master.slot_usage.aggregated(first, last, monthly=monthly)


def _monthly(period: str) -> bool:
    known, prefix = ("DAILY", "MONTHLY"), "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_"
    return bool(period) and words([period], prefix, known, enums.PERIOD) == ["MONTHLY"]


def _span(after: dt.datetime | None, before: dt.datetime | None) -> tuple[dt.datetime, dt.datetime]:
    if after is None or before is None:
        raise Invalid("Give the time range as timestampAfter and timestampBefore, two RFC 3339 times.")
    return after, before


def _raw(use: slot_usage.Use) -> Json:
    return {
        "kind": use.kind.lower(),
        "allocationId": use.allocation_id,
        "workspaceName": use.workspace,
        "resourcePool": use.pool,
        "startTime": rfc3339(use.start),
        "endTime": rfc3339(use.end),
        "experimentId": use.experiment_id or 0,
        "username": use.username,
        "userId": use.user_id,
        "labels": use.labels,
        "seconds": use.seconds,
        "slots": use.slots,
    }


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> PlainTextResponse:
    text = "".join(",".join(csv_cell(str(cell)) for cell in row) + "\n" for row in (header, *rows))
    saved = {"Content-Disposition": 'attachment; filename="export.csv"'}
    return PlainTextResponse(text, media_type="text/csv", headers=saved)
