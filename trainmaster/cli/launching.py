"""Shared verbs and options of `det command`, `notebook`, `shell` and `tensorboard`: start, list, logs, kill."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.config_file import add_override_option
from trainmaster.cli.session import UsageError, connect, say
from trainmaster.cli.verbs import Verbs, add_log_filters, add_order, log_filters, positive, read_mapping
from trainmaster.client.context import ContextFolder, collect
from trainmaster.client.errors import APIError, ClientError
from trainmaster.client.master import Master
from trainmaster.client.tasks import Kind

SORTS = ("id", "username", "description", "state", "exitStatus", "resourcePool", "workspaceName", "startTime")
COLUMNS = ("id", "username", "description", "state", "exitStatus", "resourcePool", "workspaceName")


def add_launch_options(parser: argparse.ArgumentParser, *, volumes: bool = True, template: bool = True) -> None:
    parser.add_argument("--config-file", type=Path, metavar="FILE", help="YAML file with a configuration")
    add_override_option(parser)
    if volumes:
        parser.add_argument(
            "-v", "--volume", action="append", default=[], metavar="HOST:CONTAINER", help="mount a folder of the host"
        )
    parser.add_argument("-c", "--context", type=Path, metavar="FOLDER", help="send the contents of this folder")
    parser.add_argument(
        "-i",
        "--include",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="also send this file or folder, under its own name",
    )
    if template:
        parser.add_argument("--template", metavar="NAME", help="a template for keys that are not set")
    parser.add_argument("-w", "--workspace-name", metavar="NAME", help="its workspace (default: Uncategorized)")
    parser.add_argument("-d", "--detach", action="store_true", help="print the id and exit")


def launch(master: Master, kind: Kind, args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Start the task that the arguments describe. Raises ClientError, UsageError."""
    more_config = more.pop("config", {})
    home = master.organisation.workspace(args.workspace_name)["id"] if args.workspace_name else None
    made = master.tasks.launch(
        kind,
        {**more_config, **configuration(args)},
        files_of(args),
        template=getattr(args, "template", None),
        workspace_id=home,
        **more,
    )
    for remark in made["remarks"]:
        say(remark)
    return made


