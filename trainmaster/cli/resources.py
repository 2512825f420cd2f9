"""`det resources`: usage of slots."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.session import session
from trainmaster.cli.verbs import Verbs
from trainmaster.client.cluster import ClusterView


def add_to(parser: argparse.ArgumentParser) -> None:
    verbs = Verbs(parser)
    example = "det resources allocations 2026-01-01T00:00:00Z 2026-02-01T00:00:00Z --csv"
    p = verbs.add("allocations", _allocations, "list each attempt with its slots and times", example, ["alloc"])
    _add_times(p)
    example = "det resources raw 2026-01-01T00:00:00Z 2026-02-01T00:00:00Z"
    p = verbs.add("raw", _raw, "list each use of slots, by experiment", example)
    _add_times(p)
    p = verbs.add(
        "aggregated",
        _aggregated,
        "sum slot-hours by day or month",
        "det resources aggregated 2026-01-01 2026-01-31",
        ["agg"],
    )
    p.add_argument("start_date", help="the first day, such as 2026-01-01")
    p.add_argument("end_date", help="the last day")
    p.add_argument("--monthly", action="store_true", help="by month instead of by day")
    render.add_format_options(p)


def _add_times(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("timestamp_after", help="RFC 3339 time, such as 2026-01-01T00:00:00Z")
    parser.add_argument("timestamp_before", help="RFC 3339 time")
    render.add_format_options(parser)


def _allocations(args: argparse.Namespace) -> None:
    usage = ClusterView(session(args)).usage(args.timestamp_after, args.timestamp_before)
    headers = ["Allocation ID", "User", "Workspace", "Resource Pool", "Slots", "Started", "Ended", "Seconds"]
    keys = ("allocationId", "username", "workspaceName", "resourcePool", "slots", "startTime", "endTime", "seconds")
    render.show(args, headers, [[entry[key] for key in keys] for entry in usage], usage)


def _raw(args: argparse.Namespace) -> None:
    usage = ClusterView(session(args)).usage(args.timestamp_after, args.timestamp_before)
    headers = ["Experiment ID", "Kind", "User", "Labels", "Slots", "Started", "Ended", "Seconds"]
    keys = ("experimentId", "kind", "username", "labels", "slots", "startTime", "endTime", "seconds")
    render.show(args, headers, [[entry[key] for key in keys] for entry in usage], usage)


def _aggregated(args: argparse.Namespace) -> None:
    usage = ClusterView(session(args)).usage_by_time(args.start_date, args.end_date, monthly=args.monthly)
    headers = ["Kind", "Name", "Start", "Slot Hours"]
    render.show(args, headers, [row for entry in usage for row in _rows(entry)], usage)


def _rows(entry: dict[str, Any]) -> Iterator[list[Any]]:
    yield ["total", "total", entry["periodStart"], round(entry["seconds"] / 3600, 3)]
    parts = {"user": "byUsername", "label": "byExperimentLabel", "pool": "byResourcePool"}
    for kind, key in parts.items():
        for name, seconds in sorted(entry[key].items()):
            yield [kind, name, entry["periodStart"], round(seconds / 3600, 3)]
