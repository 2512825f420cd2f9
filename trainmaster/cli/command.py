"""`det command`: run a program on the cluster and follow its log."""

from __future__ import annotations

import argparse

from trainmaster.cli import render
from trainmaster.cli.launching import COLUMNS, add_common_verbs, add_launch_options, follow_log, launch
from trainmaster.cli.session import UsageError, connect
from trainmaster.cli.verbs import Verbs


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("run", _run, "run a program and follow its log", "det command run -c . python3 prepare.py --all")
    add_launch_options(p)
    p.add_argument("entrypoint", nargs=argparse.REMAINDER, help="the program and its arguments")
    add_common_verbs(verbs, "command", "command")
    p = verbs.add("describe", _describe, "print a command", "det command describe 0d9b31f2")
    p.add_argument("task_id", help="its id, or the beginning of it")
    render.add_format_options(p)


def _run(args: argparse.Namespace) -> int:
    words = args.entrypoint[1:] if args.entrypoint[:1] == ["--"] else args.entrypoint
    if not words and not args.config_file:
        raise UsageError("give the program to run, as in: det command run python3 prepare.py")
    master = connect(args)
    made = launch(master, "command", args, config={"entrypoint": words} if words else {})
    if args.detach:
        print(made["id"])
        return 0
    print(f"Command {made['id']} ({made['description']})", flush=True)
    follow_log(master, made["id"])
    return _status(master.tasks.task(made["id"]))


def _status(task: dict[str, object]) -> int:
    """Return the exit status of the program; 1 if it has none."""
    allocations = task.get("allocations")
    codes = [allocation.get("statusCode") for allocation in allocations] if isinstance(allocations, list) else []
    known = next((code for code in codes if isinstance(code, int)), 1)
    return known if 0 <= known < 256 else 1


def _describe(args: argparse.Namespace) -> None:
    master = connect(args)
    task = master.tasks.get("command", master.tasks.find("command", args.task_id))
    del task["config"]
    names = {workspace["id"]: workspace["name"] for workspace in master.organisation.workspaces()}
    task |= {"state": task["state"].removeprefix("STATE_"), "workspaceName": names.get(task["workspaceId"], "")}
    render.show(args, list(COLUMNS), [[task[column] for column in COLUMNS]], task)
