"""Retention of task logs, in days after the end of the task, -1 for ever. A trial's setting overrides its experiment's,
which overrides the site's; standalone tasks have only the site's."""

from __future__ import annotations

import math

from sqlalchemy import text, update

from trainmaster.master.db.tables import Experiment, Trial
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock

FOREVER = -1
LONGEST = 32767  # days; more than 89 years

_CLEAN_UP = text("""
    WITH gone AS (
        DELETE FROM task_logs USING (
            SELECT tasks.task_id, tasks.end_time,
                   coalesce(trials.log_retention_days,
                            (experiments.config->'retention_policy'->>'log_retention_days')::int, :site) AS days
            FROM trials
            JOIN experiments ON experiments.id = trials.experiment_id
            CROSS JOIN LATERAL jsonb_array_elements_text(trials.earlier_tasks || to_jsonb(trials.task_id)) AS own(id)
            JOIN tasks ON tasks.task_id = own.id
            WHERE tasks.end_time IS NOT NULL
            UNION ALL
            SELECT task_id, end_time, :site FROM standalone_tasks WHERE end_time IS NOT NULL
        ) AS ended
        WHERE task_logs.task_id = ended.task_id AND ended.days >= 0
          AND ended.end_time <= now() - make_interval(days => ended.days)
        RETURNING task_logs.task_id
    )
    SELECT task_id, count(*) AS lines FROM gone GROUP BY task_id
""")


class LogRetention(BoundService):
    """Retention of task logs."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def keep_logs(self, caller: Caller, experiment_id: int, days: int) -> None:
        """Set the retention for existing and future trials. Raises Invalid, NotFound, Forbidden."""
        _check(days)
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = orchestrator.row
            caller.require_owner(f"Experiment {row.id}", row.owner_id)
            row.config = row.config.with_retention(days)
            orchestrator.session.execute(
                update(Trial).where(Trial.experiment_id == experiment_id).values(log_retention_days=days)
            )

    def keep_trial_logs(self, caller: Caller, trial_id: int, days: int) -> None:
        _check(days)
        with self._store.transaction() as session:
            trial = session.get(Trial, trial_id, with_for_update=True)
            if trial is None:
                raise NotFound(f"There is no trial {trial_id}.")
            caller.require_owner(f"Trial {trial_id}", session.get_one(Experiment, trial.experiment_id).owner_id)
            trial.log_retention_days = days

    def remaining_days(self, trial_id: int) -> int:
        """Days until a trial's logs are removed, -1 for never."""
        with self._store.transaction() as session:
            trial = session.get(Trial, trial_id)
            if trial is None:
                raise NotFound(f"There is no trial {trial_id}.")
            config = session.get_one(Experiment, trial.experiment_id).config
        days = trial.log_retention_days
        if days is None:
            days = config.log_retention_days
        if days is None:
            days = self._settings.log_retention_days
        if days is None or days < 0:
            return FOREVER
        passed = (now() - trial.end_time).total_seconds() / 86400 if trial.end_time else 0.0
        return max(math.ceil(days - passed), 0)

    def clean_up(self) -> int:
        """Remove expired logs. Returns the number of lines."""
        site = FOREVER if self._settings.log_retention_days is None else self._settings.log_retention_days
        with self._store.transaction() as session:
            gone = {row.task_id: int(row.lines) for row in session.execute(_CLEAN_UP, {"site": site})}
            log_blocks.sweep(session, list(gone))
            return sum(gone.values())


def _check(days: int) -> None:
    if not FOREVER <= days <= LONGEST:
        raise Invalid(f"Logs are kept for 0 to {LONGEST} days, or for ever with -1; {days} is neither.")
