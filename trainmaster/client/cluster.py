"""The master as a whole: its configuration and log, its live tasks, what its slots were used for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainmaster.client.resource import Json, Resource, word


class ClusterView(Resource):
    """Most of it is for administrators, where roles are not used."""

    def config(self) -> Json:
        return dict(self._get("master/config")["config"])

    def set_log_level(self, level: str) -> None:
        """Until the master is started again."""
        body = {"config": {"log": {"level": f"LOG_LEVEL_{level}"}}, "fieldMask": {"paths": ["log.level"]}}
        self._patch("master/config", body)

    def master_log(self, *, offset: int = 0, follow: bool = False) -> Iterator[Json]:
        """A negative offset counts from the end."""
        for line in self._http.lines("/api/v1/master/logs", query={"offset": offset, "follow": follow}):
            yield line["logEntry"]

    def tasks(self) -> list[Json]:
        """Attempts that have not ended, the oldest first."""
        found: dict[str, Json] = self._get("tasks")["allocationIdToSummary"]
        return sorted(found.values(), key=lambda task: str(task["registeredTime"]))

    def task_log(
        self, task_id: str, *, follow: bool = False, head: int = 0, tail: int = 0, **where: Any
    ) -> Iterator[Json]:
        path = f"/api/v1/tasks/{word(task_id)}/logs"
        last = 0
        if tail:
            newest = self._http.lines(path, query={"limit": tail, "orderBy": "ORDER_BY_DESC", **where})
            for line in reversed(list(newest)):
                last = int(line["id"])
                yield line
            if not follow:
                return
        yield from self._http.lines(
            path, query={"limit": head or None, "follow": follow, "afterId": last or None, **where}
        )

    def usage(self, after: str, before: str) -> list[Json]:
        """What held slots between two RFC 3339 times, an entry an attempt."""
        return list(
            self._get("resources/allocation/raw", timestampAfter=after, timestampBefore=before)["resourceEntries"]
        )

    def usage_by_time(self, first: str, last: str, *, monthly: bool = False) -> list[Json]:
        """Slot-seconds by day, or by month; both days included."""
        period = f"RESOURCE_ALLOCATION_AGGREGATION_PERIOD_{'MONTHLY' if monthly else 'DAILY'}"
        answer = self._get("resources/allocation/aggregated", startDate=first, endDate=last, period=period)
        return list(answer["resourceEntries"])
