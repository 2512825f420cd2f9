"""Endpoints for commands, notebooks, shells and TensorBoards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from trainmaster.config.secrets import masked
from trainmaster.master.api.experiments import File
from trainmaster.master.api.schemas.entities import ALLOCATION_STATES, Pagination
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import AnyCaller, ServedMaster, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, rfc3339
from trainmaster.master.http.parameters import Descending, Strings, sort_key
from trainmaster.master.lifecycle.states import AllocationState
from trainmaster.master.services.access import accounts
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.errors import Forbidden
from trainmaster.master.services.files.context_archive import ContextFile
from trainmaster.master.services.orchestration.task_orchestrator import COMMAND, NOTEBOOK, SHELL, TENSORBOARD
from trainmaster.master.services.tasks import task_creation
from trainmaster.master.services.tasks.standalone import SORTS, TaskQuery, TaskView
from trainmaster.master.services.tasks.task_creation import TaskOrder
from trainmaster.master.values.stored import Json
from trainmaster.master.values.tasks import ShellKeys, ShownEvents

router = APIRouter(prefix="/api/v1", tags=["commands"])


class Launch(Body):
    config: Json = {}  # noqa: RUF012
    files: list[File] = []  # noqa: RUF012
    template_name: str = ""
    workspace_id: int = 0
    data: str = ""  # of clients before 0.20, which nobody uses any more
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
    key = sort_key(sort_by, SORTS, "start_time", enums.TASKS)
    return TaskQuery("", users, user_ids, workspace_id, key, bool(descending))


QueriedTasks = Annotated[TaskQuery, Depends(_query)]


def contents(files: list[File]) -> list[ContextFile]:
    return [ContextFile(f.path, f.type, f.content, f.mtime, f.mode) for f in files]


# -- answers ------------------------------------------------------------------------------------------------------


def state_of(view: TaskView) -> str:
    """Return a task's state is that of its latest attempt."""
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


def _with_address(view: TaskView) -> Json:
    return {**_shown(view), "serviceAddress": f"/proxy/{view.row.task_id}/"}


def _tensorboard(view: TaskView) -> Json:
    shows = view.row.shows or ShownEvents({})
    return {**_with_address(view), "experimentIds": shows.experiment_ids, "trialIds": shows.trial_ids}


def _shell(view: TaskView, caller: Caller, master: ServedMaster) -> Json:
    """Return the shell with its keys: the private one only to users who may run programs in it."""
    row = view.row
    latest = view.latest
    where = (latest.dispatcher, latest.run_as) if latest else ()
    opens = caller.holds(Permission.UPDATE_NSC, row.workspace_id) and master.accounts.may_open(
        caller, accounts.RunsAs(row.owner_id, row.workspace_id, *where)
    )
    keys = row.secrets if opens and row.secrets else ShellKeys({})
    announced = latest.proxy.user if latest and latest.proxy else ""
    user = announced if announced and accounts.is_account_name(announced) else latest.run_as if latest else None
    if latest and not user:
        # The published client keeps the name that the launch returns, before the shell announces its own.
        job = accounts.RunsAs(row.owner_id, row.workspace_id)
        user = master.accounts.expected(latest.pool, job)
    return {
        **_shown(view),
        "privateKey": keys.private_key,
        "publicKey": keys.public_key,
        "hostPublicKey": keys.host_public_key,  # ours
        "addresses": [],
        "agentUserGroup": {"user": user or "root"},
    }


def _planned(plan: task_creation.Plan, caller: Caller) -> Json:
    """Return a preview of a notebook that is not created."""
    return {
        "id": "",
        "description": plan.config.description,
        "state": "STATE_UNSPECIFIED",
        "startTime": "1970-01-01T00:00:00Z",
        "username": caller.username,
        "userId": caller.user_id,
        "resourcePool": plan.served.pool.name,
        "jobId": "",
        "workspaceId": plan.workspace_id,
        "serviceAddress": "",
    }


# -- what all four kinds have ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskKind:
    """One of the four kinds: its name in addresses and answers, how one of them is shown to a caller, and how it is
    shown in lists."""

    kind: str
    name: str
    shown: Callable[[TaskView, Caller, ServedMaster], Json]
    listed: Callable[[TaskView], Json]

    def answer(self, view: TaskView, caller: Caller, master: ServedMaster) -> Json:
        return {self.name: self.shown(view, caller, master)}

    def launch(self, body: Launch, master: ServedMaster, caller: Caller) -> Json:
        """Start the task that `body` requests."""
        made = master.task_creation.create(caller, self.order(body))
        view = master.standalone_tasks.get(made.task_id)
        warnings = master.feasibility.launch_warnings(view.row.config)
        more = {"config": masked(view.row.config.to_json()), "warnings": warnings, "remarks": list(made.remarks)}
        return {**self.answer(view, caller, master), **more}

    def order(self, body: Launch) -> TaskOrder:
        shows = (body.experiment_ids, body.trial_ids) if isinstance(body, LaunchTensorboard) else ((), ())
        return TaskOrder(
            self.kind,
            body.config,
            contents(body.files),
            body.template_name,
            body.workspace_id,
            experiment_ids=shows[0],
            trial_ids=shows[1],
        )


