"""Calls that read what trials have reported: metrics, logs, and the decisions about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trainmaster.client.models import LogLine, MetricsReport, StoryEvent, Trial
from trainmaster.client.patience import Notice, Patience, followed
from trainmaster.client.resource import Json, Resource


class TrialRecords(Resource):
    """Calls that read what trials have reported; a part of `Master`.

    Arguments of several calls:
        trial_id: Number of the trial.
    """

    def metrics(self, trial_ids: Sequence[int], group: str = "") -> Iterator[MetricsReport]:
        """Read the metrics that trials have reported, trial by trial in order of steps.

        Args:
            trial_ids: Numbers of the trials.
            group: training, validation, or a name of the training code's own; empty for all groups.

        Returns:
            An iterator over the reports, read as it is used.

        Raises:
            NoSuchThing: One of the trials does not exist.
        """
        if trial_ids:
            query = {"trialIds": list(trial_ids), "group": group or None}
            for message in self._http.lines("/api/v1/trials/metrics/trial_metrics", query=query):
                for raw in message["metrics"]:
                    yield MetricsReport.parse(raw)

    def workloads(self, trial_id: int, *, limit: int = 1000, offset: int = 0, everything: bool = True) -> list[Json]:
        """List the workloads of a trial: training, validations and checkpoints, as Determined's clients show them.

        Args:
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.

        Returns:
            The workloads with the API's fields.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return self._pages(f"/api/v1/trials/{trial_id}/workloads", "workloads", {}, limit, offset, everything)

    def logs(
        self,
        trial_id: int,
        *,
        follow: bool = False,
        tail: int = 0,
        head: int = 0,
        notice: Notice | None = None,
        patience: float | None = None,
        **where: Any,
    ) -> Iterator[LogLine]:
        """Read the log of a trial, in order of arrival.

        Args:
            follow: Continue until the trial has ended and everything is read, also through restarts of the master.
            tail: Only this many lines at the end, followed by new ones with `follow`; 0 for all.
            head: Only this many lines at the start, unless `follow` or `tail` is set; 0 for all.
            notice: Called with a sentence when the master is away for a while and when it is back; None logs a
                warning.
            patience: Seconds to keep trying with `follow` while the master does not answer; None: DET_PATIENCE, else
                600.
            where: Filters, named as in the API: levels, rankIds, searchText ...

        Returns:
            An iterator over the lines.

        Raises:
            NoSuchThing: There is no such trial.
        """
        path = f"/api/v1/trials/{trial_id}/logs"
        waiting = Patience(patience if follow else 0.0, notice)
        last = 0
        if tail:
            query = {"limit": tail, "orderBy": "ORDER_BY_DESC", **where}
            newest = waiting.ask(lambda: list(map(LogLine.parse, self._http.lines(path, query=query))))
            for line in reversed(newest):
                last = line.number
                yield line
        if not follow:
            if not tail:
                for raw in self._http.lines(path, query={"limit": head or None, **where}):
                    yield LogLine.parse(raw)
            return

        def read(after: int, more: bool) -> Iterator[LogLine]:
            query = {"follow": more, "afterId": after or None, **where}
            return map(LogLine.parse, self._http.lines(path, query=query))

        yield from followed(read, lambda line: line.number, lambda: self._has_ended(trial_id), last, waiting)

    def _has_ended(self, trial_id: int) -> bool:
        return Trial.parse(self._get(f"trials/{trial_id}")["trial"]).ended_for_good

    def story(self, trial_id: int) -> list[StoryEvent]:
        """Get the story of a trial: its events and decisions.

        Returns:
            The events, oldest first.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return [
            StoryEvent.parse(raw) for raw in self._http.request("GET", f"/api/x1/trials/{trial_id}/story")["events"]
        ]
