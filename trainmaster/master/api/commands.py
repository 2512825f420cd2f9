"""Commands, notebooks, shells and TensorBoards."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from trainmaster.config.secrets import masked
from trainmaster.master.api.dependencies import AnyCaller, Services, UserCaller, UsesServices
from trainmaster.master.api.experiments import File
from trainmaster.master.api.parameters import Descending, Strings, sort_key
from trainmaster.master.api.shapes import ALLOCATION_STATES, Body, Pagination, rfc3339
from trainmaster.master.lifecycle.states import AllocationState
from trainmaster.master.services import idle, queue_control, standalone, task_creation
from trainmaster.master.services.context import ContextFile
from trainmaster.master.services.errors import Forbidden
from trainmaster.master.services.identity import Caller
from trainmaster.master.services.permissions import Permission
from trainmaster.master.services.standalone import SORTS, TaskQuery, TaskView
from trainmaster.master.services.task_conductor import COMMAND, NOTEBOOK, SHELL, TENSORBOARD
from trainmaster.master.services.task_creation import TaskOrder

router = APIRouter(prefix="/api/v1", tags=["commands"])
Json = dict[str, Any]


class Launch(Body):
    config: Json = {}  # noqa: RUF012
    files: list[File] = []  # noqa: RUF012
    template_name: str = ""
    workspace_id: int = 0
    data: str = ""  # of clients before 0.20, for which nobody asks any more
    preview: bool = False


class LaunchTensorboard(Launch):
    experiment_ids: list[int] = []  # noqa: RUF012
    trial_ids: list[int] = []  # noqa: RUF012


class SetPriority(Body):
    priority: int
    command_id: str = ""
    notebook_id: str = ""
    shell_id: str = ""
    tensorboard_id: str = ""


class ReportIdle(Body):
    idle: bool = False
    notebook_id: str = ""


def _query(
    descending: Descending,
    users: Strings = [],  # noqa: B006
    user_ids: Annotated[list[int], Query(alias="userIds")] = [],  # noqa: B006
    workspace_id: Annotated[int, Query(alias="workspaceId")] = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_START_TIME",
) -> TaskQuery:
    return TaskQuery("", users, user_ids, workspace_id, sort_key(sort_by, SORTS, "start_time"), bool(descending))


Wanted = Annotated[TaskQuery, Depends(_query)]


def contents(files: list[File]) -> list[ContextFile]:
    return [ContextFile(f.path, f.type, f.content, f.mtime, f.mode) for f in files]


# -- answers ------------------------------------------------------------------------------------------------------


def state_of(view: TaskView) -> str:
    """A task's state is that of its latest attempt."""
    if view.row.end_time is not None:
        return "STATE_TERMINATED"
    if view.latest is None or view.latest.ended_at is not None:
        return "STATE_QUEUED"
    return ALLOCATION_STATES[AllocationState(view.latest.state)]


def _shown(view: TaskView) -> Json:
    row = view.row
    return {
        "id": row.task_id,
        "description": row.description,
        "state": state_of(view),
        "startTime": rfc3339(row.start_time),
        "displayName": view.display_name,
        "userId": row.owner_id,
        "username": view.username,
        "resourcePool": row.pool,
        "exitStatus": row.reason if row.end_time else "",
        "jobId": str(view.job_id),
        "workspaceId": row.workspace_id,
    }


def _command(view: TaskView) -> Json:
    return _shown(view)


def _notebook(view: TaskView) -> Json:
    return {**_shown(view), "serviceAddress": f"/proxy/{view.row.task_id}/"}


def _tensorboard(view: TaskView) -> Json:
    shows = view.row.shows or {}
    numbers = {"experimentIds": shows.get("experiment_ids") or [], "trialIds": shows.get("trial_ids") or []}
    return {**_notebook(view), **numbers}


def _shell(view: TaskView, caller: Caller) -> Json:
    """The key that opens a shell is for those who may end it."""
    row = view.row
    ends = caller.may_change(row.owner_id) and caller.holds(Permission.UPDATE_NSC, row.workspace_id)
    found = row.secrets or {} if ends else {}
    user = ((view.latest.proxy or {}).get("user") or view.latest.run_as) if view.latest else None
    return {
        **_shown(view),
        "privateKey": found.get("private_key", ""),
        "publicKey": found.get("public_key", ""),
        "hostPublicKey": found.get("host_public_key", ""),  # ours
        "addresses": [],
        "agentUserGroup": {"user": user or "root"},
    }


