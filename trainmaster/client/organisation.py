"""Workspaces and projects, and the resource pools that are reserved for workspaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainmaster.client.errors import NoSuchThing
from trainmaster.client.resource import PAGE, Resource, given, word

if TYPE_CHECKING:
    from trainmaster.client import wire


class Organisation(Resource):
    """Workspaces hold projects, models, templates and tasks; projects hold experiments.

    Arguments of several calls:
        name: Name of the project.
        pool: Name of the pool.
        project_id: Number of the project.
        workspace_id: Number of the workspace.
        workspaces: Names of the workspaces.
    """

    # -- workspaces -----------------------------------------------------------------------------------------------

    def workspaces(
        self, *, limit: int = PAGE, offset: int = 0, everything: bool = True, **query: Any
    ) -> list[wire.Workspace]:
        """List workspaces.

        Args:
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            query: Filters, named as in the API: name, archived, sortBy, orderBy ...

        Returns:
            The workspaces that match.
        """
        return self._pages("/api/v1/workspaces", "workspaces", query, limit, offset, everything)

    def workspace(self, name: str) -> wire.Workspace:
        """Get a workspace by name.

        Args:
            name: Name of the workspace, in its case.

        Returns:
            The workspace.

        Raises:
            NoSuchThing: There is no such workspace.
        """
        workspaces: list[wire.Workspace] = self._get("workspaces", nameCaseSensitive=name)["workspaces"]
        if not workspaces:
            raise NoSuchThing(404, f"There is no workspace {name!r}; `det workspace list` shows those there are.")
        return workspaces[0]

    def create_workspace(self, name: str, **fields: Any) -> wire.Workspace:
        """Create a workspace.

        Args:
            name: Name of the workspace.
            fields: Named as in the API. None is not sent.

        Returns:
            The workspace.

        Raises:
            NotAllowed: The caller may not create workspaces.
        """
        workspace: wire.Workspace = self._post("workspaces", {"name": name, **given(**fields)}, retry=False)[
            "workspace"
        ]
        return workspace

    def edit_workspace(self, workspace_id: int, **fields: Any) -> wire.Workspace:
        """Change a workspace.

        Args:
            fields: Named as in the API. None is not sent.

        Returns:
            The workspace after the change.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change it.
        """
        workspace: wire.Workspace = self._patch(f"workspaces/{workspace_id}", given(**fields))["workspace"]
        return workspace

    def delete_workspace(self, workspace_id: int) -> bool:
        """Delete a workspace with all that is in it.

        Returns:
            True when it is gone; False when the master still works on it.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not delete it.
        """
        return bool(self._delete(f"workspaces/{workspace_id}")["completed"])

    def archive_workspace(self, workspace_id: int) -> None:
        """Archive a workspace with its projects: it becomes read-only and is left out of lists.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change it.
        """
        self._post(f"workspaces/{workspace_id}/archive")

    def unarchive_workspace(self, workspace_id: int) -> None:
        """Undo the archiving of a workspace.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change it.
        """
        self._post(f"workspaces/{workspace_id}/unarchive")

    def pin_workspace(self, workspace_id: int) -> None:
        """Show a workspace at the top of the caller's web page.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change it.
        """
        self._post(f"workspaces/{workspace_id}/pin")

    def unpin_workspace(self, workspace_id: int) -> None:
        """Undo the pinning of a workspace.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not change it.
        """
        self._post(f"workspaces/{workspace_id}/unpin")

    def pools_of(self, workspace_id: int) -> list[str]:
        """List the resource pools that a workspace may use.

        Returns:
            Names of the pools.

        Raises:
            NoSuchThing: There is no such workspace.
        """
        return list(self._get(f"workspaces/{workspace_id}/available-resource-pools")["resourcePools"])

    # -- projects -------------------------------------------------------------------------------------------------

    def projects(
        self, workspace_id: int, *, limit: int = PAGE, offset: int = 0, everything: bool = True, **query: Any
    ) -> list[wire.Project]:
        """List the projects of a workspace.

        Args:
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            query: Filters, named as in the API: name, archived, sortBy, orderBy ...

        Returns:
            The projects that match.

        Raises:
            NoSuchThing: There is no such workspace.
        """
        return self._pages(f"/api/v1/workspaces/{workspace_id}/projects", "projects", query, limit, offset, everything)

    def project(self, workspace: str, name: str) -> wire.Project:
        """Get a project by name.

        Args:
            workspace: Name of its workspace.

        Returns:
            The project.

        Raises:
            NoSuchThing: There is no such workspace or project.
        """
        for project in self.projects(self.workspace(workspace)["id"], name=name):
            if project["name"] == name:
                return project
        raise NoSuchThing(404, f"There is no project {name!r} in the workspace {workspace!r}.")

    def create_project(self, workspace_id: int, name: str, **fields: Any) -> wire.Project:
        """Create a project.

        Args:
            workspace_id: Number of its workspace.
            fields: Named as in the API, such as description. None is not sent.

        Returns:
            The project.

        Raises:
            NoSuchThing: There is no such workspace.
            NotAllowed: The caller may not create projects there.
        """
        body = {"name": name, "workspaceId": workspace_id, **given(**fields)}
        project: wire.Project = self._post(f"workspaces/{workspace_id}/projects", body, retry=False)["project"]
        return project

    def edit_project(self, project_id: int, **fields: Any) -> wire.Project:
        """Change a project.

        Args:
            fields: Named as in the API: name, description. None is not sent.

        Returns:
            The project after the change.

        Raises:
            NoSuchThing: There is no such project.
            NotAllowed: The caller may not change it.
        """
        project: wire.Project = self._patch(f"projects/{project_id}", given(**fields))["project"]
        return project

    def delete_project(self, project_id: int) -> bool:
        """Delete a project with its experiments.

        Returns:
            True when it is gone; False when the master still works on it.

        Raises:
            NoSuchThing: There is no such project.
            NotAllowed: The caller may not delete it.
        """
        return bool(self._delete(f"projects/{project_id}")["completed"])

    def archive_project(self, project_id: int) -> None:
        """Archive a project: it becomes read-only and is left out of lists.

        Raises:
            NoSuchThing: There is no such project.
            NotAllowed: The caller may not change it.
        """
        self._post(f"projects/{project_id}/archive")

    def unarchive_project(self, project_id: int) -> None:
        """Undo the archiving of a project.

        Raises:
            NoSuchThing: There is no such project.
            NotAllowed: The caller may not change it.
        """
        self._post(f"projects/{project_id}/unarchive")

    def move_project(self, project_id: int, workspace_id: int) -> None:
        """Move a project to another workspace.

        Raises:
            NoSuchThing: There is no such project or workspace.
            NotAllowed: The caller may not move it there.
        """
        self._post(f"projects/{project_id}/move", {"destinationWorkspaceId": workspace_id, "projectId": project_id})

    # -- pools ----------------------------------------------------------------------------------------------------

    def workspaces_of(self, pool: str) -> list[int]:
        """List the workspaces that a pool is reserved for.

        Returns:
            Numbers of the workspaces; empty for a pool that all may use.

        Raises:
            NoSuchThing: There is no such pool.
        """
        return list(self._get(f"resource-pools/{word(pool)}/workspace-bindings")["workspaceIds"])

    def bind_pool(self, pool: str, workspaces: Sequence[str]) -> None:
        """Reserve a pool for more workspaces. For administrators.

        Raises:
            NoSuchThing: There is no such pool or workspace.
            NotAllowed: The caller may not manage pools.
        """
        self._post(f"resource-pools/{word(pool)}/workspace-bindings", {"workspaceNames": list(workspaces)})

    def rebind_pool(self, pool: str, workspaces: Sequence[str]) -> None:
        """Reserve a pool for these workspaces only, in place of the present ones. For administrators.

        Raises:
            NoSuchThing: There is no such pool or workspace.
            NotAllowed: The caller may not manage pools.
        """
        self._put(f"resource-pools/{word(pool)}/workspace-bindings", {"workspaceNames": list(workspaces)})

    def unbind_pool(self, pool: str, workspaces: Sequence[str]) -> None:
        """End the reservation of a pool for some workspaces. For administrators.

        Raises:
            NoSuchThing: There is no such pool or workspace.
            NotAllowed: The caller may not manage pools.
        """
        self._delete(f"resource-pools/{word(pool)}/workspace-bindings", {"workspaceNames": list(workspaces)})
