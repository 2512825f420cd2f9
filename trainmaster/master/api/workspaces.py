"""Endpoints for workspaces and their resource pools."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.config.secrets import masked
from trainmaster.master.api.schemas.entities import AgentUserGroup, Pagination
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape, Time
from trainmaster.master.http.parameters import Descending, Name, Strings, sort_key
from trainmaster.master.services.access.accounts import Account
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.organisation import workspaces
from trainmaster.master.services.organisation.workspaces import WorkspaceChange, WorkspaceQuery, WorkspaceView
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["workspaces"])
Ids = Annotated[list[int], Query()]


class Workspace(Shape):
    id: int
    name: str
    archived: bool
    immutable: bool
    username: str
    user_id: int
    num_projects: int
    num_experiments: int
    pinned: bool
    pinned_at: Time | None
    state: str
    error_message: str
    agent_user_group: AgentUserGroup | None
    checkpoint_storage_config: Json | None
    default_compute_pool: str
    default_aux_pool: str

    @classmethod
    def of(cls, view: WorkspaceView) -> Workspace:
        row = view.row
        linked = AgentUserGroup(
            agent_uid=row.agent_uid, agent_user=row.agent_user, agent_gid=row.agent_gid, agent_group=row.agent_group
        )
        return cls(
            id=row.id,
            name=row.name,
            archived=row.archived,
            immutable=row.immutable,
            username=view.username,
            user_id=row.user_id,
            num_projects=view.num_projects,
            num_experiments=view.num_experiments,
            pinned=view.pinned_at is not None,
            pinned_at=view.pinned_at,
            state=f"WORKSPACE_STATE_{row.state or 'UNSPECIFIED'}",
            error_message=row.error,
            agent_user_group=linked if linked != AgentUserGroup() else None,
            checkpoint_storage_config=masked(row.checkpoint_storage.to_json())
            if row.checkpoint_storage is not None
            else None,
            default_compute_pool=row.compute_pool,
            default_aux_pool=row.aux_pool,
        )


class WorkspaceAnswer(Shape):
    workspace: Workspace
    namespace_bindings: dict[str, Json] = {}  # noqa: RUF012 - of Kubernetes: none


class WorkspacesAnswer(Shape):
    workspaces: list[Workspace]
    pagination: Pagination


class AgentUserGroupBody(Body):
    """Any of these fields. Jobs run as this account; where none is set, as their owner's."""

    agent_uid: int | None = None
    agent_user: str | None = None
    agent_gid: int | None = None
    agent_group: str | None = None

    def account(self) -> Account:
        return Account(self.agent_uid, self.agent_user or None, self.agent_gid, self.agent_group or None)


class _Kubernetes(Body):
    """Accepted only to be refused with a sentence."""

    cluster_namespace_meta: dict[str, Json] | None = None
    cluster_quota_pairs: dict[str, int] | None = None

    def refuse(self) -> None:
        if self.cluster_namespace_meta or self.cluster_quota_pairs:
            raise Invalid("Namespaces and resource quotas belong to Kubernetes, which this master does not serve.")


class PostWorkspace(_Kubernetes):
    name: Name
    agent_user_group: AgentUserGroupBody | None = None
    checkpoint_storage_config: Json | None = None
    default_compute_pool: str | None = None
    default_aux_pool: str | None = None


class PatchWorkspace(_Kubernetes):
    name: Name | None = None
    agent_user_group: AgentUserGroupBody | None = None
    checkpoint_storage_config: Json | None = None
    default_compute_resource_pool: str | None = None
    default_aux_resource_pool: str | None = None
    default_compute_pool: str | None = None
    default_aux_pool: str | None = None


@router.get("/workspaces")
def list_workspaces(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_ID",
    name: str = "",
    exact: Annotated[str, Query(alias="nameCaseSensitive")] = "",
    archived: bool | None = None,
    pinned: bool | None = None,
    users: Strings = [],  # noqa: B006
    user_ids: Annotated[list[int], Query(alias="userIds")] = [],  # noqa: B006
) -> WorkspacesAnswer:
    query = WorkspaceQuery(
        name=name,
        exact=exact,
        archived=archived,
        pinned=pinned,
        users=users,
        user_ids=user_ids,
        sort_by=sort_key(sort_by, workspaces.SORTS, "id", enums.WORKSPACES),
        descending=bool(descending),
    )
    page = master.workspaces.list_page(caller, query, offset, limit)
    shown = [Workspace.of(view) for view in page.items]
    return WorkspacesAnswer(workspaces=shown, pagination=Pagination.of(page.window))


