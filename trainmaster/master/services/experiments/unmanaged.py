"""Unmanaged experiments and trials: they run outside of this master and only report to it.

They have the same life cycle as managed ones, without a search and without allocations: their own report, or their
silence, ends them. A heartbeat revives a trial that had been given up for its silence.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from trainmaster.config.experiment import parse_experiment
from trainmaster.config.messages import ConfigError
from trainmaster.config.names import only_dots
from trainmaster.master.db.tables import Checkpoint, Experiment, Job, Project, Task, Trial
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.states import OutcomeKind, State
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.experiments.creation import ExperimentRequest, project_for, refusal
from trainmaster.master.services.files import archives
from trainmaster.master.services.files.context_archive import pack
from trainmaster.master.services.orchestration.experiment_lock import ExperimentLock
from trainmaster.master.services.orchestration.experiment_orchestrator import ExperimentOrchestrator
from trainmaster.master.services.retries import Retries
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.search import SearchResult

ENTRYPOINT = "unmanaged"  # the placeholder for a configuration's entrypoint
SILENT = "no heartbeat came for"  # in the reason of a trial that was given up for its silence
LOCK_CLASS = 7303
RUNNING = ("ACTIVE", "RUNNING", "STARTING", "PULLING", "QUEUED")
_ENDS = {
    "COMPLETED": (OutcomeKind.COMPLETED, "its program reported that it is done"),
    "ERROR": (OutcomeKind.REJECTED, "its program reported that it failed"),
}


class UnmanagedTrainings(BoundService):
    """Experiments and trials that run outside of this master."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._experiment_lock = ExperimentLock(master)

    def create_experiment(
        self, caller: Caller, request: ExperimentRequest, external_id: str | None = None
    ) -> tuple[int, bool]:
        """Return the experiment's id, and whether it is new. With `external_id` the existing one, if the caller may
        change it. Code that is sent along is kept, to show what ran.

        Raises Invalid with everything that is wrong with the configuration or the code, TooLarge, Forbidden."""
        site = [{"entrypoint": ENTRYPOINT}, *self._defaults.of_pool("")]
        try:
            config = parse_experiment(request.text, source=request.source, defaults=site)
        except ConfigError as error:
            raise refusal(error) from None
        shown = StoredConfig.of(config)
        if external_id is not None and only_dots(external_id):
            raise Invalid(f"{external_id!r} cannot be the external id of an experiment: {only_dots(external_id)}.")
        archive = pack(request.files, self._settings.limits.context * 2**20)
        with self._store.transaction() as session:
            if external_id is not None:
                _alone(session, external_id)
                known = session.scalar(select(Experiment).where(Experiment.external_id == external_id))
                if known is not None:
                    _check(session, caller, known)
                    return known.id, False
            project = project_for(session, caller, config, request.project_id)
            job = Job(job_id=uuid.uuid4(), job_type="EXPERIMENT", owner_id=caller.user_id)
            session.add(job)
            session.flush()
            row = Experiment(
                job_id=job.job_id,
                owner_id=caller.user_id,
                project_id=project.id,
                parent_id=request.parent_id,
                state=State.ACTIVE.value,
                name=shown.name or f"unmanaged-{uuid.uuid4().hex[:8]}",
                description=shown.description,
                labels=list(shown.labels),
                config=shown,
                original_config=request.text,
                resource_pool="",
                searcher_type=shown.searcher.name,
                searcher_metric=shown.searcher.metric,
                smaller_is_better=shown.searcher.smaller_is_better,
                seed=shown.seed or 0,
                start_time=now(),
                # There is no search: the experiment is over when its last trial is.
                shutdown={"cancel": False, "failure": False},
                unmanaged=True,
                external_id=external_id,
                context_size=len(archive),
            )
            session.add(row)
            session.flush()
            archives.put(session, row.id, archive)
            return row.id, True

    def create_trial(self, caller: Caller, request: TrialRequest) -> int:
        """Create a trial. Raises NotFound, Forbidden, and Invalid for a managed experiment, whose searcher creates its
        trials."""
        if request.external_id is not None and (why := only_dots(request.external_id)):
            raise Invalid(f"{request.external_id!r} cannot be the external id of a trial: {why}.")
        with self._conducting(caller, request.experiment_id) as orchestrator:
            row, session = orchestrator.row, orchestrator.session
            if request.external_id is not None:
                same = select(Trial.id).where(Trial.experiment_id == row.id, Trial.external_id == request.external_id)
                known = session.scalar(same)
                if known is not None:
                    return known
            _revive_experiment(orchestrator)
            request_id = str(uuid.uuid4())
            task_id = f"{row.id}.{request_id}"
            session.add(Task(task_id=task_id, task_type="TRIAL", job_id=row.job_id))
            session.flush()
            trial = Trial(
                experiment_id=row.id,
                task_id=task_id,
                request_id=request_id,
                state=State.ACTIVE.value,
                hparams=dict(request.hparams),
                seed=0,
                summary_metrics={},
                start_time=now(),
                external_id=request.external_id,
                heartbeat_at=now(),
            )
            session.add(trial)
            row.num_trials += 1
            row.live_trials += 1
            session.flush()
            orchestrator.story("trial", "Created", after=State.ACTIVE, why=f"by {caller.username}", trial_id=trial.id)
            return trial.id

    def start(self, caller: Caller, trial_id: int, *, resume: bool) -> TrialStart:
        """Start a run of a trial, from its latest checkpoint. Raises Conflict when it has run and `resume` is not
        set."""
        with self._conducting_trial(caller, trial_id) as (orchestrator, trial):
            if trial.attempts and not resume:
                raise Conflict(f"Trial {trial_id} has been started before; start it with resume, or make another one.")
            _revive(orchestrator, trial)
            trial.attempts += 1
            trial.heartbeat_at = now()
            latest = orchestrator.session.get(Checkpoint, trial.latest_checkpoint) if trial.latest_checkpoint else None
            return TrialStart(
                trial.attempts, str(latest.uuid) if latest else None, latest.steps_completed if latest else 0
            )

    def say(self, caller: Caller, trial_id: int, state: str | None) -> None:
        """Take in a heartbeat, or a trial's end. Raises Invalid for a state that a trial cannot be set to."""
        if state is not None and state not in (*RUNNING, *_ENDS, "CANCELED"):
            raise Invalid(f"A trial cannot be set to {state}; it runs, or is COMPLETED, CANCELED or ERROR.")
        with self._conducting_trial(caller, trial_id) as (orchestrator, trial):
            trial.heartbeat_at = now()
            if state is None or state in RUNNING:
                if state is not None or SILENT in trial.reason:
                    _revive(orchestrator, trial)
            elif state == "CANCELED":
                orchestrator.trial_event(trial, trials.Stop(trials.StopCause.CANCEL, f"cancelled by {caller.username}"))
            else:
                outcome, text = _ENDS[state]
                _end(orchestrator, trial, outcome, text)

    def give_up_silent(self, retries: Retries) -> None:
        """End unmanaged trials without a heartbeat for too long, and give those free that a program asked for."""
        oldest = now() - dt.timedelta(seconds=self._settings.lost_after)
        query = select(Trial.id, Trial.experiment_id).where(Trial.end_time.is_(None), Trial.heartbeat_at < oldest)
        with self._store.transaction() as session:
            silent = {trial_id: experiment_id for trial_id, experiment_id in session.execute(query)}

        def give_up(trial_id: int) -> None:
            with self._experiment_lock.hold(silent[trial_id]) as orchestrator:
                trial = orchestrator.session.get(Trial, trial_id, with_for_update=True)
                if trial is None or trial.end_time is not None or trial.heartbeat_at is None:
                    return
                if trial.heartbeat_at < oldest and orchestrator.row.config.searcher.ask_tell:
                    silence = f"Its program has told nothing for {self._settings.lost_after:.0f} s"
                    orchestrator.say(trial.task_id, f"{silence}: another one may ask for it.", "WARNING")
                    orchestrator.offer(trial)
                elif trial.heartbeat_at < oldest and orchestrator.row.unmanaged:
                    _end(orchestrator, trial, OutcomeKind.REJECTED, f"{SILENT} {self._settings.lost_after:.0f} s")

        retries.each("the end of the silent trial", silent, give_up)

    def find_trial(self, caller: Caller, experiment: str, trial: str) -> int:
        """Find a trial by its external ids. Raises NotFound, Forbidden."""
        query = select(Trial.id, Project.workspace_id).join(Experiment, Experiment.id == Trial.experiment_id)
        query = query.join(Project, Project.id == Experiment.project_id)
        with self._store.transaction() as session:
            row = session.execute(query.where(Experiment.external_id == experiment, Trial.external_id == trial)).first()
        absent = f"There is no trial {trial!r} of an experiment {experiment!r}."
        if row is None:
            raise NotFound(absent)
        caller.check(row.workspace_id, absent)
        return int(row.id)

    # -- inside -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _conducting(self, caller: Caller, experiment_id: int) -> Iterator[ExperimentOrchestrator]:
        with self._experiment_lock.hold(experiment_id) as orchestrator:
            row = orchestrator.row
            _check(orchestrator.session, caller, row)
            if row.archived or State(row.state) in (State.DELETING, State.DELETE_FAILED):
                raise Conflict(f"Experiment {row.id} is {'archived' if row.archived else row.state}.")
            yield orchestrator

    @contextmanager
    def _conducting_trial(self, caller: Caller, trial_id: int) -> Iterator[tuple[ExperimentOrchestrator, Trial]]:
        with self._store.transaction() as session:
            experiment_id = session.scalar(select(Trial.experiment_id).where(Trial.id == trial_id))
        if experiment_id is None:
            raise NotFound(f"There is no trial {trial_id}.")
        with self._conducting(caller, experiment_id) as orchestrator:
            trial = orchestrator.session.get(Trial, trial_id, with_for_update=True)
            if trial is None:
                raise NotFound(f"There is no trial {trial_id}.")
            yield orchestrator, trial


