"""`det search`: tries searchers on what was recorded, before anything is paid for."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import UsageError, connect
from trainmaster.client.view_records import SearchRun, WhatIfAnswer


def add_to(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    plan = commands.add_parser("plan", help="what a search has used of its budget, and how it will end")
    plan.add_argument("experiment_id", type=int)
    render.add_format_options(plan)
    plan.set_defaults(run=_plan)
    what_if = commands.add_parser("what-if", help="replay an experiment's curves through another searcher")
    what_if.epilog = "Example: det search what-if 17 --searcher auto --workers 16"
    what_if.add_argument("experiment_id", type=int)
    what_if.add_argument(
        "--searcher", metavar="NAME", help="another searcher, with the experiment's metric and lengths"
    )
    what_if.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the searcher's section, such as divisor=3",
    )
    what_if.add_argument(
        "--workers", type=int, metavar="N", help="trials at the same time (as many as the searcher runs)"
    )
    what_if.add_argument("--seeds", type=int, default=5, metavar="N", help="simulations (%(default)s)")
    what_if.add_argument(
        "--queue-delay", default="0", metavar="SECONDS[:SPREAD]",
        help="median time in the queue, and the standard deviation of its logarithm (%(default)s)",
    )  # fmt: skip
    what_if.add_argument(
        "--deaths", type=float, default=0.0, metavar="PART", help="of jobs that die on the way, 0 to 0.9"
    )
    render.add_format_options(what_if)
    what_if.set_defaults(run=_what_if)


def _plan(args: argparse.Namespace) -> None:
    plan = connect(args).views.search_plan(args.experiment_id)
    if args.json or args.yaml or args.csv:
        headers = ["Trials", "Slot-hours", "Trials at the end", "Slot-hours at the end", "End"]
        row: list[Any] = [plan.used.trials, plan.used.slot_hours]
        row += [plan.forecast.trials, plan.forecast.slot_hours, plan.forecast.end]
        render.show(args, headers, [row], dataclasses.asdict(plan))
        return
    print(f"{plan.used.trials} trials begun, {plan.used.slot_hours:.3g} slot-hours used.")
    for sentence in plan.sentences:
        print(sentence)


def _what_if(args: argparse.Namespace) -> None:
    import yaml

    keys: dict[str, Any] = {} if args.searcher is None else {"name": args.searcher}
    for each in args.set:
        key, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not {each!r}")
        keys[key] = yaml.safe_load(value)
    median, _, spread = args.queue_delay.partition(":")
    try:
        delay, delay_spread = float(median), float(spread or 0)
    except ValueError:
        raise UsageError(f"--queue-delay takes SECONDS or SECONDS:SPREAD, not {args.queue_delay!r}") from None
    answer = connect(args).views.what_if(
        args.experiment_id, keys, workers=args.workers, seeds=args.seeds, delay=delay, delay_spread=delay_spread,
        deaths=args.deaths,
    )  # fmt: skip
    headers = ["Search", f"Best {answer.metric}", "Hours", "Slot-hours", "Trials", "As good as recorded after"]
    rows = [
        _row("as it was", [answer.recorded], answer),
        _row(f"{answer.searcher} ({len(answer.runs)} simulations)", answer.runs, answer),
    ]
    render.show(args, headers, rows, dataclasses.asdict(answer))
    if answer.short and not (args.json or args.yaml or args.csv):
        print(
            f"{answer.short} of {answer.trials} recorded trials were stopped early: nothing is known of how they would "
            "have continued, and a searcher that continues them finds their end."
        )


def _row(name: str, runs: Sequence[SearchRun], answer: WhatIfAnswer) -> list[Any]:
    """Medians over the simulations."""
    best = statistics.median(run.bests[-1][1] for run in runs)
    hours, slot_hours = (
        statistics.median(getattr(run, key) / 3600 for run in runs) for key in ("seconds", "slot_seconds")
    )
    trials = round(statistics.median(run.trials for run in runs))
    return [name, best, round(hours, 3), round(slot_hours, 3), trials, _reached(runs, answer)]


def _reached(runs: Sequence[SearchRun], answer: WhatIfAnswer) -> str:
    target, sign = answer.recorded.bests[-1][1], 1 if answer.smaller_is_better else -1
    times = [next((at for at, value in run.bests if sign * value <= sign * target), None) for run in runs]
    found = [at for at in times if at is not None]
    if len(found) * 2 < len(runs):
        return f"never in {len(runs) - len(found)} of {len(runs)}"
    return f"{statistics.median(found) / 3600:.3g} h"
