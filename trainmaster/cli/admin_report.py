"""`trainmaster report`: what the searches of a site have saved."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainmaster.cli import render
from trainmaster.cli.verbs import positive

Json = Mapping[str, Any]
MOST = 20  # searches, unless more are asked for
LARGEST = 1_000
_AGE = re.compile(r"(\d{1,6})([hdw])")
SLOT_HOURS = ("Used", "Without stopping", "Saved")
_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


def add_to(
    parser: argparse.ArgumentParser,
    add_place: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    p = verbs.add_parser(
        "savings",
        help="what searches have saved by stopping trials",
        description="Print what the newest ended searches used, and what their stopped trials would have used further.",
        epilog="Example: trainmaster report savings --since 30d --replay auto",
    )
    add_place(p)
    p.add_argument(
        "--since", type=age, default=age("30d"), metavar="AGE",
        help="searches that ended within this time, such as 12h, 30d or 8w (30d)",
    )  # fmt: skip
    p.add_argument("--most", type=_most, default=MOST, metavar="N", help="the newest so many searches (%(default)s)")
    p.add_argument(
        "--replay", metavar="SEARCHER",
        help="also replay their curves through this searcher, until it finds a value as good; seconds each",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print JSON, in slot-seconds")
    p.set_defaults(run=run, parser=p)


def age(text: str) -> dt.timedelta:
    """Parse a time such as 30d, for argparse."""
    found = _AGE.fullmatch(text)
    hours = int(found[1]) * _HOURS[found[2]] if found else 0
    if not 0 < hours <= 100 * 365 * 24:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 12h, 30d or 8w")
    return dt.timedelta(hours=hours)


def _most(text: str) -> int:
    if positive(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"at most {LARGEST} searches are shown, found {text}")
    return int(text)


def show(report: Json, *, as_json: bool) -> None:
    """Print a report of the master."""
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    searches, total, searcher = report["searches"], report["total"], report["replayed_with"]
    if not searches:
        print(f"No search has ended since {report['since']}.")
        return
    headers = ["ID", "Name", "Owner", "Workspace", "Searcher", "Trials", "Stopped", *SLOT_HOURS]
    rows = [
        [
            *(one[key] for key in ("experiment", "name", "owner", "workspace", "searcher", "trials", "stopped")),
            *_hours(one),
        ]
        for one in searches
    ]
    if searcher is not None:
        headers += [f"As good with {searcher}"]
        rows = [[*row, _replayed(one["replay"])] for row, one in zip(rows, searches, strict=True)]
    print(render.table(headers, rows))
    for key, name in (("owners", "owner"), ("workspaces", "workspace")):
        print()
        headers = [name.capitalize(), "Searches", "Trials", "Stopped", *SLOT_HOURS]
        print(render.table(headers, _grouped(report[key], name)))
    print()
    for sentence in _sentences(total, sum(one["unknown"] for one in searches), searcher):
        print(sentence)


def _grouped(sums: Sequence[Json], name: str) -> list[list[Any]]:
    return [[*(each[key] for key in (name, "searches", "trials", "stopped")), *_hours(each)] for each in sums]


def _hours(one: Json) -> list[Any]:
    """Slot-hours used, what they would have been without stopping, and the part that was saved."""
    whole = one["used"] + one["saved"]
    return [_rounded(one["used"]), _rounded(whole), render.Percent(one["saved"] / whole if whole else 0.0)]


def _rounded(slot_seconds: float) -> float:
    hours = slot_seconds / 3600
    return round(hours, 2) if hours >= 1 else float(f"{hours:.2g}")


def _replayed(replay: Json) -> str:
    if replay["failed"]:
        return str(replay["failed"])
    return "never" if replay["used"] is None else f"{_rounded(replay['used'])}"


def _sentences(total: Json, unknown: int, searcher: str | None) -> list[str]:
    used, whole, part = _hours(total)
    searches = _counted(total["searches"], "search", "searches")
    told = [
        f"{searches} used {used} slot-hours. Had no trial been stopped, they would have used {whole}: "
        f"{render.readable(part)} were saved."
    ]
    if unknown:
        stopped = _counted(unknown, "trial was", "trials were")
        told.append(f"{stopped} stopped before a speed was known, and nothing is counted as saved there.")
    if searcher is not None:
        equalled = total["equalled"]
        told.append(
            f"{searcher} would have found a value as good in {equalled['searches']} of them, with "
            f"{_rounded(equalled['replayed'])} slot-hours instead of {_rounded(equalled['used'])}."
        )
    return told


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
