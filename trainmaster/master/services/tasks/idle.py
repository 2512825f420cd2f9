"""Ends idle notebooks and TensorBoards, judged by use through the proxy and by what notebooks report."""

from __future__ import annotations

import datetime as dt
import time

from sqlalchemy import func, or_, select, text, update

from trainmaster.master.db.standalone import Standalone
from trainmaster.master.db.tables import Allocation
from trainmaster.master.lifecycle.standalone import Kill
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.orchestration.task_orchestrator import NOTEBOOK, locked_task
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import wake

GRAIN = 5.0  # seconds: use is stored no more often than this
MOST_NOTED = 10_000  # tasks


class IdleTasks(BoundService):
    """The use of notebooks and TensorBoards, and the end of idle ones."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._noted: dict[str, float] = {}  # when use of a task was last stored, on the monotonic clock

    def note(self, task_id: str, *, idle: bool) -> None:
        """Store a notebook's report of whether it is active."""
        values = {"idle": idle} if idle else {"idle": idle, "used_at": now()}
        with self._store.transaction() as session:
            session.execute(update(Standalone).where(Standalone.task_id == task_id).values(**values))
            if idle:
                wake(session, "janitor")

    def used(self, task_id: str) -> None:
        """Note use of a task through the proxy. Stores it at most every GRAIN seconds."""
        at = time.monotonic()
        if at - self._noted.get(task_id, -GRAIN) < GRAIN:
            return
        if len(self._noted) > MOST_NOTED:
            self._noted.clear()
        self._noted[task_id] = at
        stale = or_(Standalone.used_at.is_(None), Standalone.used_at < now() - dt.timedelta(seconds=GRAIN))
        with self._store.transaction() as session:
            session.execute(update(Standalone).where(Standalone.task_id == task_id, stale).values(used_at=now()))

    def end_unused(self, retries: Retries) -> None:
        """End tasks that were idle for their time limit, counted from when they were ready at the earliest."""
        since = func.greatest(Standalone.used_at, Allocation.leased_at)
        query = (
            select(Standalone.task_id, Standalone.idle_timeout)
            .join(Allocation, Allocation.task_id == Standalone.task_id)
            .where(
                Standalone.end_time.is_(None),
                Standalone.idle_timeout.is_not(None),
                or_(Standalone.kind != NOTEBOOK, Standalone.idle.is_(True)),
                Allocation.ended_at.is_(None),
                Allocation.kill_at.is_(None),
                Allocation.ready.is_(True),
                since + Standalone.idle_timeout * text("interval '1 second'") < func.now(),
            )
        )
        with self._store.autocommit() as session:
            idle_seconds = {task_id: seconds or 0 for task_id, seconds in session.execute(query)}

        def end(task_id: str) -> None:
            with self._store.transaction() as session, locked_task(session, self._settings, task_id) as orchestrator:
                orchestrator.event(Kill(f"nobody has used it for {idle_seconds[task_id]:.0f} s"))

        retries.each("the end of an unused task,", idle_seconds, end)
