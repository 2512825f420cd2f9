"""`det task`: what is live, and its logs."""

from __future__ import annotations

import argparse
import json

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs, add_log_filters, log_filters
from trainmaster.client.cluster import ClusterView


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("list", _list, "list what waits or runs", "det task list", ["ls"])
    render.add_format_options(p)
    p = verbs.add("logs", _logs, "print a task's log", "det task logs -f 3.0d9b")
    p.add_argument("task_id", help="the task")
    p.add_argument("--allocation-id", action="append", metavar="ID", help="only lines of this attempt")
    p.add_argument("--search", default="", metavar="TEXT", help="only lines with this text in them")
    p.add_argument("--regex", action="store_true", help="--search is a regular expression")
    add_log_filters(p)


def _list(args: argparse.Namespace) -> None:
    found = ClusterView(session(args)).tasks()
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
        for task in found
    ]
    render.show(args, headers, rows, found)


def _logs(args: argparse.Namespace) -> None:
    where = log_filters(args) | {"allocationIds": args.allocation_id}
    if args.search:
        where |= {"searchText": args.search, "enableRegex": args.regex or None}
    view = ClusterView(session(args))
    for line in view.task_log(args.task_id, follow=args.follow, head=args.head, tail=args.tail, **where):
        text = json.dumps(line, ensure_ascii=False) + "\n" if args.json else line["message"]
        print(text, end="", flush=args.follow)
