"""`det resource-pool`: list pools, and reserve them for workspaces."""

from __future__ import annotations

import argparse

from trainmaster.cli import master, render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs
from trainmaster.client.organisation import Organisation


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", master.list_pools, "list resource pools with their slots", "det resource-pool list", ["ls"])
    render.add_format_options(p)
    bindings = verbs.group("bindings", "reserve pools for workspaces")
    p = bindings.add(
        "list-workspaces", _list, "list the workspaces of a pool", "det resource-pool bindings list-workspaces gpu"
    )
    p.add_argument("pool_name", help="the pool")
    render.add_format_options(p)
    p = bindings.add("add", _add, "reserve it for more workspaces", "det resource-pool bindings add gpu vision sound")
    _add_names(p)
    p = bindings.add(
        "remove", _remove, "end its reservation for workspaces", "det resource-pool bindings remove gpu sound"
    )
    _add_names(p)
    p = bindings.add(
        "replace", _replace, "reserve it for these workspaces only", "det resource-pool bindings replace gpu vision"
    )
    _add_names(p)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pool_name", help="the pool")
    parser.add_argument("workspace_names", nargs="+", help="names of workspaces")


def _list(args: argparse.Namespace) -> None:
    client = Organisation(session(args))
    bound = set(client.workspaces_of(args.pool_name))
    names = [workspace["name"] for workspace in client.workspaces() if workspace["id"] in bound]
    render.show(args, ["Resource Pool", "Workspaces"], [[args.pool_name, names]], names)


def _add(args: argparse.Namespace) -> None:
    Organisation(session(args)).bind_pool(args.pool_name, args.workspace_names)
    print(f"Pool {args.pool_name} is reserved for {', '.join(args.workspace_names)} too.")


def _remove(args: argparse.Namespace) -> None:
    Organisation(session(args)).unbind_pool(args.pool_name, args.workspace_names)
    print(f"Pool {args.pool_name} is no longer reserved for {', '.join(args.workspace_names)}.")


def _replace(args: argparse.Namespace) -> None:
    Organisation(session(args)).rebind_pool(args.pool_name, args.workspace_names)
    print(f"Pool {args.pool_name} is reserved for {', '.join(args.workspace_names)}.")
