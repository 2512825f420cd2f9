"""Trials that programs outside of the master run (`searcher.ask_tell`): they ask for one, and tell what it measured.

The search decides as for jobs, and everything is stored as for jobs. A program that tells nothing for too long loses
its trials to the next one that asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

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
from trainmaster.master.services.orchestration.experiment_lock import locked_experiment_in
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


_Call = tuple[Sequence[Told], int]
"""Reports, and how many trials are asked for."""
_Answer = tuple[Sequence[str], Asked | None]


class AskedTrials(BoundService):
    """Trials of searches that are asked."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._calls: Combiner[_Call, _Answer] = Combiner(self._take)

    def ask(self, experiment_id: int, count: int) -> Asked:
        """Take up to `count` trials that nobody runs. Raises NotFound, Invalid."""
        _, asked = self._calls.call(experiment_id, ((), count))
        assert asked is not None
        return asked

    def tell(self, experiment_id: int, told: Sequence[Told]) -> Sequence[str]:
        """Take in reports, all or none, in order. Returns for each what its trial is to do: `continue`, `pause` (save;
        somebody will ask for it again) or `stop`. A report that was told before changes nothing. Raises NotFound,
        Invalid."""
        for place, each in enumerate(told):
            self._check_told(f"reports[{place}]", each)
        decisions, _ = self._calls.call(experiment_id, (told, 0))
        return decisions

    def _check_told(self, where: str, each: Told) -> None:
        if each.end is not None and each.end not in (*_ENDS, INVALID):
            raise Invalid(f"{where}.end is {each.end!r:.60}; it is one of {', '.join((*_ENDS, INVALID))}.")
        if each.metrics is not None:
            bounds.check_record(self._settings.limits, dict(each.metrics))
            metrics.check(self._settings.limits, _report(each))

    def _take(self, experiment_id: int, calls: Sequence[_Call]) -> list[_Answer]:
        """Take in several calls in one transaction: what they tell first, for it makes trials that others ask for."""
        wanted = sorted({each.trial_id for told, _ in calls for each in told})
        with self._store.transaction() as session:
            with locked_experiment_in(session, self._settings, experiment_id) as orchestrator:
                _check(orchestrator)
                query = select(Trial).where(Trial.experiment_id == experiment_id, Trial.id.in_(wanted))
                found = {trial.id: trial for trial in session.scalars(query.order_by(Trial.id).with_for_update())}
                if missing := [number for number in wanted if number not in found]:
                    raise NotFound(f"Experiment {experiment_id} has no trial {missing[0]}.")
                orchestrator.know(found.values())
                with session.no_autoflush:  # all changes are written together, by `settle`
                    for told, _ in calls:
                        for each in told:
                            _tell(orchestrator, found[each.trial_id], each)
            row = orchestrator.row
            over = row.end_time is not None or State(row.state).stopping or row.shutdown is not None
            free = deque(_free(session, experiment_id, sum(count for _, count in calls)))
            answers: list[_Answer] = []
            for told, count in calls:
                given = [free.popleft() for _ in range(min(count, len(free)))]
                asked = Asked(over, [_offered(trial) for trial in given]) if count else None
                answers.append(([_decision(found[each.trial_id]) for each in told], asked))
            return answers


def _free(session: Session, experiment_id: int, count: int) -> list[Trial]:
    """Return trials that nobody runs, as somebody's from now on."""
    if not count:
        return []
    free = (Trial.experiment_id == experiment_id, Trial.end_time.is_(None), Trial.heartbeat_at.is_(None))
    runs = (Trial.state == State.ACTIVE.value, Trial.search_pause != PAUSED)
    found = list(session.scalars(select(Trial).where(*free, *runs).order_by(Trial.id).limit(count).with_for_update()))
    for trial in found:
        trial.heartbeat_at = now()
    return found


def _offered(trial: Trial) -> OfferedTrial:
    return OfferedTrial(trial.id, trial.hparams, trial.seed, trial.total_batches, trial.parent_id)


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