def configuration(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration file with the options merged over it. Raises ClientError, UsageError."""
    config = read_mapping(args.config_file) if args.config_file else {}
    if args.config:
        config = _overridden(config, args.config)
    for volume in getattr(args, "volume", ()):
        host, colon, container = volume.partition(":")
        if not colon or not host or not container:
            raise UsageError(f"{volume!r} is not HOST_PATH:CONTAINER_PATH")
        mounts = config.setdefault("bind_mounts", [])
        mounts.append({"host_path": host, "container_path": container})
    return config


def _overridden(config: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    import json

    from trainmaster.config.messages import ConfigError
    from trainmaster.config.overrides import override
    from trainmaster.config.source import read

    try:
        document = read(json.dumps(config), "--config")
        override(document, overrides)
    except ConfigError as error:
        raise ClientError(str(error)) from None
    return dict(document.data)


def files_of(args: argparse.Namespace) -> ContextFolder:
    """Read the files to send. Raises ClientError."""
    return collect(args.context, args.include)


def add_common_verbs(verbs: Verbs, kind: Kind, noun: str) -> None:
    """Add the verbs that all kinds share; `noun` is the kind's name in sentences."""
    start = "0d9b31f2"
    p = verbs.add("list", lambda args: _list(args, kind), f"list {noun}s", f"det {kind} list --all", ["ls"])
    add_order(p, SORTS, "startTime")
    p.add_argument("-q", "--quiet", action="store_true", help="only the ids")
    p.add_argument("-a", "--all", action="store_true", help="also those of other users")
    p.add_argument("-w", "--workspace-name", metavar="NAME", help="only those of this workspace")
    render.add_format_options(p)
    p = verbs.add(
        "config", lambda args: _config(args, kind), f"print a {noun}'s configuration", f"det {kind} config {start}"
    )
    p.add_argument("task_id", help="its id, or the beginning of it")
    p = verbs.add("logs", lambda args: _logs(args, kind), f"print a {noun}'s log", f"det {kind} logs -f {start}")
    p.add_argument("task_id", help="its id, or the beginning of it")
    p.add_argument("--allocation-id", action="append", metavar="ID", help="only lines of this attempt")
    add_log_filters(p)
    p = verbs.add("kill", lambda args: _kill(args, kind), f"end {noun}s", f"det {kind} kill {start}")
    p.add_argument("task_id", nargs="+", help="their ids, or the beginnings of them")
    p.add_argument("-f", "--force", action="store_true", help="continue if one cannot be ended")
    attributes = verbs.group("set", f"change a {noun}")
    p = attributes.add(
        "priority",
        lambda args: _set_priority(args, kind),
        "change its priority (1 is served first)",
        f"det {kind} set priority {start} 10",
    )
    p.add_argument("task_id", help="its id, or the beginning of it")
    p.add_argument("priority", type=positive, help="1 to 99")


def _list(args: argparse.Namespace, kind: Kind) -> None:
    master = connect(args)
    home = master.organisation.workspace(args.workspace_name)["id"] if args.workspace_name else 0
    users = [] if args.all else [str(master.whoami()["username"])]
    tasks = master.tasks.list(kind, users=users, workspace_id=home)
    names = {workspace["id"]: workspace["name"] for workspace in master.organisation.workspaces()} if tasks else {}
    for task in tasks:
        task["state"] = task["state"].removeprefix("STATE_")
        task["workspaceName"] = names.get(task["workspaceId"], "")
    tasks.sort(key=lambda task: str(task[args.sort_by]), reverse=args.order_by == "desc")
    if args.quiet:
        for task in tasks:
            print(task["id"])
        return
    columns = [*COLUMNS[:4], "experimentIds", "trialIds", *COLUMNS[4:]] if kind == "tensorboard" else list(COLUMNS)
    render.show(args, columns, [[task[column] for column in columns] for task in tasks], tasks)


def _config(args: argparse.Namespace, kind: Kind) -> None:
    tasks = connect(args).tasks
    print(render.yaml(tasks.get(kind, tasks.find(kind, args.task_id))["config"]), end="")


def _logs(args: argparse.Namespace, kind: Kind) -> None:
    master = connect(args)
    task_id = master.tasks.find(kind, args.task_id)
    print_log(master, args, task_id, log_filters(args) | {"allocationIds": args.allocation_id})


def print_log(master: Master, args: argparse.Namespace, task_id: str, where: dict[str, Any]) -> None:
    """Print a task's log with the options of `add_log_filters`."""
    for line in master.cluster.task_log(
        task_id, follow=args.follow, head=args.head, tail=args.tail, notice=say, **where
    ):
        if args.json:
            render.show_json_line(line, flush=args.follow)
        else:
            print(line["message"], end="", flush=args.follow)


def follow_log(master: Master, task_id: str) -> None:
    """Print a task's log until the task has ended."""
    for line in master.cluster.task_log(task_id, follow=True, notice=say):
        print(line["message"], end="", flush=True)


def _kill(args: argparse.Namespace, kind: Kind) -> int:
    tasks = connect(args).tasks
    failed = 0
    for start in args.task_id:
        try:
            task_id = tasks.find(kind, start)
            tasks.kill(kind, task_id)
        except (APIError, ClientError) as error:
            if not args.force:
                raise
            print(f"det: {error}", file=sys.stderr)
            failed = 1
        else:
            print(f"Killed {kind} {task_id}")
    return failed


def _set_priority(args: argparse.Namespace, kind: Kind) -> None:
    tasks = connect(args).tasks
    task_id = tasks.find(kind, args.task_id)
    tasks.set_priority(kind, task_id, args.priority)
    print(f"Set priority of {kind} {task_id} to {args.priority}")
