"""Endpoints for tasks: their logs, allocations and files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import StreamingResponse
from pydantic.alias_generators import to_camel

from trainmaster.config.secrets import masked
from trainmaster.master.api.schemas.entities import Allocation
from trainmaster.master.api.schemas.records import log_line
from trainmaster.master.http.dependencies import AnyCaller, UserCaller, UsesMaster, own_allocation
from trainmaster.master.http.messages import Shape, rfc3339
from trainmaster.master.http.parameters import Descending, Levels, Strings
from trainmaster.master.http.streams import LogPage, ReadPage, line_of, log_fields, log_pages, with_errors
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration.task_orchestrator import GENERIC
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["tasks"])


class AllocationAnswer(Shape):
    allocation: Allocation


def _filter(
    levels: Levels,
    allocationIds: Strings = [],  # noqa: B006
    agentIds: Strings = [],  # noqa: B006
    containerIds: Strings = [],  # noqa: B006
    rankIds: Annotated[list[int], Query()] = [],  # noqa: B006
    stdtypes: Strings = [],  # noqa: B006
    sources: Strings = [],  # noqa: B006
    timestampBefore: dt.datetime | None = None,
    timestampAfter: dt.datetime | None = None,
    searchText: str = "",
    enableRegex: bool = False,
    afterId: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
) -> log_store.LogFilter:
    return log_store.LogFilter(
        allocation_ids=allocationIds,
        agent_ids=agentIds,
        container_ids=containerIds,
        rank_ids=rankIds,
        levels=levels,
        stdtypes=stdtypes,
        sources=sources,
        before=timestampBefore,
        after=timestampAfter,
        search_text=searchText,
        regex=enableRegex,
        after_id=afterId,
    )


Filter = Annotated[log_store.LogFilter, Depends(_filter)]


@router.get("/tasks/{task_id}/logs")
async def task_logs(
    task_id: str,
    master: UsesMaster,
    caller: UserCaller,
    where: Filter,
    descending: Descending,
    limit: int = 0,
    follow: bool = False,
) -> StreamingResponse:
    await master.threads.run(caller, master.trials.task_with_allocations, task_id)
    await master.threads.run(caller, master.log_store.check, master.settings.limits, where)
    return await _stream(master, caller, [task_id], where, limit, follow, bool(descending), {})


@router.get("/trials/{trial_id}/logs")
async def trial_logs(
    trial_id: int,
    master: UsesMaster,
    caller: UserCaller,
    where: Filter,
    descending: Descending,
    limit: int = 0,
    follow: bool = False,
) -> StreamingResponse:
    tasks = await master.threads.run(caller, master.trials.tasks_of_trial, trial_id)
    await master.threads.run(caller, master.log_store.check, master.settings.limits, where)
    return await _stream(master, caller, tasks, where, limit, follow, bool(descending), {"trialId": trial_id})


@router.get("/tasks/{task_id}/logs/fields")
async def task_log_fields(
    task_id: str, master: UsesMaster, caller: UserCaller, follow: bool = False
) -> StreamingResponse:
    await master.threads.run(caller, master.trials.task_with_allocations, task_id)
    return _fields(master, caller, [task_id], follow)


@router.get("/trials/{trial_id}/logs/fields")
async def trial_log_fields(
    trial_id: int, master: UsesMaster, caller: UserCaller, follow: bool = False
) -> StreamingResponse:
    tasks = await master.threads.run(caller, master.trials.tasks_of_trial, trial_id)
    return _fields(master, caller, tasks, follow)


def _fields(master: UsesMaster, caller: Caller, tasks: Sequence[str], follow: bool) -> StreamingResponse:
    """Return the values that tasks' lines can be filtered by; with `follow` again whenever the last task has more."""

    async def body() -> AsyncIterator[bytes]:
        async for fields in log_fields(master, caller, tasks, follow=follow):
            yield line_of({to_camel(name): values for name, values in fields.items()})

    return StreamingResponse(with_errors(body()), media_type="application/json")


async def _stream(
    master: UsesMaster,
    caller: Caller,
    tasks: Sequence[str],
    where: log_store.LogFilter,
    limit: int,
    follow: bool,
    newest_first: bool,
    extra: Json,
) -> StreamingResponse:
    """Return an error in reading the first lines is answered as for any request; a later one is the stream's last
    line."""
    read = _reading(master, caller, tasks, where, extra)
    pages = log_pages(master, caller, read, tasks[-1], limit=limit, follow=follow, newest=newest_first)
    first = None if follow else await anext(pages, None)

    async def body() -> AsyncIterator[bytes]:
        if first is not None:
            yield first
        async for page in pages:
            yield page

    return StreamingResponse(with_errors(body()), media_type="application/json")


def _reading(
    master: UsesMaster, caller: Caller, tasks: Sequence[str], where: log_store.LogFilter, extra: Json
) -> ReadPage:
    """How lines are read: a search takes a place of the caller's share, of which there are few."""

    async def read(after_id: int, room: int, newest_first: bool) -> LogPage:
        def look() -> LogPage:
            lines: list[log_store.StoredLine] = []
            for name in tasks:
                lines += master.log_store.read(name, where, after_id=after_id, limit=room, newest_first=newest_first)
            if len(tasks) > 1:
                lines.sort(key=lambda line: line.id, reverse=newest_first)
            lines = lines[:room]
            content = b"".join(line_of(log_line(line) | extra) for line in lines)
            return LogPage(content, len(lines), lines[-1].id if lines else after_id)

        if where.search_text:
            return await master.threads.search(caller, look)
        return await master.threads.run(caller, look)

    return read


@router.get("/tasks/{task_id}")
def get_task(task_id: str, master: UsesMaster, caller: UserCaller) -> Json:
    task, allocations = master.trials.task_with_allocations(task_id)
    shown: Json = {
        "taskId": task.task_id,
        "taskType": f"TASK_TYPE_{task.task_type}",
        "startTime": rfc3339(task.start_time),
        "allocations": [Allocation.of(row).model_dump(by_alias=True, exclude_none=True) for row in allocations],
    }
    if task.end_time:
        shown["endTime"] = rfc3339(task.end_time)
    if task.task_type != "TRIAL":
        row = master.standalone_tasks.get(task_id).row
        shown["allocations"].reverse()  # clients look at the first one to see whether the task is ready
        shown["config"] = json.dumps(masked(row.config.to_json()))
        if row.kind == GENERIC:
            shown |= {"taskState": f"GENERIC_TASK_STATE_{row.state}", "noPause": not row.pausable}
        known = {"parentId": row.parent_id, "forkedFrom": row.forked_from}
        shown |= {key: value for key, value in known.items() if value is not None}
    return {"task": shown}


@router.get("/allocations/{allocation_id}")
def get_allocation(allocation_id: str, master: UsesMaster, caller: AnyCaller) -> AllocationAnswer:
    if caller.allocation_id is not None:
        own_allocation(caller, allocation_id)
    return AllocationAnswer(allocation=Allocation.of(master.trials.get_allocation(allocation_id)))
