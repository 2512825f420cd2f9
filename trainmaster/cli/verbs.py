"""Declaring verbs: one call each, with an example in the help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

Run = Callable[[argparse.Namespace], Any]


class Verbs:
    """The verbs of one noun."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._sub = parser.add_subparsers(title="verbs", metavar="VERB")

    def add(self, name: str, run: Run, text: str, example: str, aliases: Sequence[str] = ()) -> argparse.ArgumentParser:
        parser = self._sub.add_parser(
            name,
            aliases=list(aliases),
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"Example: {example}",
        )
        parser.set_defaults(run=run, parser=parser)
        return parser


def add_paging(parser: argparse.ArgumentParser, limit: int) -> None:
    parser.add_argument("--limit", type=int, default=limit, help="entries a page (default: %(default)s)")
    parser.add_argument("--offset", type=int, default=0, help="entries to leave out; negative counts from the end")
    parser.add_argument("--pages", choices=("1", "all"), default="all", help="one page or all (default: %(default)s)")


def add_log_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the trial has ended")
    parser.add_argument("--head", type=int, default=0, metavar="N", help="the first N lines")
    parser.add_argument("--tail", type=int, default=0, metavar="N", help="the last N lines")
    parser.add_argument("--json", action="store_true", help="print JSON, a line each")
    parser.add_argument("--agent-id", action="append", metavar="NODE", help="only lines of this node")
    parser.add_argument("--container-id", action="append", metavar="ID", help="only lines of this container")
    parser.add_argument("--rank-id", action="append", type=int, metavar="N", help="only lines of this rank")
    parser.add_argument("--source", action="append", metavar="NAME", help="task, runtime, scheduler or master")
    parser.add_argument("--stdtype", action="append", choices=("stdout", "stderr"), help="only lines of this stream")
    parser.add_argument(
        "--level", metavar="LEVEL", help="this level and above: TRACE, DEBUG, INFO, WARNING, ERROR, CRITICAL"
    )
    parser.add_argument("--timestamp-before", metavar="TIME", help="only lines before this RFC 3339 time")
    parser.add_argument("--timestamp-after", metavar="TIME", help="only lines after this RFC 3339 time")


LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def log_filters(args: argparse.Namespace) -> dict[str, Any]:
    """The filters as the API names them. Raises UsageError."""
    from trainmaster.cli.session import UsageError

    levels = None
    if args.level:
        if args.level.upper() not in LEVELS:
            raise UsageError(f"--level: {args.level!r} is not one of {', '.join(LEVELS)}")
        levels = [f"LOG_LEVEL_{level}" for level in LEVELS[LEVELS.index(args.level.upper()) :]]
    return {
        "agentIds": args.agent_id,
        "containerIds": args.container_id,
        "rankIds": args.rank_id,
        "sources": args.source,
        "stdtypes": args.stdtype,
        "levels": levels,
        "timestampBefore": args.timestamp_before,
        "timestampAfter": args.timestamp_after,
    }
