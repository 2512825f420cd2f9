"""`det search`: tries searchers on what was recorded, before anything is paid for."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.config_file import ConfigFile, add_override_option
from trainmaster.cli.session import UsageError, connect, say
from trainmaster.cli.verbs import Verbs, positive, seconds
from trainmaster.client.errors import APIError
from trainmaster.client.view_records import SearchRun, SearchSimulation

MOMENTS = 10  # rows of the best value over time
MOST_LENGTHS = 20  # rows of how far trials were trained


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add("plan", _plan, "what a search has used of its budget, and how it will end", "det search plan 17")
    p.add_argument("experiment_id", type=positive)
    render.add_format_options(p)
    p = verbs.add(
        "what-if",
        _what_if,
        "replay an experiment's curves through another searcher",
        "det search what-if 17 --searcher auto --workers 16",
    )
    p.add_argument("experiment_id", type=positive)
    _add_options(p, "another searcher, with the experiment's metric and lengths")
    p = verbs.add(
        "simulate",
        _simulate,
        "try the search of a configuration on recorded curves",
        "det search simulate search.yaml --table curves.csv --workers 16 --seeds 20",
    )
    p.add_argument("config_file", type=Path, metavar="FILE", help="the experiment's YAML file")
    p.add_argument(
        "--table", required=True, metavar="T.csv|T.npz|EXPERIMENT_ID",
        help="the recorded curves: a file, or an experiment of the master",
    )  # fmt: skip
    add_override_option(p)
    _add_options(p, "another searcher, with the file's metric and lengths")


def _add_options(parser: argparse.ArgumentParser, searcher: str) -> None:
    parser.add_argument("--searcher", metavar="NAME", help=searcher)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the searcher's section, such as divisor=3",
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="trials at the same time (as many as the searcher runs)"
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="K", help="simulations (%(default)s)")
    parser.add_argument(
        "--queue-delay", default="0", metavar="SECONDS[:SPREAD]",
        help="median time in the queue, and the standard deviation of its logarithm (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--deaths", type=float, default=0.0, metavar="PART", help="of jobs that die on the way, 0 to 0.9"
    )
    parser.add_argument(
        "--walltime", type=seconds, metavar="SECONDS",
        help="a job that runs longer is cut and queued again; its trial keeps what it has reported",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=Path, metavar="OUT", help="draw the best value over time: a .png, .svg or .pdf file"
    )
    render.add_format_options(parser)


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
    keys, options = _keys(args), _options(args)
    _show(args, connect(args).views.what_if(args.experiment_id, keys, **options))


def _simulate(args: argparse.Namespace) -> None:
    keys, options = _keys(args), _options(args)
    file = ConfigFile.of(args)
    curves: Any
    if args.table.isdecimal():
        curves = int(args.table)
    elif args.table.lower().endswith((".csv", ".npz")):
        from trainmaster.cli.curve_tables import CurveColumns, read_table

        names = _names({**_section(file), **keys})
        if not names[0]:
            raise UsageError("the file names no searcher.metric: add it, or --set metric=NAME, for the table's column")
        curves = read_table(Path(args.table), CurveColumns(*names), say)
    else:
        raise UsageError(f"--table takes a .csv or .npz file, or the number of an experiment, not {args.table!r}")
    try:
        answer = connect(args).views.simulate(file.to_send(), curves, keys, **options)
    except APIError as error:
        raise file.placed(error) from None
    _show(args, answer)


def _section(file: ConfigFile) -> Mapping[str, Any]:
    section = file.data().get("searcher")
    return section if isinstance(section, dict) else {}


def _names(searcher: Mapping[str, Any]) -> tuple[str, str]:
    """Return the metric, and what trials are measured in; empty where the section says nothing."""
    length = searcher.get("max_length")
    unit = next(iter(length), "") if isinstance(length, dict) else ""
    return str(searcher.get("metric") or ""), str(searcher.get("time_metric") or unit)


def _keys(args: argparse.Namespace) -> dict[str, Any]:
    import yaml

    keys: dict[str, Any] = {} if args.searcher is None else {"name": args.searcher}
    for each in args.set:
        key, equals, value = each.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, not {each!r}")
        try:
            keys[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(f"--set {key}: {value!r} is not a value in YAML") from None
    return keys


def _options(args: argparse.Namespace) -> dict[str, Any]:
    median, _, spread = args.queue_delay.partition(":")
    try:
        delay, delay_spread = float(median), float(spread or 0)
    except ValueError:
        raise UsageError(f"--queue-delay takes SECONDS or SECONDS:SPREAD, not {args.queue_delay!r}") from None
    if args.plot is not None:
        from trainmaster.cli.search_picture import check_picture

        check_picture(args.plot)
    return {
        "workers": args.workers,
        "seeds": args.seeds,
        "delay": delay,
        "delay_spread": delay_spread,
        "deaths": args.deaths,
        "walltime": args.walltime,
    }


def _show(args: argparse.Namespace, answer: SearchSimulation) -> None:
    recorded = answer.recorded
    headers = ["Search", f"Best {answer.metric}", "Hours", "Slot-hours", "Trials"]
    rows = [_row(f"{answer.searcher} ({len(answer.runs)} simulations)", answer.runs)]
    if recorded is not None:
        headers.append("As good as recorded after")
        rows = [
            [*_row("as it was", [recorded]), _reached([recorded], answer)],
            [*rows[0], _reached(answer.runs, answer)],
        ]
    render.show(args, headers, rows, dataclasses.asdict(answer))
    if not (args.json or args.yaml or args.csv):
        for more in _more(answer):
            print(f"\n{more}")
    if args.plot is not None:
        from trainmaster.cli.search_picture import draw

        draw(answer, args.plot)
        say(f"the picture is in {args.plot}")


def _more(answer: SearchSimulation) -> Iterator[str]:
    """Yield the tables below the first one, and what must be known of them."""
    yield render.table(["Hours", "Median", "Lower quartile", "Upper quartile"], list(_over_time(answer)))
    yield render.table([f"Trained {answer.time_metric}", "Trials"], list(_lengths(answer.runs)))
    if any(run.trials > answer.trials for run in answer.runs):
        yield f"There are {answer.trials} recorded curves, fewer than trials: some of them serve several."
    if answer.short:
        yield (
            f"{answer.short} of {answer.trials} recorded trials were stopped early: nothing is known of how they would "
            "have continued, and a searcher that continues them finds their end."
        )


def _over_time(answer: SearchSimulation) -> Iterator[list[Any]]:
    course = answer.course
    for moment in range(1, MOMENTS + 1):
        time = course.seconds[-1] * moment / MOMENTS
        at = bisect_right(course.seconds, time * (1 + 1e-9)) - 1
        values = [None] * 3 if at < 0 else [course.median[at], course.lower[at], course.upper[at]]
        yield [_hours(time), *values]


def _lengths(runs: Sequence[SearchRun]) -> Iterator[list[Any]]:
    """Yield how many trials were trained to which length, on average over the simulations."""
    trials: Counter[int] = Counter()
    for run in runs:
        for units, count in run.lengths:
            trials[int(units)] += int(count)
    shown = sorted(trials)[:MOST_LENGTHS]
    for units in shown:
        yield [units, round(trials.pop(units) / len(runs), 1)]
    if trials:
        yield [f"more ({len(trials)} lengths)", round(sum(trials.values()) / len(runs), 1)]


def _row(name: str, runs: Sequence[SearchRun]) -> list[Any]:
    """Medians over the simulations; no best value where half of them have none."""
    found = [run.bests[-1][1] for run in runs if run.bests]
    best = statistics.median(found) if len(found) * 2 > len(runs) else None
    hours, slot_hours = (
        _hours(statistics.median(getattr(run, key) for run in runs)) for key in ("seconds", "slot_seconds")
    )
    trials = round(statistics.median(run.trials for run in runs))
    return [name, best, hours, slot_hours, trials]


def _hours(seconds: float) -> float:
    hours = seconds / 3600
    return round(hours, 2) if hours >= 1 else float(f"{hours:.2g}")


def _reached(runs: Sequence[SearchRun], answer: SearchSimulation) -> str:
    if answer.recorded is None or not answer.recorded.bests:
        return ""
    target, sign = answer.recorded.bests[-1][1], 1 if answer.smaller_is_better else -1
    places = [next((at for at, each in enumerate(run.bests) if sign * each[1] <= sign * target), None) for run in runs]
    found = [(run, at) for run, at in zip(runs, places, strict=True) if at is not None]
    if len(found) * 2 < len(runs):
        return f"never in {len(runs) - len(found)} of {len(runs)}"
    reached = f"{statistics.median(run.bests[at][0] for run, at in found) / 3600:.3g} h"
    if not all(run.spent for run, _ in found):
        return reached
    return f"{reached}, {statistics.median(run.spent[at] for run, at in found) / 3600:.3g} slot-hours"
