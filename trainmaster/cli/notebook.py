"""`det notebook`: JupyterLab on the cluster."""

from __future__ import annotations

import argparse

from trainmaster.cli import render
from trainmaster.cli.launching import add_common_verbs, add_launch_options, launch
from trainmaster.cli.session import connect, say
from trainmaster.cli.verbs import Verbs
from trainmaster.client.master import Master
from trainmaster.client.tasks import Kind
from trainmaster.client.untrusted import checked_path


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("start", _start, "start JupyterLab and open it", "det notebook start --config resources.slots=1")
    add_launch_options(p)
    p.add_argument("--no-browser", action="store_true", help="only print the address")
    p.add_argument("--preview", action="store_true", help="print the whole configuration and start nothing")
    p = verbs.add("open", _open, "open a notebook in a browser", "det notebook open 0d9b31f2")
    p.add_argument("task_id", help="its id, or the beginning of it")
    p.add_argument("--no-browser", action="store_true", help="only print the address")
    add_common_verbs(verbs, "notebook", "notebook")


def _start(args: argparse.Namespace) -> None:
    master = connect(args)
    if args.preview:
        print(render.yaml(launch(master, "notebook", args, preview=True)["config"]), end="")
        return
    made = launch(master, "notebook", args)
    if args.detach:
        print(made["id"])
        return
    print(f"Notebook {made['id']} ({made['description']})", flush=True)
    if not made["config"].get("work_dir"):
        say("The files in its folder are removed when it ends; --config work_dir=/a/folder/that/stays keeps them.")
    show(master, args, "notebook", made["id"])


def _open(args: argparse.Namespace) -> None:
    master = connect(args)
    show(master, args, "notebook", master.tasks.find("notebook", args.task_id))


def show(master: Master, args: argparse.Namespace, kind: Kind, task_id: str) -> None:
    """Wait until a task's service answers, print its address and open it in a browser. Raises ClientError."""
    task = master.tasks.get(kind, task_id)
    master.tasks.wait_ready(task_id, notice=say)
    address = f"{master.url}{checked_path(task['serviceAddress'])}"
    print(address, flush=True)
    if not args.no_browser:
        import webbrowser

        webbrowser.open(address)
