"""`points`: the points of a list, in its order, each trained to its end. For tools that bring their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from trainmaster.config.searcher import ManyTrials
from trainmaster.master.search.actions import ExitReason, SearchError
from trainmaster.master.search.hyperparameters import constants, overlaid, variables
from trainmaster.master.search.method import ActionQueue, Method, Preview, counts, given


class Points(Method):
    """One trial a point, at most `max_concurrent` at a time (0: all at once). A point that the trial's code rejects is
    not replaced."""

    def __init__(self, points: Sequence[Mapping[str, Any]], max_concurrent: int) -> None:
        self._points = points
        self.max_concurrent = min(max_concurrent or len(points), len(points))
        self._created = 0
        self._running = 0

    def begin(self, orders: ActionQueue) -> None:
        for _ in range(self.max_concurrent):
            self._create(orders)

    def ended(self, _trial: int, _reason: ExitReason | None, orders: ActionQueue) -> None:
        self._running -= 1
        if self._created < len(self._points):
            self._create(orders)

    def _create(self, orders: ActionQueue) -> None:
        self._created += 1
        self._running += 1
        point = copy.deepcopy(dict(self._points[self._created - 1]))
        orders.create(f"point {self._created} of {len(self._points)} in searcher.points", point)

    def progress(self, running: Mapping[int, float], _ended: int) -> float:
        return (self._created - self._running + sum(running.values())) / len(self._points)

    def describe(self) -> str:
        return counts(self._running, self._created - self._running, len(self._points))

    def state(self) -> dict[str, Any]:
        return {"created": self._created, "running": self._running}

    def load(self, state: Mapping[str, Any]) -> None:
        self._created = int(state["created"])
        self._running = int(state["running"])


class PointsSearcher(ManyTrials):
    """The section of `points`."""

    contract_version: ClassVar[int] = 2
    refused: ClassVar[Mapping[str, str]] = {
        "first_points": "write these points at the beginning of searcher.points",
        "forbidden": "leave these points out of searcher.points",
    }
    required: ClassVar[Mapping[str, str]] = {"points": "a list of points, each a mapping of hyperparameters"}

    name: Literal["points"]
    points: list[dict[str, Any]] | None = None

    def method(self, hparams: Mapping[str, Any]) -> Method:
        return Points(self._whole(hparams), self.max_concurrent_trials)

    def preview(self, hparams: Mapping[str, Any]) -> Preview:
        return [(len(self._whole(hparams)), None)]

    def _whole(self, hparams: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Each point with the constants of the `hyperparameters` section. Raises SearchError."""
        points = given(self.points, "points")
        if not points:
            raise SearchError("searcher.points is empty: give at least one point")
        fixed, open_ = constants(hparams), variables(hparams)
        for number, point in enumerate(points):
            missing = [name for name in open_ if name not in point]
            if missing:
                raise SearchError(
                    f"searcher.points[{number}] gives no value to {', '.join(missing)}: each point gives one to every "
                    "hyperparameter that is not constant"
                )
        return [overlaid(fixed, point) for point in points]
