"""Endpoints for projects."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.schemas.entities import Pagination
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape, Time
from trainmaster.master.http.parameters import Descending, Name, Strings, sort_key
from trainmaster.master.services.organisation import projects
from trainmaster.master.services.organisation.projects import ProjectQuery, ProjectView
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["projects"])


class Project(Shape):
    id: int
    name: str
    key: str
    description: str
    archived: bool
    immutable: bool
    notes: list[Json]
    workspace_id: int
    workspace_name: str
    user_id: int
    username: str
    num_experiments: int
    num_active_experiments: int
    num_runs: int
    last_experiment_started_at: Time | None
    state: str
    error_message: str

    @classmethod
    def of(cls, view: ProjectView) -> Project:
        row = view.row
        return cls(
            id=row.id,
            name=row.name,
            key=row.key,
            description=row.description,
            archived=row.archived or view.workspace.archived,
            immutable=row.immutable,
            notes=row.notes,
            workspace_id=row.workspace_id,
            workspace_name=view.workspace.name,
            user_id=row.user_id,
            username=view.username,
            num_experiments=view.num_experiments,
            num_active_experiments=view.num_active,
            num_runs=view.num_runs,
            last_experiment_started_at=view.last_started,
            state=f"WORKSPACE_STATE_{row.state or 'UNSPECIFIED'}",
            error_message=row.error,
        )


class ProjectAnswer(Shape):
    project: Project


class ProjectsAnswer(Shape):
    projects: list[Project]
    pagination: Pagination


class NotesAnswer(Shape):
    notes: list[Json]


class PostProject(Body):
    name: Name
    workspace_id: int | None = None
    description: str = ""
    key: str = ""


class PatchProject(Body):
    name: Name | None = None
    description: str | None = None
    key: str | None = None


class Note(Body):
    name: str
    contents: str = ""


class PutNotes(Body):
    notes: list[Note]
    project_id: int | None = None


class MoveProject(Body):
    destination_workspace_id: int
    project_id: int | None = None


@router.get("/workspaces/{workspace_id}/projects")
def list_projects(
    workspace_id: int,
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_ID",
    name: str = "",
    archived: bool | None = None,
    users: Strings = [],  # noqa: B006
    user_ids: Annotated[list[int], Query(alias="userIds")] = [],  # noqa: B006
) -> ProjectsAnswer:
    """List a workspace's projects. Workspace 0 stands for all workspaces."""
    query = ProjectQuery(
        workspace_id=workspace_id or None,
        name=name,
        archived=archived,
        users=users,
        user_ids=user_ids,
        sort_by=sort_key(sort_by, projects.SORTS, "id", enums.PROJECTS),
        descending=bool(descending),
    )
    page = master.projects.list_page(caller, query, offset, limit)
    shown = [Project.of(view) for view in page.items]
    return ProjectsAnswer(projects=shown, pagination=Pagination.of(page.window))


@router.post("/workspaces/{workspace_id}/projects")
def create(workspace_id: int, body: PostProject, master: UsesMaster, caller: UserCaller) -> ProjectAnswer:
    view = master.projects.create(caller, workspace_id, body.name, body.description, body.key)
    return ProjectAnswer(project=Project.of(view))


@router.get("/user/projects/activity")
def recent(master: UsesMaster, caller: UserCaller, limit: Annotated[int, Query(ge=0, le=1000)] = 5) -> Json:
    """Return the projects in which the caller has recently created experiments."""
    projects = master.projects.recent_of(caller, limit or 5)
    return {"projects": [Project.of(view).model_dump(by_alias=True, mode="json") for view in projects]}


@router.get("/projects/key/{key}")
def get_by_key(key: str, master: UsesMaster, caller: UserCaller) -> ProjectAnswer:
    return ProjectAnswer(project=Project.of(master.projects.get_by_key(caller, key)))


@router.get("/projects/{project_id}")
def get(project_id: int, master: UsesMaster, caller: UserCaller) -> ProjectAnswer:
    return ProjectAnswer(project=Project.of(master.projects.get(project_id)))


@router.patch("/projects/{project_id}")
def patch(project_id: int, body: PatchProject, master: UsesMaster, caller: UserCaller) -> ProjectAnswer:
    view = master.projects.patch(caller, project_id, name=body.name, description=body.description, key=body.key)
    return ProjectAnswer(project=Project.of(view))


@router.delete("/projects/{project_id}")
def delete(project_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Delete a project with its experiments; `completed`: whether that is done already."""
    return {"completed": master.projects.remove(caller, project_id)}


@router.post("/projects/{project_id}/archive")
def archive(project_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.projects.set_archived(caller, project_id, True)
    return {}


@router.post("/projects/{project_id}/unarchive")
def unarchive(project_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.projects.set_archived(caller, project_id, False)
    return {}


@router.post("/projects/{project_id}/move")
def move(project_id: int, body: MoveProject, master: UsesMaster, caller: UserCaller) -> Json:
    master.projects.move(caller, project_id, body.destination_workspace_id)
    return {}


@router.post("/projects/{project_id}/notes")
def add_note(project_id: int, body: Note, master: UsesMaster, caller: UserCaller) -> NotesAnswer:
    return NotesAnswer(notes=master.projects.add_note(caller, project_id, body.name, body.contents))


@router.put("/projects/{project_id}/notes")
def set_notes(project_id: int, body: PutNotes, master: UsesMaster, caller: UserCaller) -> NotesAnswer:
    notes = [{"name": note.name, "contents": note.contents} for note in body.notes]
    return NotesAnswer(notes=master.projects.set_notes(caller, project_id, notes))
