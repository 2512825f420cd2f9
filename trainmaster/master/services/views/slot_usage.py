"""Reports of slot usage: by attempt, and by day or month. A slot counts from the lease of its job to the attempt's end,
or until now."""

from __future__ import annotations

import calendar
import datetime as dt
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import case, func, or_, select
from sqlalchemy.dialects.postgresql import JSONB

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation, Experiment, Project, Trial, User, Workspace
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid
from trainmaster.master.values.configs import JobConfig

LONGEST = 3660  # days that one report may span


@dataclass(frozen=True)
class Use:
    """One attempt, cut to the requested time."""

    allocation_id: str
    task_id: str
    kind: str  # TRIAL, or the type of the standalone task
    experiment_id: int | None
    workspace_id: int
    workspace: str
    user_id: int
    username: str
    labels: list[str]
    pool: str
    slots: int
    start: dt.datetime
    end: dt.datetime
    running: bool

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


class SlotUsage(BoundService):
    """Reports of slot usage."""

    def between(self, after: dt.datetime, before: dt.datetime) -> Iterator[Use]:
        """Yield the attempts that held slots in that time, in order of start. Raises Invalid."""
        if before <= after:
            raise Invalid("The end of the time must lie after its beginning.")
        a = Allocation
        query = (
            select(
                a,
                func.coalesce(Standalone.kind, "TRIAL"),
                Experiment.id,
                Experiment.labels,
                func.coalesce(a.workspace_id, Workspace.id),
                func.coalesce(a.workspace_name, Workspace.name),
                User.id,
                User.username,
            )
            .outerjoin(Trial, Trial.id == a.trial_id)
            .outerjoin(Experiment, Experiment.id == Trial.experiment_id)
            .outerjoin(Project, Project.id == Experiment.project_id)
            .outerjoin(Standalone, Standalone.task_id == a.task_id)
            .join(Workspace, Workspace.id == func.coalesce(Project.workspace_id, Standalone.workspace_id))
            .join(User, User.id == a.owner_id)
            .where(a.leased_at < before, or_(a.ended_at.is_(None), a.ended_at > after))
            .order_by(a.leased_at, a.id)
        )
        latest = min(before, now())
        with self._store.transaction() as session:
            rows = session.execute(query).all()
        for row, kind, number, labels, workspace_id, workspace, user_id, username in rows:
            assert row.leased_at is not None
            end = min(row.ended_at or latest, before)
            yield Use(
                *(row.id, row.task_id, kind, number, workspace_id, workspace, user_id, username, list(labels or ())),
                *(row.pool, row.slots, max(row.leased_at, after), end, row.ended_at is None),
            )

    def aggregated(self, first: dt.date, last: dt.date, *, monthly: bool) -> list[Sum]:
        """Every day (or whole month) from `first` to `last`, both included, in UTC."""
        if last < first:
            raise Invalid("The last day must not lie before the first.")
        if (last - first).days > LONGEST:
            raise Invalid(f"A report spans {LONGEST} days at most.")
        if monthly:
            first = first.replace(day=1)
            last = last.replace(day=calendar.monthrange(last.year, last.month)[1])
        sums = {start: Sum(start) for start in _starts(first, last, monthly)}
        for use in self.between(_midnight(first), _midnight(last + dt.timedelta(days=1))):
            for start, seconds in _shares(use, monthly):
                one, amount = sums[start], seconds * use.slots
                one.seconds += amount
                one.by_user[use.username] += amount
                one.by_pool[use.pool] += amount
                for label in use.labels:
                    one.by_label[label] += amount
        return list(sums.values())

    def queue_stats(self) -> dict[str, list[tuple[dt.date, float]]]:
        """By pool: for each of the last 30 days, how long its attempts waited on average, in seconds."""
        a = Allocation
        day = func.date_trunc("day", a.leased_at, "UTC")
        waited = func.avg(func.extract("epoch", a.leased_at - a.created_at))
        query = select(a.pool, day, waited).where(a.leased_at > now() - dt.timedelta(days=30)).group_by(a.pool, day)
        waits: dict[str, list[tuple[dt.date, float]]] = defaultdict(list)
        with self._store.autocommit() as session:
            for pool, start, seconds in session.execute(query.order_by(a.pool, day)):
                waits[pool].append((start.date(), float(seconds)))
        return waits

    def live_attempts(self, workspaces: frozenset[int] | None) -> list[tuple[Allocation, str, Any, Any]]:
        """List the attempts that have not ended, with a name, and with the priority and the ports of their experiment
        or task; of these workspaces, or of all. Scripts search the names of trials for their experiment's number."""
        trial = func.format("Trial %s (Experiment %s)", Trial.id, Trial.experiment_id)
        name = case((Trial.id.is_not(None), trial), else_=Standalone.description)
        config = func.coalesce(Experiment.config, Standalone.config, type_=JSONB)
        query = (
            select(
                Allocation,
                name,
                config[JobConfig.RESOURCES][JobConfig.PRIORITY],
                config[JobConfig.ENVIRONMENT][JobConfig.PROXY_PORTS],
            )
            .outerjoin(Trial, Trial.id == Allocation.trial_id)
            .outerjoin(Experiment, Experiment.id == Trial.experiment_id)
            .outerjoin(Project, Project.id == Experiment.project_id)
            .outerjoin(Standalone, Standalone.task_id == Allocation.task_id)
            .where(Allocation.ended_at.is_(None))
            .order_by(Allocation.created_at)
        )
        if workspaces is not None:
            query = query.where(func.coalesce(Project.workspace_id, Standalone.workspace_id).in_(workspaces))
        with self._store.autocommit() as session:
            return list(session.execute(query))


@dataclass
class Sum:
    """Slot-seconds of one day or month, in total, by user, by label and by pool."""

    start: dt.date
    seconds: float = 0.0
    by_user: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_label: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_pool: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def _starts(first: dt.date, last: dt.date, monthly: bool) -> Iterator[dt.date]:
    day = first
    while day <= last:
        yield day
        day = _next(day, monthly)


def _next(day: dt.date, monthly: bool) -> dt.date:
    return (day.replace(day=1) + dt.timedelta(days=32)).replace(day=1) if monthly else day + dt.timedelta(days=1)


def _shares(use: Use, monthly: bool) -> Iterator[tuple[dt.date, float]]:
    """Yield the seconds of an attempt in each day or month."""
    at = use.start.astimezone(dt.UTC)
    end = use.end.astimezone(dt.UTC)
    while at < end:
        start = at.date().replace(day=1) if monthly else at.date()
        until = min(end, _midnight(_next(start, monthly)))
        yield start, (until - at).total_seconds()
        at = until


def _midnight(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(), dt.UTC)
