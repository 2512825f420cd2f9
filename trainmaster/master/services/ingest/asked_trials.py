"""Trials that programs outside of the master run (`searcher.ask_tell`): they ask for one, and tell what it measured.

The search decides as for jobs, and everything is stored as for jobs. A program that tells nothing for too long loses
its trials to the next one that asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from trainmaster.master.db.tables import Trial
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.states import OutcomeKind, State
from trainmaster.master.services import bounds
from trainmaster.master.services.clock import now
from trainmaster.master.services.combining import Combiner
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.ingest import metrics, records
from trainmaster.master.services.metrics.metric_reports import MetricReport
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock, locked_experiment_in
from trainmaster.master.services.orchestration.experiment_orchestrator import PAUSED, ExperimentOrchestrator

CONTINUE, PAUSE, STOP = "continue", "pause", "stop"
MOST_ASKED, MOST_TOLD = 100, 1_000  # trials, reports of one call
_ENDS = {
    "completed": (OutcomeKind.COMPLETED, "its program told that it is done"),
    "failed": (OutcomeKind.FAILED, "its program told that it failed"),
    "out_of_memory": (OutcomeKind.OUT_OF_MEMORY, "its program told that it ran out of memory"),
}
INVALID = "invalid"  # its hyperparameters are


@dataclass(frozen=True)
class OfferedTrial:
    """`steps`: of its last report; 0 for a trial that has not begun. `parent`: the trial whose checkpoint it begins
    with."""

    id: int
    hparams: Mapping[str, Any]
    seed: int
    steps: int
    parent: int | None


@dataclass(frozen=True)
class Asked:
    """`over`: the search needs nobody any more."""

    over: bool
    trials: Sequence[OfferedTrial]


@dataclass(frozen=True)
class Told:
    """What a program tells of a trial: metrics of a validation at `steps`, or that it has ended (`completed`, `failed`,
    `out_of_memory`, `invalid`: its hyperparameters are), or neither: that it is alive."""

    trial_id: int
    steps: int = 0
    metrics: Mapping[str, Any] | None = None
    end: str | None = None


class AskedTrials(BoundService):
    """Trials of searches that are asked."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)
        self._told: Combiner[Sequence[Told], Sequence[str]] = Combiner(self._take)

    def ask(self, experiment_id: int, count: int) -> Asked:
        """Take up to `count` trials that nobody runs. Raises NotFound, Invalid."""
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            _check(orchestrator)
            row = orchestrator.row
            free = (Trial.experiment_id == row.id, Trial.end_time.is_(None), Trial.heartbeat_at.is_(None))
            runs = (Trial.state == State.ACTIVE.value, Trial.search_pause != PAUSED)
            query = select(Trial).where(*free, *runs).order_by(Trial.id).limit(count).with_for_update()
            found = list(orchestrator.session.scalars(query))
            for trial in found:
                trial.heartbeat_at = now()
            over = row.end_time is not None or State(row.state).stopping or orchestrator.search.over
            given = [OfferedTrial(it.id, it.hparams, it.seed, it.total_batches, it.parent_id) for it in found]
            return Asked(over, given)

    def tell(self, experiment_id: int, told: Sequence[Told]) -> Sequence[str]:
        """Take in reports, all or none, in order. Returns for each what its trial is to do: `continue`, `pause` (save;
        somebody will ask for it again) or `stop`. A report that was told before changes nothing. Raises NotFound,
        Invalid."""
        for place, each in enumerate(told):
            self._check_told(f"reports[{place}]", each)
        return self._told.call(experiment_id, told)

    def _check_told(self, where: str, each: Told) -> None:
        if each.end is not None and each.end not in (*_ENDS, INVALID):
            raise Invalid(f"{where}.end is {each.end!r:.60}; it is one of {', '.join((*_ENDS, INVALID))}.")
        if each.metrics is not None:
            bounds.check_record(self._settings.limits, dict(each.metrics))
            metrics.check(self._settings.limits, _report(each))

    def _take(self, experiment_id: int, calls: Sequence[Sequence[Told]]) -> list[list[str]]:
        """Take in several calls in one transaction."""
        wanted = sorted({each.trial_id for call in calls for each in call})
        with self._store.transaction() as session:
            with locked_experiment_in(session, self._settings, experiment_id) as orchestrator:
                _check(orchestrator)
                query = select(Trial).where(Trial.experiment_id == experiment_id, Trial.id.in_(wanted))
                found = {trial.id: trial for trial in session.scalars(query.order_by(Trial.id).with_for_update())}
                for call in calls:
                    for each in call:
                        if each.trial_id not in found:
                            raise NotFound(f"Experiment {experiment_id} has no trial {each.trial_id}.")
                        _tell(orchestrator, found[each.trial_id], each)
            return [[_decision(found[each.trial_id]) for each in call] for call in calls]


def _check(orchestrator: ExperimentOrchestrator) -> None:
    if not orchestrator.row.config.searcher.ask_tell:
        raise Invalid(
            f"Experiment {orchestrator.row.id} runs its trials as jobs: set searcher.ask_tell to run them yourself."
        )


def _report(told: Told) -> MetricReport:
    return MetricReport("validation", told.steps, records.finite(dict(told.metrics or {})), None, now())


def _tell(orchestrator: ExperimentOrchestrator, trial: Trial, told: Told) -> None:
    if trial.end_time is not None:
        return
    trial.heartbeat_at = now()
    if told.metrics is not None and trial.search_pause != PAUSED:
        records.store_reports(orchestrator, trial, max(trial.attempts, 1), [_report(told)])
    if told.end == INVALID:
        orchestrator.trial_event(trial, trials.Stop(trials.StopCause.INVALID_HP, "its program rejected the point"))
    elif told.end is not None:
        outcome, text = _ENDS[told.end]
        memory = outcome is OutcomeKind.OUT_OF_MEMORY
        orchestrator.trial_event(trial, trials.AllocationEnded(outcome, text, out_of_memory=memory))


def _decision(trial: Trial) -> str:
    if trial.end_time is not None or State(trial.state).stopping:
        return STOP
    return CONTINUE if trial.state == State.ACTIVE.value and trial.search_pause != PAUSED else PAUSE
