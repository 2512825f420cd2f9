"""The answer behind the page of a log."""

from __future__ import annotations

from trainmaster.master.api.schemas.views import LogLine
from trainmaster.master.http.messages import Shape


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
