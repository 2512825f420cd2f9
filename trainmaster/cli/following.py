"""Prints the logs of trials, to their end where they are followed."""

from __future__ import annotations

import argparse
import sys

from trainmaster.cli import render
from trainmaster.cli.session import say
from trainmaster.cli.verbs import log_filters
from trainmaster.client.master import Master
from trainmaster.client.patience import Patience


def follow_first_trial(master: Master, experiment_id: int) -> int:
    """Print the first trial's log until it ends. Raises ClientError."""
    try:
        print("Waiting for first trial to begin...", file=sys.stderr)
        waiting = Patience(notice=say)
        trial = waiting.ask(lambda: master.experiment(experiment_id)).first_trial(patience=waiting)
        print(f"Following first trial with ID {trial.id}", file=sys.stderr)
        for line in master.logs(trial.id, follow=True, notice=say):
            print(line.message, end="", flush=True)
    except KeyboardInterrupt:
        print(
            f"\nExperiment {experiment_id} continues. To end it, run: det experiment kill {experiment_id}",
            file=sys.stderr,
        )
        raise
    print(f"Trial log stream ended. To reopen log stream, run: det trial logs -f {trial.id}", file=sys.stderr)
    return 0


def print_logs(master: Master, trial_id: int, args: argparse.Namespace) -> None:
    """Print the lines that the options of `add_log_filters` select. Raises UsageError and ClientError."""
    where = log_filters(args)
    lines = master.logs(trial_id, follow=args.follow, tail=args.tail, head=args.head, notice=say, **where)
    for line in lines:
        if args.json:
            render.show_json_line(line.raw, flush=args.follow)
        else:
            print(line.message, end="", flush=args.follow)
