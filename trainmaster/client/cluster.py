"""The master as a whole: its configuration and log, its live tasks, and the usage of slots."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainmaster.client.errors import MasterUnreachable
from trainmaster.client.patience import Notice, Patience, followed
from trainmaster.client.resource import Json, Resource, word

if TYPE_CHECKING:
    from trainmaster.client import wire

PAUSE = 0.5  # seconds before a log is asked for that the master has ended


class ClusterView(Resource):
    """The master as a whole. Most calls are for administrators where roles are not used."""

    def config(self) -> Json:
        """Get the master's configuration.

        Returns:
            The configuration, without secrets.

        Raises:
            NotAllowed: The caller may not see it.
        """
        return dict(self._get("master/config")["config"])

    def set_log_level(self, level: str) -> None:
        """Set the level of the master's log, until it is restarted.

        Args:
            level: TRACE, DEBUG, INFO, WARNING, ERROR or CRITICAL.

        Raises:
            NotAllowed: The caller may not change it.
        """
        body = {"config": {"log": {"level": f"LOG_LEVEL_{level}"}}, "fieldMask": {"paths": ["log.level"]}}
        self._patch("master/config", body)

    def master_log(self, *, offset: int = 0, follow: bool = False, notice: Notice | None = None) -> Iterator[Json]:
        """Read the master's log.

        Args:
            offset: Lines to skip; a negative number counts from the end.
            follow: Continue with new lines, without end. A master that was started again begins its log again.
            notice: As in `Master.logs`.

        Returns:
            An iterator over the lines.

        Raises:
            NotAllowed: The caller may not see it.
        """
        waiting = Patience(None if follow else 0.0, notice)
        last, until = -1, ""
        while True:
            try:
                for line in self._http.lines("/api/v1/master/logs", query={"offset": offset, "follow": follow}):
                    waiting.back()
                    entry = line["logEntry"]
                    number, at = int(entry["id"]), str(entry["timestamp"]).rstrip("Z")
                    if number > last or at > until:  # a master that was started again counts from 0 again
                        last, until = number, max(at, until)
                        yield entry
            except MasterUnreachable as error:
                waiting.away(error)
            else:
                if not follow:
                    return
                time.sleep(PAUSE)  # it was stopped in an orderly way
            offset = offset if last < 0 else 0

    def tasks(self) -> list[Json]:
        """List the attempts that have not ended.

        Returns:
            The attempts, oldest first.
        """
        tasks: dict[str, Json] = self._get("tasks")["allocationIdToSummary"]
        return sorted(tasks.values(), key=lambda task: str(task["registeredTime"]))

    def task_log(
        self,
        task_id: str,
        *,
        follow: bool = False,
        head: int = 0,
        tail: int = 0,
        notice: Notice | None = None,
        patience: float | None = None,
        **where: Any,
    ) -> Iterator[Json]:
        """Read the log of a task.

        Args:
            task_id: Id of the task.
            follow: Continue until the task has ended and everything is read, also through restarts of the master.
            head: Only this many lines at the start, unless `follow` or `tail` is set; 0 for all.
            tail: Only this many lines at the end, followed by new ones with `follow`; 0 for all.
            notice: As in `Master.logs`.
            patience: As in `Master.logs`.
            where: Filters, named as in the API: levels, rankIds, searchText ...

        Returns:
            An iterator over the lines.

        Raises:
            NoSuchThing: There is no such task.
        """
        path = f"/api/v1/tasks/{word(task_id)}/logs"
        waiting = Patience(patience if follow else 0.0, notice)
        last = 0
        if tail:
            query = {"limit": tail, "orderBy": "ORDER_BY_DESC", **where}
            for line in reversed(waiting.ask(lambda: list(self._http.lines(path, query=query)))):
                last = int(line["id"])
                yield line
        if not follow:
            if not tail:
                yield from self._http.lines(path, query={"limit": head or None, **where})
            return

        def read(after: int, more: bool) -> Iterator[Json]:
            return self._http.lines(path, query={"follow": more, "afterId": after or None, **where})

        def has_ended() -> bool:
            return bool(self._get(f"tasks/{word(task_id)}")["task"].get("endTime"))

        yield from followed(read, lambda line: int(line["id"]), has_ended, last, waiting)

    def log_window(
        self,
        task_id: str,
        *,
        around: int | None = None,
        at: float | None = None,
        share: float | None = None,
        find: str = "",
        start: int | None = None,
        before: int = 200,
        after: int = 200,
        bins: int = 0,
        **where: Any,
    ) -> wire.LogWindow:
        """Read a few lines of a task's log, wherever they are in it; its last lines without a place. A log of a
        million lines takes no longer than a short one.

        Args:
            task_id: Id of the task; of a trial, `Trial.task_id`.
            around: Id of a line.
            at: A time in seconds since 1970: of the first line that is not older.
            share: How far into the log, from 0 to 1.
            find: `next` or `previous` match of `searchText`, or `error` for the first error or traceback.
            start: Id of the line from which `find` continues; None for the beginning, or the end.
            before: Lines before that place, at most 1000.
            after: Lines from that place on, at most 1000.
            bins: Parts of the log in which lines, warnings, errors and matches are counted, at most 400; 0 counts
                nothing, matches neither.
            where: Filters, named as in the API: levels, rankIds, searchText, enableRegex, onlyMatches ...

        Returns:
            The lines, the position of the first one, the number of all, and the counts.

        Raises:
            NoSuchThing: There is no such task.
            APIError: The master refuses the call, as for a search that cannot be read.
        """
        place = {"around": around, "at": at, "share": share, "find": find or None, "from": start}
        query = {**place, "before": before, "after": after, "bins": bins, **where}
        answer: Any = self._http.request("GET", f"/api/x1/tasks/{word(task_id)}/log", query=query)
        window: wire.LogWindow = answer
        return window

    def usage(self, after: str, before: str) -> list[Json]:
        """List what held slots in a period.

        Args:
            after: Start of the period, RFC 3339.
            before: End of the period, RFC 3339.

        Returns:
            An entry for each attempt.

        Raises:
            NotAllowed: The caller may not see it.
        """
        return list(
            self._get("resources/allocation/raw", timestampAfter=after, timestampBefore=before)["resourceEntries"]
        )

    def usage_by_time(self, first: str, last: str, *, monthly: bool = False) -> list[Json]:
        """Sum the slot-seconds of a period.

        Args:
            first: First day, YYYY-MM-DD, included.
            last: Last day, included.
            monthly: Sum by whole months, from that of `first` to that of `last`.

        Returns:
            An entry for each day or month.

        Raises:
            NotAllowed: The caller may not see it.
        """
        period = f"RESOURCE_ALLOCATION_AGGREGATION_PERIOD_{'MONTHLY' if monthly else 'DAILY'}"
        answer = self._get("resources/allocation/aggregated", startDate=first, endDate=last, period=period)
        return list(answer["resourceEntries"])
