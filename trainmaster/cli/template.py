"""`det template`: shared parts of configurations."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs, read_mapping
from trainmaster.client.model_registry import ModelRegistry
from trainmaster.client.organisation import Organisation


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list templates", "det template list -d", ["ls"])
    p.add_argument("-d", "--details", action="store_true", help="with their configurations")
    render.add_format_options(p)
    p = verbs.add("describe", _describe, "print a template as YAML", "det template describe gpu")
    p.add_argument("template_name", help="the template")
    p.add_argument("--json", action="store_true", help="print JSON")
    p = verbs.add("create", _create, "create a template", "det template create gpu gpu.yaml -w vision")
    _add_file(p)
    p.add_argument("-w", "--workspace-name", help="its workspace (default: Uncategorized)")
    p = verbs.add("set", _set, "create a template or replace an existing one", "det template set gpu gpu.yaml")
    _add_file(p)
    values = verbs.group("set-value", "change a part of a template")
    p = values.add("config", _set_config, "change its configuration", "det template set-value config gpu gpu.yaml")
    _add_file(p)
    p = verbs.add("remove", _remove, "remove a template", "det template remove gpu", ["rm"])
    p.add_argument("template_name", help="the template")


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("template_name", help="the template")
    parser.add_argument("template_file", type=Path, help="YAML file with a part of a configuration")


def _list(args: argparse.Namespace) -> None:
    http = session(args)
    templates = ModelRegistry(http).templates()
    names = {workspace["id"]: workspace["name"] for workspace in Organisation(http).workspaces()}
    headers = ["Name", "Workspace", *(["Config"] if args.details else [])]
    rows = [
        [t["name"], names.get(t["workspaceId"]), *([render.yaml(t["config"]).rstrip()] if args.details else [])]
        for t in templates
    ]
    render.show(args, headers, rows, templates)


def _describe(args: argparse.Namespace) -> None:
    config = ModelRegistry(session(args)).template(args.template_name)["config"]
    if args.json:
        render.show_json(config)
    else:
        print(render.yaml(config), end="")


def _create(args: argparse.Namespace) -> None:
    config = read_mapping(args.template_file)
    http = session(args)
    home = Organisation(http).workspace(args.workspace_name)["id"] if args.workspace_name else 0
    ModelRegistry(http).create_template(args.template_name, config, home)
    print(f"Created template {args.template_name}")


def _set(args: argparse.Namespace) -> None:
    config = read_mapping(args.template_file)
    ModelRegistry(session(args)).put_template(args.template_name, config)
    print(f"Set template {args.template_name}")


def _set_config(args: argparse.Namespace) -> None:
    config = read_mapping(args.template_file)
    ModelRegistry(session(args)).set_template(args.template_name, config)
    print(f"Updated template {args.template_name}")


def _remove(args: argparse.Namespace) -> None:
    ModelRegistry(session(args)).delete_template(args.template_name)
    print(f"Removed template {args.template_name}")