def _page(services: Services, caller: Caller, kind: str, wanted: TaskQuery, offset: int, limit: int) -> Any:
    query = TaskQuery(kind, wanted.usernames, wanted.user_ids, wanted.workspace_id, wanted.sort_by, wanted.descending)
    page = standalone.list_page(services.store, caller, query, offset, limit)
    return page.items, Pagination.of(page.window).model_dump(by_alias=True)


def _launch(services: Services, caller: Caller, order: TaskOrder) -> TaskView:
    task_id = task_creation.create(
        services.store, services.settings, services.clusters, services.defaults, caller, order
    )
    return standalone.get(services.store, task_id)


def _order(kind: str, body: Launch) -> TaskOrder:
    return TaskOrder(kind, body.config, contents(body.files), body.template_name, body.workspace_id)


def _config(view: TaskView) -> Json:
    return masked(view.row.config)


def _kill(services: Services, caller: Caller, kind: str, task_id: str) -> TaskView:
    standalone.kill(services.store, services.settings, caller, task_id, kind)
    return standalone.get(services.store, task_id)


def _prioritise(services: Services, caller: Caller, kind: str, task_id: str, priority: int) -> TaskView:
    view = standalone.get(services.store, task_id, kind)
    change = queue_control.QueueChange(job_id=str(view.job_id), priority=priority)
    queue_control.change(services.store, services.settings, services.clusters, caller, [change])
    return standalone.get(services.store, task_id)


# -- commands -----------------------------------------------------------------------------------------------------


@router.get("/commands")
def commands(services: UsesServices, caller: UserCaller, wanted: Wanted, offset: int = 0, limit: int = 0) -> Json:
    found, pagination = _page(services, caller, COMMAND, wanted, offset, limit)
    return {"commands": [_command(view) for view in found], "pagination": pagination}


@router.post("/commands")
def launch_command(body: Launch, services: UsesServices, caller: UserCaller) -> Json:
    view = _launch(services, caller, _order(COMMAND, body))
    return {"command": _command(view), "config": _config(view), "warnings": []}


@router.get("/commands/{command_id}")
def get_command(command_id: str, services: UsesServices, caller: UserCaller) -> Json:
    view = standalone.get(services.store, command_id, COMMAND)
    return {"command": _command(view), "config": _config(view)}


@router.post("/commands/{command_id}/kill")
def kill_command(command_id: str, services: UsesServices, caller: UserCaller) -> Json:
    return {"command": _command(_kill(services, caller, COMMAND, command_id))}


@router.post("/commands/{command_id}/set_priority")
def prioritise_command(command_id: str, body: SetPriority, services: UsesServices, caller: UserCaller) -> Json:
    return {"command": _command(_prioritise(services, caller, COMMAND, command_id, body.priority))}


# -- notebooks ----------------------------------------------------------------------------------------------------


@router.get("/notebooks")
def notebooks(services: UsesServices, caller: UserCaller, wanted: Wanted, offset: int = 0, limit: int = 0) -> Json:
    found, pagination = _page(services, caller, NOTEBOOK, wanted, offset, limit)
    return {"notebooks": [_notebook(view) for view in found], "pagination": pagination}


@router.post("/notebooks")
def launch_notebook(body: Launch, services: UsesServices, caller: UserCaller) -> Json:
    """With `preview` nothing is started; the answer says what the configuration would be."""
    order = _order(NOTEBOOK, body)
    if body.preview:
        found = task_creation.plan(
            services.store, services.settings, services.clusters, services.defaults, caller, order
        )
        shown = {"id": "", "description": found.config["description"], "state": "STATE_UNSPECIFIED", "startTime": None}
        shown |= {"username": caller.username, "userId": caller.user_id, "resourcePool": found.served.pool.name}
        shown |= {
            "jobId": "",
            "workspaceId": found.workspace_id,
            "serviceAddress": "",
            "startTime": "1970-01-01T00:00:00Z",
        }
        return {"notebook": shown, "config": masked(found.config), "warnings": []}
    view = _launch(services, caller, order)
    return {"notebook": _notebook(view), "config": _config(view), "warnings": []}


@router.get("/notebooks/{notebook_id}")
def get_notebook(notebook_id: str, services: UsesServices, caller: UserCaller) -> Json:
    view = standalone.get(services.store, notebook_id, NOTEBOOK)
    return {"notebook": _notebook(view), "config": _config(view)}


