"""Endpoint behind the page of a log: a few of its lines, wherever they are."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from fastapi import APIRouter, Query

from trainmaster.master.api.schemas.views import LogLine
from trainmaster.master.api.tasks import Filter
from trainmaster.master.api.trial_views import log_line
from trainmaster.master.http.dependencies import UserCaller, UsesMaster
from trainmaster.master.http.messages import Shape
from trainmaster.master.services.clock import epoch
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.logs.log_store import StoredLine
from trainmaster.master.services.views.log_window import Find, LogExcerpt, LogPlace


class WindowLine(LogLine):
    """`cut`: how many characters are left out at the end of `text`."""

    cut: int


class LogBins(Shape):
    """Counts by position: each bin stands for an equal share of the lines. `matches` is null without a search."""

    lines: list[int]
    warnings: list[int]
    errors: list[int]
    matches: list[int] | None


class LogWindow(Shape):
    """A few lines of a task's log. `position`: of the first one among the `total` that fit the filter, from 0.
    `newest`: the id up to which lines are counted. `began`: the time of the log's first line. `focus`: the line that
    the window is around; null at the end, or where nothing was found. `matched`: those of the lines that the search
    finds. `match`: the number, from 1, of the match in focus among the `matches`; both are null without `bins`."""

    lines: list[WindowLine]
    position: int
    total: int
    newest: int
    began: float | None
    focus: int | None
    match: int | None
    matches: int | None
    matched: list[int]
    bins: LogBins | None


router = APIRouter(prefix="/api/x1", tags=["tasks"])
MOST = 1000  # lines before a place, and behind it
MOST_BINS = 400
LONGEST = 4000  # characters of a line; `whole` reads all
MOST_WHOLE = 4  # lines that are read whole
_LATEST = dt.datetime(9999, 1, 1, tzinfo=dt.UTC).timestamp()
_Id = Annotated[int | None, Query(ge=0, le=2**63 - 2)]


@router.get("/tasks/{task_id}/log")
async def log(
    task_id: str,
    master: UsesMaster,
    caller: UserCaller,
    where: Filter,
    around: _Id = None,
    at: Annotated[float | None, Query(ge=0, le=_LATEST, description="seconds since 1970")] = None,
    position: _Id = None,
    share: Annotated[float | None, Query(ge=0, le=1)] = None,
    find: Annotated[str, Query(description="next or previous match of searchText, or the first error")] = "",
    start: Annotated[_Id, Query(alias="from", description="the line from which `find` continues")] = None,
    before: Annotated[int, Query(ge=0, le=MOST)] = 200,
    after: Annotated[int, Query(ge=0, le=MOST)] = 200,
    bins: Annotated[int, Query(ge=0, le=MOST_BINS)] = 200,
    onlyMatches: bool = False,
    whole: bool = False,
) -> LogWindow:
    """Return a window of a task's log around a line (`around`), a time (`at`), a position or a share of the lines that
    fit the filter, or what `find` finds; at the log's end without any. `searchText` marks lines; `onlyMatches` leaves
    out all others."""
    if whole and before + after > MOST_WHOLE:
        raise Invalid(f"whole: at most {MOST_WHOLE} lines are read whole; ask for fewer before and after.")
    await master.threads.run(caller, master.trials.task_with_allocations, task_id)
    await master.threads.run(caller, master.log_store.check, master.settings.limits, where)
    place = LogPlace(
        find=_way(find, where.search_text),
        line_id=around if find == "" else start,
        at=None if at is None else dt.datetime.fromtimestamp(at, dt.UTC),
        position=position,
        share=share,
    )

    def look() -> LogExcerpt:
        return master.log_windows.read(
            task_id, where, place, before=before, after=after, bins=bins, only_matches=onlyMatches
        )

    if where.search_text or place.find is not None:
        excerpt = await master.threads.search(caller, look)
    else:
        excerpt = await master.threads.run(caller, look)
    return _shown(excerpt, log_store.MAX_LINE * 2 if whole else LONGEST)


def _way(word: str, search: str) -> Find | None:
    if not word:
        return None
    if word not in (names := [way.value for way in Find]):
        raise Invalid(f"find: {word[:40]!r} is none of {', '.join(names)}.")
    if word != Find.ERROR.value and not search:
        raise Invalid(f"find={word} looks for matches of a search, and there is none: give searchText.")
    return Find(word)


def _shown(excerpt: LogExcerpt, longest: int) -> LogWindow:
    bins = excerpt.bins
    return LogWindow(
        lines=[_line(line, longest) for line in excerpt.lines],
        position=excerpt.position,
        total=excerpt.total,
        newest=excerpt.newest,
        began=None if excerpt.began is None else epoch(excerpt.began),
        focus=excerpt.focus,
        match=excerpt.match,
        matches=excerpt.matches,
        matched=list(excerpt.matched),
        bins=None
        if bins is None
        else LogBins(
            lines=list(bins.lines),
            warnings=list(bins.warnings),
            errors=list(bins.errors),
            matches=None if bins.matches is None else list(bins.matches),
        ),
    )


def _line(line: StoredLine, longest: int) -> WindowLine:
    shown = log_line(line).model_dump()
    return WindowLine(**{**shown, "text": line.log[:longest], "cut": max(0, len(line.log) - longest)})
