"""`det model`: the model registry."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainmaster.cli import model_version, render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs, add_order, order, positive
from trainmaster.client.model_registry import ModelRegistry
from trainmaster.client.organisation import Organisation

if TYPE_CHECKING:
    from trainmaster.client import wire


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list models", "det model list -w vision", ["ls"])
    p.add_argument("-w", "--workspace-names", metavar="NAME,NAME", help="only those of these workspaces")
    add_order(p, ("name", "description", "creation_time", "last_updated_time"), "last_updated_time")
    render.add_format_options(p)
    p = verbs.add("create", _create, "create a model", 'det model create cats --description "tells cats apart"')
    p.add_argument("name", help="its name")
    p.add_argument("-w", "--workspace-name", help="its workspace (default: Uncategorized)")
    p.add_argument("--description", help="what it is")
    render.add_format_options(p)
    p = verbs.add("describe", _describe, "show a model and one of its versions", "det model describe cats --version 2")
    _add_name(p)
    p.add_argument("--version", type=int, default=-1, dest="number", metavar="N", help="default: the newest")
    render.add_format_options(p)
    p = verbs.add("list-versions", _list_versions, "list its versions", "det model list-versions cats")
    _add_name(p)
    render.add_format_options(p)
    p = verbs.add(
        "register-version",
        _register,
        "register a checkpoint as the next version",
        "det model register-version cats UUID",
    )
    _add_name(p)
    p.add_argument("uuid", help="the checkpoint")
    render.add_format_options(p)
    model_version.add_to(verbs)
    p = verbs.add("delete-version", _delete_version, "delete a version", "det model delete-version cats 2")
    _add_name(p)
    p.add_argument("number", type=positive, metavar="VERSION", help="its number")
    p = verbs.add("move", _move, "move a model to another workspace", "det model move cats -w sound")
    _add_name(p)
    p.add_argument("-w", "--workspace-name", required=True, help="the other workspace")
    p = verbs.add(
        "archive",
        _archive,
        "make a model read-only and hide it from lists",
        "det model archive cats",
    )
    _add_name(p)
    p = verbs.add("unarchive", _unarchive, "undo `archive`", "det model unarchive cats")
    _add_name(p)
    p = verbs.add("delete", _delete, "delete a model with its versions", "det model delete cats")
    _add_name(p)


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the model's name or number")


def _table(models: list[wire.Model]) -> tuple[list[str], list[list[Any]]]:
    headers = ["ID", "Name", "Workspace ID", "Versions", "Creation Time", "Last Updated Time", "Labels", "Metadata"]
    rows = [
        [
            m["id"],
            m["name"],
            m["workspaceId"],
            m["numVersions"],
            render.Moment(m["creationTime"]),
            render.Moment(m["lastUpdatedTime"]),
            m["labels"],
            m["metadata"],
        ]
        for m in models
    ]
    return headers, rows


def _version_table(versions: list[wire.ModelVersion]) -> tuple[list[str], list[list[Any]]]:
    headers = ["Version #", "Trial ID", "Batch #", "Checkpoint UUID", "Validation Metrics", "Metadata"]
    rows = []
    for version in versions:
        checkpoint = version["checkpoint"]
        training = checkpoint.get("training") or {}
        rows.append(
            [
                version["version"],
                training.get("trialId"),
                (checkpoint.get("metadata") or {}).get("steps_completed"),
                checkpoint["uuid"],
                (training.get("validationMetrics") or {}).get("avgMetrics") or {},
                version["metadata"],
            ]
        )
    return headers, rows


def _list(args: argparse.Namespace) -> None:
    names = args.workspace_names.split(",") if args.workspace_names else None
    models = ModelRegistry(session(args)).models(workspaceNames=names, **order(args))
    render.show(args, *_table(models), models)


def _create(args: argparse.Namespace) -> None:
    made = ModelRegistry(session(args)).create_model(
        args.name, description=args.description, workspaceName=args.workspace_name
    )
    render.show(args, *_table([made]), made)


def _describe(args: argparse.Namespace) -> None:
    master = ModelRegistry(session(args))
    model = master.model(args.name)
    versions = [master.version(args.name, args.number)] if args.number > 0 else master.versions(args.name)[:1]
    if args.json or args.yaml:
        render.show(args, (), (), {**model, "modelVersions": versions})
        return
    render.show(args, *_table([model]), None)
    if versions:
        print()
        render.show(args, *_version_table(versions), None)


def _list_versions(args: argparse.Namespace) -> None:
    versions = ModelRegistry(session(args)).versions(args.name)
    render.show(args, *_version_table(versions), versions)


def _register(args: argparse.Namespace) -> None:
    made = ModelRegistry(session(args)).register(args.name, args.uuid)
    render.show(args, *_version_table([made]), made)


def _delete_version(args: argparse.Namespace) -> None:
    ModelRegistry(session(args)).delete_version(args.name, args.number)
    print(f"Deleted version {args.number} of model {args.name}")


def _move(args: argparse.Namespace) -> None:
    http = session(args)
    ModelRegistry(http).move_model(args.name, Organisation(http).workspace(args.workspace_name)["id"])
    print(f"Moved model {args.name} to workspace {args.workspace_name}")


def _archive(args: argparse.Namespace) -> None:
    ModelRegistry(session(args)).archive_model(args.name)
    print(f"Archived model {args.name}")


def _unarchive(args: argparse.Namespace) -> None:
    ModelRegistry(session(args)).unarchive_model(args.name)
    print(f"Unarchived model {args.name}")


def _delete(args: argparse.Namespace) -> None:
    ModelRegistry(session(args)).delete_model(args.name)
    print(f"Deleted model {args.name}")
