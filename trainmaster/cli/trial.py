"""`det trial`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import connect
from trainmaster.cli.verbs import Verbs, add_log_filters, add_paging, log_filters
from trainmaster.client.master import Master


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    p = verbs.add(
        "describe",
        _describe,
        "show a trial with its metrics and checkpoints",
        "det trial describe 3 --metrics",
    )
    _add_id(p)
    p.add_argument("--metrics", action="store_true", help="with the metrics of each training report")
    p.add_argument("--metrics-summary", action="store_true", help="only the summary of each metric")
    add_paging(p, 1000)
    render.add_format_options(p)
    p = verbs.add("logs", _logs, "print a trial's log", "det trial logs -f 3")
    _add_id(p)
    add_log_filters(p)
    p = verbs.add("kill", _kill, "end a trial at once", "det trial kill 3")
    _add_id(p)
    p = verbs.add("story", _story, "why the trial is where it is, event by event", "det trial story 3")
    _add_id(p)
    p.add_argument("--json", action="store_true", help="print JSON")


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trial_id", type=int, help="the trial's number")


def _describe(args: argparse.Namespace) -> None:
    master = connect(args)
    trial = master.trial(args.trial_id)
    loads = master.workloads(args.trial_id, limit=args.limit, offset=args.offset, everything=args.pages == "all")
    if args.json:
        render.show_json({**trial.raw, "workloads": loads})
        return
    if args.metrics_summary:
        render.show_json(trial.summary)
        return
    if not args.csv:
        task = master.task(trial.task_id)
        headers = ["Experiment ID", "State", "H-Params", "Best Metric", "Restarts", "Started", "Ended"]
        row = [
            trial.experiment_id,
            trial.state,
            render.hparams(trial.hparams),
            trial.best_metric,
            trial.restarts,
        ]
        print(render.table(headers, [[*row, render.time(trial.started), render.time(trial.ended)]]))
        if trial.reason:
            print(f"\n {trial.reason}")
        print()
        headers = ["Attempt", "Job", "State", "Nodes", "Started", "Ended", "Exit", "Why"]
        rows: list[list[Any]] = [
            [
                a["allocationId"].rpartition(".")[2],
                a.get("jobId"),
                a["state"].removeprefix("STATE_"),
                " ".join(a.get("nodes") or ()),
                render.time(a.get("startTime")),
                render.time(a.get("endTime")),
                a.get("statusCode"),
                a.get("exitReason") or a.get("explanation"),
            ]
            for a in task["allocations"]
        ]
        print(render.table(headers, rows) + "\n")
    headers = ["# of Batches", "Report Time", "Checkpoint", "Checkpoint UUID", "Validation Metrics"]
    if args.metrics:
        headers.append("Workload Metrics")
    render.show(args, headers, [_workload_row(load, args.metrics) for load in _wanted(loads, args.metrics)], None)


def _wanted(loads: list[dict[str, Any]], metrics: bool) -> list[dict[str, Any]]:
    return [load for load in loads if metrics or "training" not in load]


def _workload_row(load: dict[str, Any], metrics: bool) -> list[Any]:
    (kind, content), *_ = load.items()
    averages = content.get("metrics", {}).get("avgMetrics")
    row: list[Any] = [content["totalBatches"], render.time(content.get("endTime"))]
    row += [
        content.get("state", "").removeprefix("STATE_") if kind == "checkpoint" else "",
        content.get("uuid", ""),
    ]
    row.append(averages if kind == "validation" else "")
    return [*row, averages if kind == "training" else ""] if metrics else row


def _logs(args: argparse.Namespace) -> None:
    print_logs(connect(args), args.trial_id, args, log_filters(args))


def print_logs(master: Master, trial_id: int, args: argparse.Namespace, filters: dict[str, Any]) -> None:
    for line in master.logs(trial_id, follow=args.follow, tail=args.tail, head=args.head, **filters):
        if args.json:
            print(json.dumps(line.raw, ensure_ascii=False), flush=args.follow)
        else:
            print(line.message, end="", flush=args.follow)


def _kill(args: argparse.Namespace) -> None:
    connect(args).kill_trial(args.trial_id)
    print(f"Killed trial {args.trial_id}")


def _story(args: argparse.Namespace) -> None:
    events = connect(args).story(args.trial_id)
    if args.json:
        render.show_json([event.__dict__ for event in events])
        return
    for event in events:
        moved = (
            f" {event.before} -> {event.after}"
            if event.before != event.after
            else f" {event.after}"
            if event.after
            else ""
        )
        print(f"{render.time(event.time)}  {event.subject}: {event.event}{moved}")
        if event.why:
            print(f"    because {event.why}")
        for decision in event.decisions:
            print(f"    -> {decision}")