@router.post("/workspaces")
def create(body: PostWorkspace, master: UsesMaster, caller: UserCaller) -> WorkspaceAnswer:
    body.refuse()
    change = WorkspaceChange(
        name=body.name,
        account=body.agent_user_group.account() if body.agent_user_group else None,
        checkpoint_storage=body.checkpoint_storage_config,
        compute_pool=body.default_compute_pool,
        aux_pool=body.default_aux_pool,
    )
    made = master.workspaces.create(caller, change)
    return WorkspaceAnswer(workspace=Workspace.of(made))


@router.get("/workspaces/{workspace_id}")
def get(workspace_id: int, master: UsesMaster, caller: UserCaller) -> WorkspaceAnswer:
    return WorkspaceAnswer(workspace=Workspace.of(master.workspaces.get(caller, workspace_id)))


@router.patch("/workspaces/{workspace_id}")
def patch(workspace_id: int, body: PatchWorkspace, master: UsesMaster, caller: UserCaller) -> WorkspaceAnswer:
    body.refuse()
    change = WorkspaceChange(
        name=body.name,
        account=body.agent_user_group.account() if body.agent_user_group else None,
        checkpoint_storage=body.checkpoint_storage_config,
        compute_pool=_first(body.default_compute_resource_pool, body.default_compute_pool),
        aux_pool=_first(body.default_aux_resource_pool, body.default_aux_pool),
    )
    view = master.workspaces.patch(caller, workspace_id, change)
    return WorkspaceAnswer(workspace=Workspace.of(view))


def _first(one: str | None, other: str | None) -> str | None:
    return one if one is not None else other


@router.delete("/workspaces/{workspace_id}")
def delete(workspace_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Delete a workspace with its contents; `completed`: whether that is done already."""
    return {"completed": master.workspaces.remove(caller, workspace_id)}


@router.post("/workspaces/{workspace_id}/archive")
def archive(workspace_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.workspaces.set_archived(caller, workspace_id, True)
    return {}


@router.post("/workspaces/{workspace_id}/unarchive")
def unarchive(workspace_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.workspaces.set_archived(caller, workspace_id, False)
    return {}


@router.post("/workspaces/{workspace_id}/pin")
def pin(workspace_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.workspaces.set_pinned(caller, workspace_id, True)
    return {}


@router.post("/workspaces/{workspace_id}/unpin")
def unpin(workspace_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.workspaces.set_pinned(caller, workspace_id, False)
    return {}


# -- pools --------------------------------------------------------------------------------------------------------


class PoolNamesAnswer(Shape):
    resource_pools: list[str]
    pagination: Pagination


class WorkspaceIdsAnswer(Shape):
    workspace_ids: list[int]
    pagination: Pagination


class BindingsBody(Body):
    resource_pool_name: str | None = None
    workspace_ids: list[int] = []  # noqa: RUF012
    workspace_names: list[str] = []  # noqa: RUF012


@router.get("/workspaces/{workspace_id}/available-resource-pools")
def pools_of(
    workspace_id: int, master: UsesMaster, caller: UserCaller, offset: int = 0, limit: int = 0
) -> PoolNamesAnswer:
    page = master.pool_bindings.of_workspace(workspace_id, offset, limit)
    return PoolNamesAnswer(resource_pools=list(page.items), pagination=Pagination.of(page.window))


@router.get("/resource-pools/{pool_name}/workspace-bindings")
def workspaces_of(
    pool_name: str, master: UsesMaster, caller: UserCaller, offset: int = 0, limit: int = 0
) -> WorkspaceIdsAnswer:
    page = master.pool_bindings.of_pool(pool_name, offset, limit)
    return WorkspaceIdsAnswer(workspace_ids=list(page.items), pagination=Pagination.of(page.window))


@router.post("/resource-pools/{pool_name}/workspace-bindings")
def bind(pool_name: str, body: BindingsBody, master: UsesMaster, caller: UserCaller) -> Json:
    names, ids = body.workspace_names, body.workspace_ids
    master.pool_bindings.bind(caller, pool_name, ids, names)
    return {}


@router.put("/resource-pools/{pool_name}/workspace-bindings")
def rebind(pool_name: str, body: BindingsBody, master: UsesMaster, caller: UserCaller) -> Json:
    """Replace the pools that are bound to the workspace."""
    names, ids = body.workspace_names, body.workspace_ids
    master.pool_bindings.replace(caller, pool_name, ids, names)
    return {}


@router.delete("/resource-pools/{pool_name}/workspace-bindings")
def unbind(pool_name: str, body: BindingsBody, master: UsesMaster, caller: UserCaller) -> Json:
    master.pool_bindings.unbind(pool_name, body.workspace_ids, body.workspace_names)
    return {}
