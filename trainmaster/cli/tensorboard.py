"""`det tensorboard`: TensorBoards of experiments and trials."""

from __future__ import annotations

import argparse

from trainmaster.cli.launching import add_common_verbs, add_launch_options, launch
from trainmaster.cli.notebook import show
from trainmaster.cli.session import UsageError, connect
from trainmaster.cli.verbs import Verbs, positive


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("start", _start, "show experiments or trials", "det tensorboard start 3 5")
    p.add_argument("experiment_ids", nargs="*", type=positive, metavar="EXPERIMENT_ID", help="experiments to show")
    p.add_argument("-t", "--trial-ids", nargs="+", type=positive, default=[], metavar="ID", help="trials to show")
    add_launch_options(p, volumes=False, template=False)
    p.add_argument("--no-browser", action="store_true", help="only print the address")
    p = verbs.add("open", _open, "open a TensorBoard in a browser", "det tensorboard open 0d9b31f2")
    p.add_argument("task_id", help="its id, or the beginning of it")
    p.add_argument("--no-browser", action="store_true", help="only print the address")
    add_common_verbs(verbs, "tensorboard", "TensorBoard")


def _start(args: argparse.Namespace) -> None:
    if not args.experiment_ids and not args.trial_ids:
        raise UsageError("give the numbers of experiments, or of trials with --trial-ids")
    master = connect(args)
    made = launch(master, "tensorboard", args, experimentIds=args.experiment_ids, trialIds=args.trial_ids)
    if args.detach:
        print(made["id"])
        return
    print(f"TensorBoard {made['id']} ({made['description']})", flush=True)
    show(master, args, "tensorboard", made["id"])


def _open(args: argparse.Namespace) -> None:
    master = connect(args)
    show(master, args, "tensorboard", master.tasks.find("tensorboard", args.task_id))
