"""Declaring verbs: one call each, with an example in the help; and the options that several verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from trainmaster.cli.session import UsageError

Run = Callable[[argparse.Namespace], Any]
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Verbs:
    """The verbs of one noun."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._sub = parser.add_subparsers(title="verbs", metavar="VERB")
        self.add("help", lambda _: parser.print_help(), "show this help message", f"{parser.prog} help")

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


def natural(text: str) -> int:
    """A whole number from 0 on, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def seconds(text: str) -> float:
    """A time above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def add_paging(parser: argparse.ArgumentParser, limit: int) -> None:
    parser.add_argument("--limit", type=positive, default=limit, help="entries a page (default: %(default)s)")
    parser.add_argument("--offset", type=int, default=0, help="entries to leave out; negative counts from the end")
    parser.add_argument("--pages", choices=("1", "all"), default="all", help="one page or all (default: %(default)s)")


def add_log_filters(parser: argparse.ArgumentParser) -> None:
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--head", type=natural, default=0, metavar="N", help="the first N lines")
    ends.add_argument(
        "--tail", type=natural, default=0, metavar="N", help="the last N lines, with -f also what follows"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the trial has ended")
    parser.add_argument("--json", action="store_true", help="print JSON, a line each")
    parser.add_argument("--agent-id", action="append", metavar="NODE", help="only lines of this node")
    parser.add_argument("--container-id", action="append", metavar="ID", help="only lines of this container")
    parser.add_argument("--rank-id", action="append", type=natural, metavar="N", help="only lines of this rank")
    parser.add_argument("--source", action="append", metavar="NAME", help="task, runtime, scheduler or master")
    parser.add_argument("--stdtype", action="append", choices=("stdout", "stderr"), help="only lines of this stream")
    parser.add_argument("--level", type=str.upper, choices=LEVELS, help="this level and above")
    parser.add_argument("--timestamp-before", metavar="TIME", help="only lines before this RFC 3339 time")
    parser.add_argument("--timestamp-after", metavar="TIME", help="only lines after this RFC 3339 time")


def log_filters(args: argparse.Namespace) -> dict[str, Any]:
    """The filters as the API names them. Raises UsageError."""
    if args.head and args.follow:
        raise UsageError("--head and --follow exclude each other")
    levels = [f"LOG_LEVEL_{level}" for level in LEVELS[LEVELS.index(args.level) :]] if args.level else None
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