@dataclass(frozen=True)
class TrialRequest:
    """A request to create a trial; with `external_id` it is created once."""

    experiment_id: int
    hparams: Mapping[str, Any]
    external_id: str | None = None


@dataclass(frozen=True)
class TrialStart:
    run_id: int
    latest_checkpoint: str | None
    steps_completed: int


def _check(session: Session, caller: Caller, row: Experiment) -> None:
    caller.check(session.get_one(Project, row.project_id).workspace_id, f"There is no experiment {row.id}.")
    caller.require_owner(f"Experiment {row.id}", row.owner_id)
    if not row.unmanaged:
        raise Invalid(f"Experiment {row.id} is run by this master, which makes, starts and ends its trials itself.")


def _end(orchestrator: ExperimentOrchestrator, trial: Trial, outcome: OutcomeKind, text: str) -> None:
    if State(trial.state).terminal:
        return
    if outcome is OutcomeKind.REJECTED:
        orchestrator.row.shutdown = SearchResult.of(failure=True)
    orchestrator.trial_event(trial, trials.AllocationEnded(outcome, text))


def _revive(orchestrator: ExperimentOrchestrator, trial: Trial) -> None:
    if trial.end_time is None:
        return
    _revive_experiment(orchestrator)
    orchestrator.story("trial", "Revived", State(trial.state), State.ACTIVE, "it runs again", trial_id=trial.id)
    trial.state, trial.stop, trial.reason, trial.end_time = State.ACTIVE.value, None, "", None
    orchestrator.session.get_one(Task, trial.task_id).end_time = None
    orchestrator.row.live_trials += 1
    failed = select(Trial.id).where(Trial.experiment_id == orchestrator.row.id, Trial.state == State.ERROR.value)
    orchestrator.session.flush()
    orchestrator.row.shutdown = SearchResult.of(failure=orchestrator.session.scalar(failed.limit(1)) is not None)


def _revive_experiment(orchestrator: ExperimentOrchestrator) -> None:
    row = orchestrator.row
    if State(row.state).terminal:
        orchestrator.story("experiment", "Revived", State(row.state), State.ACTIVE, "a trial of it runs")
        row.state, row.reason, row.end_time = State.ACTIVE.value, "", None


def _alone(session: Session, external_id: str) -> None:
    """Serialize requests for the same external id, so that they get the same experiment."""
    session.execute(select(func.pg_advisory_xact_lock(LOCK_CLASS, func.hashtext(external_id))))