@router.post("/notebooks/{notebook_id}/kill")
def kill_notebook(notebook_id: str, services: UsesServices, caller: UserCaller) -> Json:
    return {"notebook": _notebook(_kill(services, caller, NOTEBOOK, notebook_id))}


@router.post("/notebooks/{notebook_id}/set_priority")
def prioritise_notebook(notebook_id: str, body: SetPriority, services: UsesServices, caller: UserCaller) -> Json:
    return {"notebook": _notebook(_prioritise(services, caller, NOTEBOOK, notebook_id, body.priority))}


@router.put("/notebooks/{notebook_id}/report_idle")
def report_idle(notebook_id: str, body: ReportIdle, services: UsesServices, caller: AnyCaller) -> Json:
    """What a notebook's job says of its kernels."""
    if caller.task_id != notebook_id and not (caller.allocation_id is None and caller.admin):
        raise Forbidden(f"This token does not belong to the notebook {notebook_id}.")
    idle.note(services.store, notebook_id, idle=body.idle)
    return {}


# -- shells -------------------------------------------------------------------------------------------------------


@router.get("/shells")
def shells(services: UsesServices, caller: UserCaller, wanted: Wanted, offset: int = 0, limit: int = 0) -> Json:
    """Without their keys."""
    found, pagination = _page(services, caller, SHELL, wanted, offset, limit)
    return {"shells": [_shown(view) for view in found], "pagination": pagination}


@router.post("/shells")
def launch_shell(body: Launch, services: UsesServices, caller: UserCaller) -> Json:
    view = _launch(services, caller, _order(SHELL, body))
    return {"shell": _shell(view, caller), "config": _config(view), "warnings": []}


@router.get("/shells/{shell_id}")
def get_shell(shell_id: str, services: UsesServices, caller: UserCaller) -> Json:
    view = standalone.get(services.store, shell_id, SHELL)
    return {"shell": _shell(view, caller), "config": _config(view)}


@router.post("/shells/{shell_id}/kill")
def kill_shell(shell_id: str, services: UsesServices, caller: UserCaller) -> Json:
    return {"shell": _shell(_kill(services, caller, SHELL, shell_id), caller)}


@router.post("/shells/{shell_id}/set_priority")
def prioritise_shell(shell_id: str, body: SetPriority, services: UsesServices, caller: UserCaller) -> Json:
    return {"shell": _shell(_prioritise(services, caller, SHELL, shell_id, body.priority), caller)}


# -- TensorBoards -------------------------------------------------------------------------------------------------


@router.get("/tensorboards")
def tensorboards(services: UsesServices, caller: UserCaller, wanted: Wanted, offset: int = 0, limit: int = 0) -> Json:
    found, pagination = _page(services, caller, TENSORBOARD, wanted, offset, limit)
    return {"tensorboards": [_tensorboard(view) for view in found], "pagination": pagination}


@router.post("/tensorboards")
def launch_tensorboard(body: LaunchTensorboard, services: UsesServices, caller: UserCaller) -> Json:
    order = TaskOrder(
        TENSORBOARD,
        body.config,
        contents(body.files),
        body.template_name,
        body.workspace_id,
        experiment_ids=body.experiment_ids,
        trial_ids=body.trial_ids,
    )
    view = _launch(services, caller, order)
    return {"tensorboard": _tensorboard(view), "config": _config(view), "warnings": []}


@router.get("/tensorboards/{tensorboard_id}")
def get_tensorboard(tensorboard_id: str, services: UsesServices, caller: UserCaller) -> Json:
    view = standalone.get(services.store, tensorboard_id, TENSORBOARD)
    return {"tensorboard": _tensorboard(view), "config": _config(view)}


@router.post("/tensorboards/{tensorboard_id}/kill")
def kill_tensorboard(tensorboard_id: str, services: UsesServices, caller: UserCaller) -> Json:
    return {"tensorboard": _tensorboard(_kill(services, caller, TENSORBOARD, tensorboard_id))}


@router.post("/tensorboards/{tensorboard_id}/set_priority")
def prioritise_tensorboard(tensorboard_id: str, body: SetPriority, services: UsesServices, caller: UserCaller) -> Json:
    return {"tensorboard": _tensorboard(_prioritise(services, caller, TENSORBOARD, tensorboard_id, body.priority))}