COMMANDS = TaskKind(COMMAND, "command", lambda view, *_: _shown(view), _shown)
NOTEBOOKS = TaskKind(NOTEBOOK, "notebook", lambda view, *_: _with_address(view), _with_address)
SHELLS = TaskKind(SHELL, "shell", _shell, _shown)  # lists are without their keys
TENSORBOARDS = TaskKind(TENSORBOARD, "tensorboard", lambda view, *_: _tensorboard(view), _tensorboard)


def _serve(task_kind: TaskKind) -> None:
    """Add the endpoints of one kind, except the one that starts a task."""
    name, kind = task_kind.name, task_kind.kind
    given = Path(alias=f"{name}_id")

    @router.get(f"/{name}s", name=f"{name}s")
    def page(master: UsesMaster, caller: UserCaller, wanted: QueriedTasks, offset: int = 0, limit: int = 0) -> Json:
        listed = master.standalone_tasks.list_page(caller, replace(wanted, kind=kind), offset, limit)
        pagination = Pagination.of(listed.window).model_dump(by_alias=True)
        return {f"{name}s": [task_kind.listed(view) for view in listed.items], "pagination": pagination}

    @router.get(f"/{name}s/{{{name}_id}}", name=f"get_{name}")
    def get(master: UsesMaster, caller: UserCaller, task_id: str = given) -> Json:
        view = master.standalone_tasks.get(task_id, kind)
        return {**task_kind.answer(view, caller, master), "config": masked(view.row.config.to_json())}

    @router.post(f"/{name}s/{{{name}_id}}/kill", name=f"kill_{name}")
    def kill(master: UsesMaster, caller: UserCaller, task_id: str = given) -> Json:
        master.standalone_tasks.kill(caller, task_id, kind)
        return task_kind.answer(master.standalone_tasks.get(task_id), caller, master)

    @router.post(f"/{name}s/{{{name}_id}}/set_priority", name=f"prioritise_{name}")
    def prioritise(body: SetPriority, master: UsesMaster, caller: UserCaller, task_id: str = given) -> Json:
        view = master.standalone_tasks.get(task_id, kind)
        master.queue_control.prioritise_task(caller, view.row, str(view.job_id), body.priority)
        return task_kind.answer(master.standalone_tasks.get(task_id), caller, master)


for _family in (COMMANDS, NOTEBOOKS, SHELLS, TENSORBOARDS):
    _serve(_family)


# -- what starts them, and what one of them says ----------------------------------------------------------------------


@router.post("/commands")
def launch_command(body: Launch, master: UsesMaster, caller: UserCaller) -> Json:
    return COMMANDS.launch(body, master, caller)


@router.post("/notebooks")
def launch_notebook(body: Launch, master: UsesMaster, caller: UserCaller) -> Json:
    """With `preview` nothing is started; the answer says what the configuration would be."""
    if not body.preview:
        return NOTEBOOKS.launch(body, master, caller)
    order = NOTEBOOKS.order(body)
    plan = master.task_creation.plan(caller, order)
    warnings = master.feasibility.launch_warnings(plan.config)
    remarks = [*plan.unused, *plan.remarks]
    return {
        "notebook": _planned(plan, caller),
        "config": masked(plan.config.to_json()),
        "warnings": warnings,
        "remarks": remarks,
    }


@router.post("/shells")
def launch_shell(body: Launch, master: UsesMaster, caller: UserCaller) -> Json:
    return SHELLS.launch(body, master, caller)


@router.post("/tensorboards")
def launch_tensorboard(body: LaunchTensorboard, master: UsesMaster, caller: UserCaller) -> Json:
    return TENSORBOARDS.launch(body, master, caller)


@router.put("/notebooks/{notebook_id}/report_idle")
def report_idle(notebook_id: str, body: ReportIdle, master: UsesMaster, caller: AnyCaller) -> Json:
    """Take in a notebook job's report on its kernels."""
    if caller.task_id != notebook_id and not (caller.allocation_id is None and caller.admin):
        raise Forbidden(f"This token does not belong to the notebook {notebook_id}.")
    master.idle_tasks.note(notebook_id, idle=body.idle)
    return {}
