"""`det project`: projects, which contain experiments."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs, add_order, add_paging, confirmed, order
from trainmaster.client.organisation import Organisation

if TYPE_CHECKING:
    from trainmaster.client import wire


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", list_of_workspace, "list the projects of a workspace", "det project list vision", ["ls"])
    add_list_options(p)
    p = verbs.add(
        "list-experiments", _list_experiments, "list its experiments", "det project list-experiments vision cats"
    )
    _add_names(p)
    p.add_argument("-a", "--all", action="store_true", help="those of all users, archived ones too")
    add_paging(p, 200)
    render.add_format_options(p)
    p = verbs.add("create", _create, "create a project", "det project create vision cats --key CAT")
    p.add_argument("workspace_name", help="the workspace")
    p.add_argument("name", help="its name")
    p.add_argument("--description", help="what it is about")
    p.add_argument("--key", help="one to five letters and digits that stand for it")
    render.add_format_options(p)
    p = verbs.add("describe", _describe, "show a project", "det project describe vision cats")
    _add_names(p)
    render.add_format_options(p)
    p = verbs.add("edit", _edit, "change a project", "det project edit vision cats --new_name dogs")
    _add_names(p)
    p.add_argument("--new_name", "--new-name", metavar="NAME", help="its new name")
    p.add_argument("--description", help="what it is about")
    p.add_argument("--key", help="one to five letters and digits that stand for it")
    render.add_format_options(p)
    p = verbs.add(
        "archive", _archive, "make a project read-only and hide it from lists", "det project archive vision cats"
    )
    _add_names(p)
    p = verbs.add("unarchive", _unarchive, "undo `archive`", "det project unarchive vision cats")
    _add_names(p)
    p = verbs.add("move", _move, "move a project to another workspace", "det project move vision cats sound")
    _add_names(p)
    p.add_argument("destination", help="the other workspace")
    p = verbs.add("delete", _delete, "delete a project with its experiments", "det project delete vision cats --yes")
    _add_names(p)
    p.add_argument("--yes", action="store_true", help="do not ask")


def add_list_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `det project list` and `det workspace list-projects`."""
    parser.add_argument("workspace_name", help="the workspace")
    add_order(parser, ("id", "name"), "id")
    add_paging(parser, 200)
    render.add_format_options(parser)


def list_of_workspace(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    workspace = master.workspace(args.workspace_name)
    projects = master.projects(
        workspace["id"], limit=args.limit, offset=args.offset, everything=args.pages == "all", **order(args)
    )
    _show(args, projects, projects)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workspace_name", help="the workspace")
    parser.add_argument("project_name", help="the project")


def _show(args: argparse.Namespace, projects: list[wire.Project], raw: Any) -> None:
    headers = ["ID", "Key", "Name", "Description", "# Experiments", "# Active Experiments", "Archived"]
    rows = [
        [
            p["id"],
            p["key"],
            p["name"],
            p["description"],
            p["numExperiments"],
            p["numActiveExperiments"],
            p["archived"],
        ]
        for p in projects
    ]
    render.show(args, headers, rows, raw)


def _list_experiments(args: argparse.Namespace) -> None:
    http = session(args)
    project = Organisation(http).project(args.workspace_name, args.project_name)
    from trainmaster.cli.experiment import list_in_project

    list_in_project(args, http, project["id"])


def _create(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    workspace = master.workspace(args.workspace_name)
    made = master.create_project(workspace["id"], args.name, description=args.description, key=args.key)
    _show(args, [made], made)


def _describe(args: argparse.Namespace) -> None:
    project = Organisation(session(args)).project(args.workspace_name, args.project_name)
    _show(args, [project], project)


def _edit(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    project = master.project(args.workspace_name, args.project_name)
    changed = master.edit_project(project["id"], name=args.new_name, description=args.description, key=args.key)
    _show(args, [changed], changed)


def _archive(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    master.archive_project(master.project(args.workspace_name, args.project_name)["id"])
    print(f"Archived project {args.project_name}")


def _unarchive(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    master.unarchive_project(master.project(args.workspace_name, args.project_name)["id"])
    print(f"Unarchived project {args.project_name}")


def _move(args: argparse.Namespace) -> None:
    master = Organisation(session(args))
    target = master.workspace(args.destination)
    master.move_project(master.project(args.workspace_name, args.project_name)["id"], target["id"])
    print(f"Moved project {args.project_name} to workspace {args.destination}")


def _delete(args: argparse.Namespace) -> int:
    master = Organisation(session(args))
    project = master.project(args.workspace_name, args.project_name)
    if not confirmed(args, f"Delete the project {args.project_name} with all its experiments?"):
        print("Nothing was deleted.")
        return 1
    gone = master.delete_project(project["id"])
    print(f"Deleted project {args.project_name}" if gone else f"Deletion of {args.project_name} is in progress")
    return 0
