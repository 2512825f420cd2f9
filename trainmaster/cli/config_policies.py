"""`det config-policies`: show, set and delete the policies for configurations."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs
from trainmaster.client.errors import ClientError
from trainmaster.client.organisation import Organisation
from trainmaster.client.policies import Policies
from trainmaster.client.transport import Transport

WORKLOADS = {"experiment": "EXPERIMENT", "tasks": "NTSC"}


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("describe", _describe, "print what is set", "det config-policies describe experiment -w vision")
    _add_scope(p)
    form = p.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--yaml", action="store_true", help="print YAML (the default)")
    p = verbs.add("set", _set, "replace what is set", "det config-policies set experiment policies.yaml -w vision")
    p.add_argument("workload_type", choices=list(WORKLOADS), help="what it is about")
    p.add_argument("config_file", type=Path, help="YAML file with invariant_config and constraints")
    _add_workspace(p)
    p = verbs.add("delete", _delete, "delete what is set", "det config-policies delete experiment")
    _add_scope(p)


def _add_scope(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload_type", choices=list(WORKLOADS), help="what it is about")
    _add_workspace(parser)


def _add_workspace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--workspace-name", help="of this workspace (default: of the whole site)")


def _where(args: argparse.Namespace, http: Transport) -> tuple[int | None, str]:
    if not args.workspace_name:
        return None, "the site"
    return int(Organisation(http).workspace(args.workspace_name)["id"]), f"workspace {args.workspace_name}"


def _describe(args: argparse.Namespace) -> None:
    http = session(args)
    policies = Policies(http).policies(WORKLOADS[args.workload_type], _where(args, http)[0])
    if args.json:
        render.show_json(policies)
    else:
        print(render.yaml(policies), end="")


def _set(args: argparse.Namespace) -> None:
    try:
        text = args.config_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{args.config_file} cannot be read: {error}.") from None
    http = session(args)
    workspace_id, name = _where(args, http)
    policies = Policies(http).put_policies(WORKLOADS[args.workload_type], text, workspace_id)
    print(f"Set the {args.workload_type} policies of {name}:")
    print(render.yaml(policies), end="")


def _delete(args: argparse.Namespace) -> None:
    http = session(args)
    workspace_id, name = _where(args, http)
    Policies(http).delete_policies(WORKLOADS[args.workload_type], workspace_id)
    print(f"Deleted the {args.workload_type} policies of {name}")
