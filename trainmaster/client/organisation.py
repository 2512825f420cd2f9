"""Workspaces and projects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainmaster.client.errors import NoSuchThing
from trainmaster.client.resource import PAGE, Resource, given, word

if TYPE_CHECKING:
    from trainmaster.client import wire


class Organisation(Resource):
    """What experiments, models and templates stand in."""

    # -- workspaces -----------------------------------------------------------------------------------------------

    def workspaces(
        self, *, limit: int = PAGE, offset: int = 0, everything: bool = True, **query: Any
    ) -> list[wire.Workspace]:
        """`query` as the API names it: name, archived, sortBy, orderBy ..."""
        return self._pages("/api/v1/workspaces", "workspaces", query, limit, offset, everything)

    def workspace(self, name: str) -> wire.Workspace:
        """Raises NoSuchThing."""
        found: list[wire.Workspace] = self._get("workspaces", nameCaseSensitive=name)["workspaces"]
        if not found:
            raise NoSuchThing(404, f"There is no workspace {name!r}; `det workspace list` shows those there are.")
        return found[0]

    def create_workspace(self, name: str, **fields: Any) -> wire.Workspace:
        """`fields` as the API names them; None is not sent."""
        found: wire.Workspace = self._post("workspaces", {"name": name, **given(**fields)}, retry=False)["workspace"]
        return found

    def edit_workspace(self, workspace_id: int, **fields: Any) -> wire.Workspace:
        found: wire.Workspace = self._patch(f"workspaces/{workspace_id}", given(**fields))["workspace"]
        return found

    def delete_workspace(self, workspace_id: int) -> bool:
        """True when it is gone; False when the master is still at it."""
        return bool(self._delete(f"workspaces/{workspace_id}")["completed"])

    def steer_workspace(self, workspace_id: int, verb: str) -> None:
        """`verb`: archive, unarchive, pin or unpin."""
        self._post(f"workspaces/{workspace_id}/{verb}")

    def pools_of(self, workspace_id: int) -> list[str]:
        return list(self._get(f"workspaces/{workspace_id}/available-resource-pools")["resourcePools"])

    # -- projects -------------------------------------------------------------------------------------------------

    def projects(
        self, workspace_id: int, *, limit: int = PAGE, offset: int = 0, everything: bool = True, **query: Any
    ) -> list[wire.Project]:
        return self._pages(f"/api/v1/workspaces/{workspace_id}/projects", "projects", query, limit, offset, everything)

    def project(self, workspace: str, name: str) -> wire.Project:
        """Raises NoSuchThing."""
        for found in self.projects(self.workspace(workspace)["id"], name=name):
            if found["name"] == name:
                return found
        raise NoSuchThing(404, f"There is no project {name!r} in the workspace {workspace!r}.")

    def create_project(self, workspace_id: int, name: str, **fields: Any) -> wire.Project:
        body = {"name": name, "workspaceId": workspace_id, **given(**fields)}
        found: wire.Project = self._post(f"workspaces/{workspace_id}/projects", body, retry=False)["project"]
        return found

    def edit_project(self, project_id: int, **fields: Any) -> wire.Project:
        found: wire.Project = self._patch(f"projects/{project_id}", given(**fields))["project"]
        return found

    def delete_project(self, project_id: int) -> bool:
        """True when it is gone; False when the master is still at it."""
        return bool(self._delete(f"projects/{project_id}")["completed"])

    def steer_project(self, project_id: int, verb: str) -> None:
        """`verb`: archive or unarchive."""
        self._post(f"projects/{project_id}/{verb}")

    def move_project(self, project_id: int, workspace_id: int) -> None:
        self._post(f"projects/{project_id}/move", {"destinationWorkspaceId": workspace_id, "projectId": project_id})

    # -- pools ----------------------------------------------------------------------------------------------------

    def workspaces_of(self, pool: str) -> list[int]:
        """The workspaces that a pool is kept for; empty for one that serves everybody."""
        return list(self._get(f"resource-pools/{word(pool)}/workspace-bindings")["workspaceIds"])

    def bind_pool(self, pool: str, workspaces: Sequence[str]) -> None:
        self._post(f"resource-pools/{word(pool)}/workspace-bindings", {"workspaceNames": list(workspaces)})

    def rebind_pool(self, pool: str, workspaces: Sequence[str]) -> None:
        self._put(f"resource-pools/{word(pool)}/workspace-bindings", {"workspaceNames": list(workspaces)})

    def unbind_pool(self, pool: str, workspaces: Sequence[str]) -> None:
        self._delete(f"resource-pools/{word(pool)}/workspace-bindings", {"workspaceNames": list(workspaces)})
