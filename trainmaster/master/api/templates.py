"""Endpoints for configuration templates."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.config.secrets import masked
from trainmaster.master.api.schemas.entities import Pagination
from trainmaster.master.db import model_registry as tables
from trainmaster.master.http import enums
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape
from trainmaster.master.http.parameters import Descending, sort_key
from trainmaster.master.services.organisation.templates import TemplateQuery
from trainmaster.master.values.stored import Json

router = APIRouter(prefix="/api/v1", tags=["templates"])


class Template(Shape):
    name: str
    config: Json
    workspace_id: int

    @classmethod
    def of(cls, row: tables.Template) -> Template:
        return cls(name=row.name, config=masked(row.config), workspace_id=row.workspace_id)


class TemplateAnswer(Shape):
    template: Template


class TemplatesAnswer(Shape):
    templates: list[Template]
    pagination: Pagination


class PostTemplate(Body):
    config: Json
    name: str | None = None
    workspace_id: int = 0


class RenameTemplate(Body):
    old_name: str
    new_name: str


@router.get("/templates")
def list_templates(
    master: UsesMaster,
    caller: UserCaller,
    descending: Descending,
    offset: int = 0,
    limit: int = 0,
    sort_by: Annotated[str, Query(alias="sortBy")] = "SORT_BY_NAME",
    name: str = "",
    workspace_ids: Annotated[list[int], Query(alias="workspaceIds")] = [],  # noqa: B006
) -> TemplatesAnswer:
    sort_key(sort_by, {"name": None}, "name", enums.TEMPLATES)
    query = TemplateQuery(name, workspace_ids, bool(descending))
    page = master.templates.list_page(caller, query, offset, limit)
    return TemplatesAnswer(templates=[Template.of(row) for row in page.items], pagination=Pagination.of(page.window))


@router.get("/templates/{template_name}")
def get(template_name: str, master: UsesMaster, caller: UserCaller) -> TemplateAnswer:
    return TemplateAnswer(template=Template.of(master.templates.get(template_name)))


@router.post("/templates/{template_name}")
def create(template_name: str, body: PostTemplate, master: UsesMaster, caller: UserCaller) -> TemplateAnswer:
    row = master.templates.create(caller, template_name, body.config, body.workspace_id)
    return TemplateAnswer(template=Template.of(row))


@router.put("/templates/{template_name}")
def put(template_name: str, body: PostTemplate, master: UsesMaster, caller: UserCaller) -> TemplateAnswer:
    """Create a template, or change the existing one."""
    row = master.templates.put(caller, template_name, body.config, body.workspace_id)
    return TemplateAnswer(template=Template.of(row))


@router.patch("/templates/{template_name}")
def set_config(template_name: str, body: Json, master: UsesMaster, caller: UserCaller) -> TemplateAnswer:
    """Return the body is the whole new configuration."""
    row = master.templates.set_config(caller, template_name, body)
    return TemplateAnswer(template=Template.of(row))


@router.delete("/templates/{template_name}")
def delete(template_name: str, master: UsesMaster, caller: UserCaller) -> Json:
    master.templates.remove(caller, template_name)
    return {}


@router.patch("/template/rename")
def rename(body: RenameTemplate, master: UsesMaster, caller: UserCaller) -> TemplateAnswer:
    row = master.templates.rename(caller, body.old_name, body.new_name)
    return TemplateAnswer(template=Template.of(row))
