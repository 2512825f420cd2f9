"""Declares the verbs of `det`, each with an example in its help, and the options that several verbs share."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainmaster.cli.session import UsageError
from trainmaster.client.errors import ClientError

Run = Callable[[argparse.Namespace], Any]
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class _Formatter(argparse.HelpFormatter):
    """Keeps an example on one line, so that it can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("Example: ") else super()._fill_text(text, width, indent)


class Verbs:
    """The verbs of one noun."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._sub = parser.add_subparsers(title="verbs", metavar="VERB")
        parser.set_defaults(verbs=self._sub.choices)  # name -> parser
        self.add("help", lambda _: parser.print_help(), "show this help message", f"{parser.prog} help")

    def add(self, name: str, run: Run, text: str, example: str, aliases: Sequence[str] = ()) -> argparse.ArgumentParser:
        parser = self._sub.add_parser(
            name,
            aliases=list(aliases),
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"Example: {example}",
            formatter_class=_Formatter,
        )
        parser.set_defaults(run=run, parser=parser)
        return parser

    def group(self, name: str, text: str) -> Verbs:
        """Verbs below a verb, as in `det experiment set name`."""
        parser = self._sub.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        parser.set_defaults(parser=parser)
        return Verbs(parser)


def check_verb(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Raise UsageError, naming the nearest verb, if the first of `words` is not a verb of the parser, or the next one
    not a verb below that."""
    verbs: Mapping[str, argparse.ArgumentParser] | None = parser.get_default("verbs")
    if not verbs or not words or words[0].startswith("-"):
        return
    if words[0] not in verbs:
        close = difflib.get_close_matches(words[0], verbs, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"there is no `{parser.prog} {words[0]}`{hint}; `{parser.prog} help` lists the verbs")
    check_verb(verbs[words[0]], words[1:])


def natural(text: str) -> int:
    """Parse a whole number of at least 0, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def positive(text: str) -> int:
    """Parse a whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def seconds(text: str) -> float:
    """Parse a time above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def add_days(parser: argparse.ArgumentParser) -> None:
    """Add `--days N` and `--forever`."""
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--days", type=natural, metavar="N", help="days after a trial's end")
    group.add_argument("--forever", dest="days", action="store_const", const=-1, help="do not delete them")


def add_paging(parser: argparse.ArgumentParser, limit: int) -> None:
    parser.add_argument("--limit", type=positive, default=limit, help="entries per page (default: %(default)s)")
    parser.add_argument("--offset", type=int, default=0, help="entries to skip; negative counts from the end")
    parser.add_argument("--pages", choices=("1", "all"), default="all", help="one page or all (default: %(default)s)")


def add_order(parser: argparse.ArgumentParser, keys: Sequence[str], default: str) -> None:
    parser.add_argument("--sort-by", choices=keys, default=default, help="default: %(default)s")
    parser.add_argument("--order-by", choices=("asc", "desc"), default="asc", help="default: %(default)s")


def order(args: argparse.Namespace) -> dict[str, str]:
    """Return the order in the API's words."""
    return {"sortBy": f"SORT_BY_{args.sort_by.upper()}", "orderBy": f"ORDER_BY_{args.order_by.upper()}"}


def confirmed(args: argparse.Namespace, question: str) -> bool:
    """Whether `--yes` was given, or the user at the terminal agrees. Raises UsageError without a terminal."""
    if args.yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("this needs confirmation at a terminal; add --yes to confirm without one")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file with a mapping. Raises ClientError."""
    import yaml

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ClientError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(data, dict):
        raise ClientError(f"{path} is not a mapping of keys to values.")
    return data


def add_log_filters(parser: argparse.ArgumentParser) -> None:
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--head", type=natural, default=0, metavar="N", help="the first N lines")
    ends.add_argument("--tail", type=natural, default=0, metavar="N", help="the last N lines, with -f also new ones")
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="continue until the trial has ended, through absences of the master (DET_PATIENCE seconds)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--agent-id", action="append", metavar="NODE", help="only lines of this node")
    parser.add_argument("--container-id", action="append", metavar="ID", help="only lines of this container")
    parser.add_argument("--rank-id", action="append", type=natural, metavar="N", help="only lines of this rank")
    parser.add_argument("--source", action="append", metavar="NAME", help="task, runtime, scheduler or master")
    parser.add_argument("--stdtype", action="append", choices=("stdout", "stderr"), help="only lines of this stream")
    parser.add_argument("--level", type=str.upper, choices=LEVELS, help="this level and above")
    parser.add_argument("--timestamp-before", metavar="TIME", help="only lines before this RFC 3339 time")
    parser.add_argument("--timestamp-after", metavar="TIME", help="only lines after this RFC 3339 time")


def log_filters(args: argparse.Namespace) -> dict[str, Any]:
    """Return the filters in the API's words. Raises UsageError."""
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
