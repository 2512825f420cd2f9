"""`det task`: lists waiting and running tasks, prints their logs, and starts and ends generic tasks."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from trainmaster.cli import render
from trainmaster.cli.config_file import ConfigFile, add_override_option
from trainmaster.cli.session import connect, say, session
from trainmaster.cli.verbs import Verbs, add_log_filters, log_filters, positive
from trainmaster.client.cluster import ClusterView
from trainmaster.client.context import collect
from trainmaster.client.errors import APIError


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list waiting and running tasks", "det task list", ["ls"])
    render.add_format_options(p)
    p = verbs.add("logs", _logs, "print a task's log", "det task logs -f 3.0d9b")
    p.add_argument("task_id", help="the task")
    p.add_argument("--allocation-id", action="append", metavar="ID", help="only lines of this attempt")
    p.add_argument("--search", default="", metavar="TEXT", help="only lines with this text in them")
    p.add_argument("--regex", action="store_true", help="--search is a regular expression")
    add_log_filters(p)
    p = verbs.add("create", _create, "start a generic task", "det task create prepare.yaml -c . --follow")
    p.add_argument("config_file", type=Path, metavar="FILE", help="YAML file with the configuration")
    add_override_option(p)
    p.add_argument("-c", "--context", type=Path, metavar="FOLDER", help="send the contents of this folder")
    p.add_argument(
        "-i",
        "--include",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="also send this file or folder, under its own name",
    )
    p.add_argument("--project-id", "--project_id", type=positive, help="the project that it belongs to")
    p.add_argument("--fork", metavar="TASK", help="use the files of this task")
    p.add_argument("-p", "--parent", metavar="TASK", help="the task that starts it; both end together")
    p.add_argument("--inherit-context", "--inherit_context", action="store_true", help="use the parent's files")
    p.add_argument("--no-pause", "--no_pause", action="store_true", help="it cannot be paused")
    p.add_argument("-f", "--follow", action="store_true", help="print its log until it has ended")
    p = verbs.add("fork", _fork, "start a task like another one", "det task fork 0d9b31f2-5e1c-4a2b-8c3d-7f6e5a4b3c2d")
    p.add_argument("task_id", help="the task")
    p.add_argument("--project-id", "--project_id", type=positive, help="the project that it belongs to")
    p.add_argument("-f", "--follow", action="store_true", help="print its log until it has ended")
    p = verbs.add(
        "config", _config, "print a task's configuration", "det task config 0d9b31f2-5e1c-4a2b-8c3d-7f6e5a4b3c2d"
    )
    p.add_argument("task_id", help="the task")
    p.add_argument("--json", action="store_true", help="print JSON")
    for verb, run, text in (
        ("pause", _pause, "let a task save its work and free its resources"),
        ("unpause", _unpause, "continue a paused task"),
    ):
        p = verbs.add(verb, run, text, f"det task {verb} 0d9b31f2-5e1c-4a2b-8c3d-7f6e5a4b3c2d")
        p.add_argument("task_id", help="the task")
    p = verbs.add(
        "kill", _kill, "end a task and the tasks that it started", "det task kill 0d9b31f2-5e1c-4a2b-8c3d-7f6e5a4b3c2d"
    )
    p.add_argument("task_id", help="the task")
    p.add_argument("--root", action="store_true", help="end the whole tree of tasks that it belongs to")


def _list(args: argparse.Namespace) -> None:
    tasks = ClusterView(session(args)).tasks()
    headers = ["Task ID", "Allocation ID", "Name", "Slots Needed", "Registered Time", "State", "Nodes", "Resource Pool"]
    rows = [
        [
            task["taskId"],
            task["allocationId"],
            task["name"],
            task["slotsNeeded"],
            task["registeredTime"],
            task["state"].removeprefix("STATE_"),
            [entry["resourcesId"] for entry in task["resources"]],
            task["resourcePool"],
        ]
        for task in tasks
    ]
    render.show(args, headers, rows, tasks)


def _logs(args: argparse.Namespace) -> None:
    where = log_filters(args) | {"allocationIds": args.allocation_id}
    if args.search:
        where |= {"searchText": args.search, "enableRegex": args.regex or None}
    view = ClusterView(session(args))
    for line in view.task_log(args.task_id, follow=args.follow, head=args.head, tail=args.tail, notice=say, **where):
        if args.json:
            render.show_json_line(line, flush=args.follow)
        else:
            print(line["message"], end="", flush=args.follow)


def _create(args: argparse.Namespace) -> None:
    file = ConfigFile.of(args)
    files = collect(args.context, args.include)
    master = connect(args)
    try:
        task_id = master.tasks.create(
            file.to_send(),
            files,
            projectId=args.project_id,
            forkedFrom=args.fork,
            parentId=args.parent,
            inheritContext=args.inherit_context or None,
            noPause=args.no_pause or None,
        )
    except APIError as error:
        raise file.placed(error) from None
    _made(args, task_id)


def _fork(args: argparse.Namespace) -> None:
    _made(args, connect(args).tasks.create("", forkedFrom=args.task_id, projectId=args.project_id))


def _made(args: argparse.Namespace, task_id: str) -> None:
    print(f"Created task {task_id}", flush=True)
    if args.follow:
        from trainmaster.cli.launching import follow_log

        follow_log(connect(args), task_id)


def _config(args: argparse.Namespace) -> None:
    data = json.loads(connect(args).tasks.config(args.task_id))
    if args.json:
        render.show_json(data)
    else:
        print(render.yaml(data), end="")


def _pause(args: argparse.Namespace) -> None:
    connect(args).tasks.pause(args.task_id)
    print(f"Paused task {args.task_id}")


def _unpause(args: argparse.Namespace) -> None:
    connect(args).tasks.unpause(args.task_id)
    print(f"Unpaused task {args.task_id}")


def _kill(args: argparse.Namespace) -> None:
    connect(args).tasks.end(args.task_id, root=args.root)
    print(f"Killed task {args.task_id}")
