"""`trainmaster report savings`: what the searches of a site have saved, read from its database."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainmaster.config.master import MasterConfig
from trainmaster.config.searcher import keys_of
from trainmaster.master.main import store_beside
from trainmaster.master.services.clock import now
from trainmaster.master.services.views.search_savings import SearchReplay, SearchSaving, SearchSavings

Json = dict[str, Any]


class NoSuchSearcher(ValueError):
    """The searcher to replay with is not installed; the message says so."""


def report_savings(config: MasterConfig, data: Path, age: dt.timedelta, most: int, searcher: str | None) -> Json:
    """Return the searches that ended within `age`, at most so many, the newest first, and sums of them.

    Args:
        searcher: Another one, through which the curves of each are replayed; None for none.

    Returns:
        `searches`, `owners`, `workspaces` and `total`, with slot-seconds in `used` and `saved`.

    Raises:
        CannotServe: The database cannot be opened.
        NoSuchSearcher: `searcher` is not installed.
    """
    if searcher is not None and not keys_of({"name": searcher}):
        raise NoSuchSearcher(f"There is no searcher {searcher!r}.")
    since = now() - age
    with store_beside(config, data) as store:
        savings = SearchSavings(store, config.limits)
        found = [
            (one, None if searcher is None else savings.replay(one.experiment, searcher))
            for one in savings.ended(since, most)
        ]
    return {
        "since": since.isoformat(timespec="seconds"),
        "replayed_with": searcher,
        "searches": [_search(one, replay) for one, replay in found],
        "owners": _sums([one for one, _ in found], "owner"),
        "workspaces": _sums([one for one, _ in found], "workspace"),
        "total": _total(found),
    }


def _search(one: SearchSaving, replay: SearchReplay | None) -> Json:
    shown = dataclasses.asdict(one) | {"ended": one.ended.isoformat(timespec="seconds")}
    return shown if replay is None else shown | {"replay": dataclasses.asdict(replay)}


def _sums(found: Sequence[SearchSaving], key: str) -> list[Json]:
    """By owner or workspace, who used most first."""
    groups: dict[str, list[SearchSaving]] = defaultdict(list)
    for one in found:
        groups[getattr(one, key)].append(one)
    sums = [{key: name, **_sum(group)} for name, group in groups.items()]
    return sorted(sums, key=lambda each: (-each["used"], each[key]))


def _sum(found: Sequence[SearchSaving]) -> Json:
    return {
        "searches": len(found),
        "trials": sum(one.trials for one in found),
        "stopped": sum(one.stopped for one in found),
        "used": sum(one.used for one in found),
        "saved": sum(one.saved for one in found),
    }


def _total(found: Sequence[tuple[SearchSaving, SearchReplay | None]]) -> Json:
    """Of all; with a replay also what those used that the other searcher equalled, and what it would have used."""
    total = _sum([one for one, _ in found])
    equalled = [(one, replay.used) for one, replay in found if replay is not None and replay.used is not None]
    if any(replay is not None for _, replay in found):
        total["equalled"] = {
            "searches": len(equalled),
            "used": sum(one.used for one, _ in equalled),
            "replayed": sum(used for _, used in equalled),
        }
    return total
