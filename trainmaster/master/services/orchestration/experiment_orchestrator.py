"""Changes one experiment inside one transaction: loads it under its row lock, feeds events to the pure state machines
and the searcher, writes their decisions, and records why.

Everything that changes the state of an experiment or its trials goes through here, so that no two changes of one
experiment ever overlap, and a crash leaves either all of a change or nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, Integer, any_, func, literal, select, update
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Story, Task, Trial
from trainmaster.master.lifecycle import experiment as experiments
from trainmaster.master.lifecycle import trial as trials
from trainmaster.master.lifecycle.decisions import Allocate, End, Preempt, WriteLog
from trainmaster.master.lifecycle.states import OutcomeKind, State
from trainmaster.master.search import (
    Action,
    Create,
    ExitReason,
    PauseTrial,
    ResumeTrial,
    Search,
    Shutdown,
    StopTrial,
    Warn,
    awaited,
)
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import Settings
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.events import webhooks
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.orchestration import attempts, failed_trials, stored_search, wrong_direction
from trainmaster.master.services.orchestration.decision_text import in_words
from trainmaster.master.services.orchestration.live_searches import LiveSearch
from trainmaster.master.services.store import wake
from trainmaster.master.values.search import SearchResult

PAUSED, RESUMED = "paused", "resumed"  # of `Trial.search_pause`
EARLY_STOP_GRACE = 10.0  # seconds between a trial's own "invalid hyperparameters" and its end by us
PROPAGATION = "telling"  # the subject that wakes the loop that tells trials
PROPAGATION_BATCH = 200  # trials in one transaction of their experiment: a quarter of a second or so

_EXIT_REASON = {
    trials.StopCause.ERROR: ExitReason.ERRORED,
    trials.StopCause.CANCEL: ExitReason.USER_CANCELED,
    trials.StopCause.KILL: ExitReason.USER_CANCELED,
    trials.StopCause.INVALID_HP: ExitReason.INVALID_HP,
}


class _Step(NamedTuple):
    """The result of an event for a trial."""

    event: trials.Event
    before: State
    after: State
    decisions: tuple[trials.Decision, ...]


class ExperimentOrchestrator:
    """Made by `experiment_lock`; every method must be called inside its block."""

    def __init__(self, session: Session, settings: Settings, row: Experiment) -> None:
        self.session = session
        self.settings = settings
        self.row = row
        self._live: LiveSearch | None = None
        self._pending: deque[Callable[[], None]] = deque()
        self._wanted: list[Create] = []
        self._over: list[str] = []  # tasks of trials that have ended
        self._latest: dict[int, Allocation | None] = {}  # latest allocations by trial, once they were looked for
        self._notes = log_store.Notes()
        self._known: dict[str, Trial] = {}  # by request id

    # -- what services call -----------------------------------------------------------------------------------

    @property
    def search(self) -> Search:
        if self._live is None:
            self._live = stored_search.load(self.session, self.row)
        return self._live.search

    def begin(self) -> None:
        """Start the search of a new experiment. Raises SearchError."""
        actions = self.start_search()
        self.story("search", "started", why=self.search.describe())
        self._act(actions)

    def start_search(self) -> list[Action]:
        """Replace the search by one that starts with the experiment's seed, and return its first actions. Raises
        SearchError."""
        config = self.row.config
        search, actions = Search.start(config.searcher.section, config.hyperparameters, self.row.seed, epoch(now()))
        self._live = LiveSearch(search)
        return actions

    def experiment_event(self, event: experiments.Event) -> None:
        """Apply an event. Raises Conflict when the state does not allow a user's command."""
        row = self.row
        if row.unmanaged and isinstance(event, experiments.Pause | experiments.Activate):
            raise Conflict(f"Experiment {row.id} runs outside of this master: start and stop it there.")
        result = row.shutdown or SearchResult({})
        before = experiments.Experiment(
            state=State(row.state),
            live=row.live_trials,
            search_done=row.shutdown is not None,
            cancelled=result.cancel,
            failed=result.failure,
            why=row.reason if State(row.state).stopping else result.why,
        )
        try:
            after, decisions = experiments.step(before, event)
        except experiments.NotPossible as error:
            raise Conflict(f"Experiment {row.id}: {error}.") from None
        row.state = after.state.value
        row.live_trials = after.live
        if isinstance(event, experiments.SearchDone):
            row.shutdown = SearchResult.of(cancel=event.cancel, failure=event.failure, why=event.why)
        if before.state is not after.state or isinstance(event, experiments.SearchDone):
            why = event.why or next((d.why for d in decisions if isinstance(d, experiments.Finish)), "")
            self.story("experiment", type(event).__name__, before.state, after.state, why, decisions)
        for decision in decisions:
            match decision:
                case experiments.Propagate(for_trials):
                    row.reason = for_trials.why or event.why
                    self.propagate()
                case experiments.Finish(state, why):
                    row.end_time = now()
                    row.reason = why
                    row.progress = 1.0 if state is State.COMPLETED else row.progress
                    row.gc_due = not row.unmanaged  # whose files may be anywhere
                    webhooks.experiment_ended(self.session, row)
                    wake(self.session, "janitor")

    def propagate(self) -> None:
        """Give `PROPAGATION_BATCH` live trials that lag behind the experiment's state what it asks of them. Between
        batches others can lock the experiment. While there are more, `propagation_due` stays set for the next batch."""
        pending = experiments.pending_states(State(self.row.state))
        query = select(Trial).where(Trial.experiment_id == self.row.id, Trial.end_time.is_(None))
        if State(self.row.state) is State.ACTIVE:
            query = query.where(Trial.search_pause != PAUSED)
        query = query.where(Trial.state.in_(pending)).order_by(Trial.id).limit(PROPAGATION_BATCH + 1)
        fresh = {"populate_existing": True}
        lagging = list(self.session.scalars(query.with_for_update(key_share=True), execution_options=fresh))
        self.row.propagation_due = len(lagging) > PROPAGATION_BATCH
        if self.row.propagation_due:
            wake(self.session, PROPAGATION)
        self._find_allocations(lagging[:PROPAGATION_BATCH])
        for trial in lagging[:PROPAGATION_BATCH]:
            self._later(partial(self._catch_up, trial))

    def trial_event(self, trial: Trial, event: trials.Event) -> None:
        if self.row.propagation_due:
            self._catch_up(trial)
        self._trial_event(trial, event)

    def _catch_up(self, trial: Trial) -> None:
        state = State(self.row.state)
        if (
            trial.state in experiments.pending_states(state)
            and (event := experiments.event_for(state, self.row.reason)) is not None
        ):
            self._trial_event(trial, event)

    def _trial_event(self, trial: Trial, event: trials.Event) -> None:
        if (step := self._step(trial, event)) is not None:
            self._follow(trial, step)

    def validated(self, trial: Trial, metrics: dict[str, Any], steps: int) -> None:
        """Give a new validation report to the searcher."""
        if not self.row.unmanaged:
            self._act(self.search.validation(trial.request_id, metrics, steps, **self._spending(trial)))

    def know(self, some: Collection[Trial]) -> None:
        """Take trials of this experiment that are locked already, so that none of them is looked for."""
        self._known |= {trial.request_id: trial for trial in some}
        self._latest |= dict.fromkeys((trial.id for trial in some if self.row.config.searcher.ask_tell), None)

    def instruct(self, number: int, answer: Any, at: float) -> None:
        """Give a program's answer to the searcher `custom`. Raises SearchError, after which nothing of this transaction
        may be kept."""
        self._act(self.search.instructed(number, answer, at=at))

    def progressed(self, trial: Trial, fraction: float) -> None:
        trial.progress = fraction
        if self.row.unmanaged:
            self.row.progress = fraction
        else:
            self.search.progressed(trial.request_id, fraction)

    def say(self, task_id: str, text: str, level: str = "INFO") -> None:
        self._notes.say(task_id, text, level)

    def story(
        self,
        subject: str,
        event: str,
        before: State | None = None,
        after: State | None = None,
        why: str = "",
        decisions: tuple[Any, ...] = (),
        trial_id: int | None = None,
    ) -> None:
        self.session.add(
            Story(
                experiment_id=self.row.id,
                trial_id=trial_id,
                at=now(),
                subject=subject,
                event=event,
                before=before.value if before else "",
                after=after.value if after else "",
                why=why,
                decisions=[in_words(decision) for decision in decisions if not isinstance(decision, WriteLog)],
            )
        )

    def allocation_ended(self, allocation: Allocation, event: trials.AllocationEnded) -> None:
        """Close `allocation`; its trial decides what follows."""
        attempts.close(self.session, allocation, event.outcome, event.text)
        trial = self.session.get(Trial, allocation.trial_id)
        if trial is not None:
            if why := failed_trials.blown(self.session, self.row, allocation):
                self.say(trial.task_id, f"{why}.", "ERROR")
                self.experiment_event(experiments.Pause(why))
                self._catch_up(trial)
            stalled = attempts.stalled(self.session, allocation)
            self.trial_event(trial, replace(event, retry_refused=trial.no_retries or "", stalled=stalled))
        attempts.log_end(self._notes, allocation, event.outcome, event.text)

    def preempt(self, allocation: Allocation, reason: str, timeout: float) -> None:
        """Ask the runtime of `allocation` to leave. One that has not started is withdrawn instead."""
        if attempts.ask_to_leave(self.session, allocation, reason, timeout):
            self.kill(allocation, reason)

    def kill(self, allocation: Allocation, reason: str) -> None:
        if attempts.condemn(self.session, allocation, reason):
            event = trials.AllocationEnded(OutcomeKind.STOPPED, attempts.WITHDRAWN)
            self._later(lambda: self.allocation_ended(allocation, event))

    def settle(self) -> None:
        """Carry out all pending decisions, then save. Called by `ExperimentLock.hold`."""
        self._create()
        while self._pending:
            self._pending.popleft()()
            self._create()
        if self._live is not None:
            if self._live.search.method.open or self._live.search.over or State(self.row.state).stopping:
                wake(self.session, f"search:{self.row.id}")  # a program may wait for questions, or for trials
            stored_search.store(self.session, self.row, self._live)
            if self.row.end_time is None:
                self.row.progress = min(max(self._live.search.progress(), 0.0), 1.0)
        self.session.flush()
        if self._over:
            of_trials = update(Task).where(Task.task_id == Trial.task_id, Trial.task_id.in_(self._over))
            self.session.execute(of_trials.values(end_time=Trial.end_time).execution_options(synchronize_session=False))
        self._notes.write(self.session)

    # -- inside -----------------------------------------------------------------------------------------------

    def _later(self, work: Callable[[], None]) -> None:
        self._pending.append(work)

    def _step(self, trial: Trial, event: trials.Event) -> _Step | None:
        """Store what `event` changes for a trial; None when it changes nothing."""
        before = trials.Trial(
            state=State(trial.state),
            max_restarts=self.row.config.max_restarts,
            restarts=trial.restarts,
            setbacks=trial.setbacks,
            attempts=trial.attempts,
            # The attempt that has ended was the only one: no other exists before its end.
            allocated=not isinstance(event, trials.AllocationEnded) and self._live_allocation(trial) is not None,
            stop=trials.StopCause(trial.stop) if trial.stop else None,
            held=trial.search_pause == PAUSED,
        )
        after, decisions = trials.step(before, event)
        if after == before and not decisions:
            return None
        trial.state, trial.stop = after.state.value, after.stop.value if after.stop else None
        trial.restarts, trial.setbacks, trial.attempts = after.restarts, after.setbacks, after.attempts
        if after.held != before.held:
            trial.search_pause = PAUSED if after.held else RESUMED
        return _Step(event, before.state, after.state, decisions)

    def _follow(self, trial: Trial, step: _Step) -> None:
        why = getattr(step.event, "why", "") or getattr(step.event, "text", "")
        self.story("trial", type(step.event).__name__, step.before, step.after, why, step.decisions, trial.id)
        for decision in step.decisions:
            self._carry_out(trial, decision)

    def _find_allocations(self, some: Sequence[Trial]) -> None:
        """Look for the live allocations of trials, and lock them in order, so that none is looked for alone."""
        theirs = Allocation.trial_id == any_(literal([trial.id for trial in some], ARRAY(Integer)))
        query = (
            select(Allocation).where(theirs, Allocation.ended_at.is_(None)).order_by(Allocation.id).with_for_update()
        )
        self._latest |= dict.fromkeys((trial.id for trial in some), None)
        for allocation in self.session.scalars(query, execution_options={"populate_existing": True}):
            if allocation.trial_id is not None:
                self._latest[allocation.trial_id] = allocation

    def _live_allocation(self, trial: Trial) -> Allocation | None:
        """Only who holds the experiment's lock, as we do, makes and ends allocations of its trials."""
        if trial.attempts == 0:
            return None
        if trial.id not in self._latest:
            query = select(Allocation).where(Allocation.trial_id == trial.id, Allocation.ended_at.is_(None))
            self._latest[trial.id] = self.session.scalar(query)
        latest = self._latest[trial.id]
        return latest if latest is not None and latest.ended_at is None else None

    def _act(self, actions: list[Action]) -> None:
        self._wanted += [action for action in actions if isinstance(action, Create)]
        for action in actions:
            match action:
                case StopTrial(key, why) if (trial := self._named(key)) is not None:
                    self.story("search", "Stop", why=why, trial_id=trial.id)
                    self._give(trial, trials.Stop(trials.StopCause.SEARCHER, why))
                case PauseTrial(key, why) if (trial := self._named(key)) is not None:
                    self.story("search", "Pause", why=why, trial_id=trial.id)
                    self._give(trial, trials.Hold(why))
                case ResumeTrial(key, why) if (trial := self._named(key)) is not None:
                    self.story("search", "Resume", why=why, trial_id=trial.id)
                    self._give(trial, trials.Release(why, paused=self.row.state == State.PAUSED))
                case Warn(why):
                    self.story("search", "Warning", why=why)
                case Shutdown(cancel, failure, why):
                    cause = failed_trials.reason_of(self.session, self.row) if failure else ""
                    done = experiments.SearchDone(cancel, failure, cause or why)
                    self._later(partial(self.experiment_event, done))

    def _create(self) -> None:
        """Create the trials that the search requests and that do not exist yet."""
        while self._wanted:
            wanted, self._wanted = self._wanted, []
            if State(self.row.state) not in (State.ACTIVE, State.PAUSED):
                return  # the experiment is ending: no further trials of the search are started
            if self.row.num_trials > self.search.trials - len(wanted):  # a continued search finds its trials
                wanted = self._not_there(wanted)
            self._make(wanted)

    def _not_there(self, wanted: list[Create]) -> list[Create]:
        """Return the new ones of these. Of the others, the completed ones stay so, and the rest continue."""
        ids = [action.request_id for action in wanted]
        query = select(Trial).where(Trial.experiment_id == self.row.id, Trial.request_id.in_(ids)).order_by(Trial.id)
        known = {trial.request_id: trial for trial in self.session.scalars(query.with_for_update(key_share=True))}
        for key, trial in known.items():
            if trial.state == State.COMPLETED:
                invalid = trial.stop == trials.StopCause.INVALID_HP.value
                self._act(self.search.exited_early(key, ExitReason.INVALID_HP) if invalid else self.search.exited(key))
                continue
            self.reopen(trial)
            if self.row.state == State.ACTIVE:
                self._later(partial(self.trial_event, trial, trials.Activate()))
        return [action for action in wanted if action.request_id not in known]

    def reopen(self, trial: Trial) -> None:
        """Put an ended trial into the state PAUSED, with a new task."""
        task_id = f"{[*trial.earlier_tasks, trial.task_id][0]}-{len(trial.earlier_tasks) + 1}"
        self.session.add(Task(task_id=task_id, task_type="TRIAL", job_id=self.row.job_id))
        self.session.flush()
        trial.earlier_tasks, trial.task_id = [*trial.earlier_tasks, trial.task_id], task_id
        trial.state, trial.stop, trial.reason, trial.end_time = State.PAUSED.value, None, "", None
        trial.restarts = trial.setbacks = 0
        trial.no_retries, trial.blocked_nodes = None, []
        trial.progress, trial.searcher_told = 0.0, False
        trial.search_pause, trial.begun_anew = "", 0
        self.row.live_trials += 1
        self.session.flush()

    def continue_search(self) -> None:
        """Restart the search with its seed: it requests the same trials in the same order. Raises SearchError."""
        self._act(self.start_search())

    def _make(self, wanted: Sequence[Create]) -> None:
        """Create trials, with a handful of statements for all."""
        if not wanted:
            return
        made = [(action, f"{self.row.id}.{action.request_id}") for action in wanted]
        parents = self._parents([action.parent for action in wanted if action.parent])
        self.session.add_all(Task(task_id=task_id, task_type="TRIAL", job_id=self.row.job_id) for _, task_id in made)
        self.session.flush()
        rows = [
            Trial(
                experiment_id=self.row.id,
                task_id=task_id,
                request_id=action.request_id,
                state=self.row.state,
                hparams=action.hparams,
                seed=action.seed,
                warm_start=self.row.warm_start,
                summary_metrics={},
                attempts=0,
                restarts=0,
                setbacks=0,
                start_time=now(),
            )
            for action, task_id in made
        ]
        for action, trial in zip(wanted, rows, strict=True):
            if action.parent:
                parent = parents[action.parent]
                trial.warm_start, trial.parent_id = parent.latest_checkpoint or parent.warm_start, parent.id
        created = trials.Created(paused=self.row.state == State.PAUSED)
        steps = [self._step(trial, created) for trial in rows]
        self.session.add_all(rows)
        self.session.flush()
        self.row.num_trials += len(rows)
        self.row.live_trials += len(rows)
        for action, trial, step in zip(wanted, rows, steps, strict=True):
            self.story("search", "Create", why=action.why, trial_id=trial.id)
            if step is not None:
                self._follow(trial, step)

    def _parents(self, request_ids: list[str]) -> dict[str, Trial]:
        query = select(Trial).where(Trial.experiment_id == self.row.id, Trial.request_id.in_(request_ids))
        return {trial.request_id: trial for trial in self.session.scalars(query)} if request_ids else {}

    def _named(self, request_id: str) -> Trial | None:
        """Return a trial; None for one that was never made, because its experiment was ending."""
        if (trial := self._known.get(request_id)) is not None:
            return trial
        self._create()  # it may be a new one
        query = select(Trial).where(Trial.experiment_id == self.row.id, Trial.request_id == request_id)
        return self.session.scalar(query)

    def _give(self, trial: Trial, event: trials.Event) -> None:
        self._later(lambda: self.trial_event(trial, event))

    def _spending(self, trial: Trial) -> dict[str, float]:
        """Return what a trial has used so far, and when that is, for searches that ask."""
        if not self.search.sees_spending:
            return {}
        until = func.coalesce(Allocation.ended_at, now())
        seconds = func.sum(func.extract("epoch", until - Allocation.leased_at) * Allocation.slots)
        used = self.session.scalar(select(seconds).where(Allocation.trial_id == trial.id))
        return {"slot_seconds": float(used or 0.0), "at": epoch(now())}

    def _carry_out(self, trial: Trial, decision: trials.Decision) -> None:
        match decision:
            case Allocate(attempt, delay):
                self._allocate(trial, attempt, delay)
            case Preempt(reason) if (allocation := self._live_allocation(trial)) is not None:
                quick = trial.stop == trials.StopCause.INVALID_HP.value
                self.preempt(allocation, reason, EARLY_STOP_GRACE if quick else self._preemption_timeout())
                self.say(trial.task_id, f"Asked to save its work and leave: {reason}")
            case End(reason) if (allocation := self._live_allocation(trial)) is not None:
                self.kill(allocation, reason)
            case trials.Finish():
                self._finish(trial, decision)
            case WriteLog(level, text):
                self.say(trial.task_id, text, level)

    def _preemption_timeout(self) -> float:
        return float(self.row.config.preemption_timeout or self.settings.preemption_timeout)

    def _allocate(self, trial: Trial, attempt: int, delay: int) -> None:
        if self.row.config.searcher.ask_tell:
            self.offer(trial)
            return
        if trial.search_pause == RESUMED:
            trial.search_pause = ""
            if trial.latest_checkpoint is None and not self._begins_anew(trial):
                return
        self._latest[trial.id] = attempts.ask_for(
            self.session,
            self.settings,
            task_id=trial.task_id,
            attempt=attempt,
            pool=self.row.resource_pool,
            slots=self.row.config.slots,
            owner_id=self.row.owner_id,
            delay=delay,
            trial_id=trial.id,
            checkpoints_before=trial.checkpoint_count,
        )

    def offer(self, trial: Trial) -> None:
        """Let a program ask for a trial that no job runs."""
        trial.search_pause = "" if trial.search_pause == RESUMED else trial.search_pause
        trial.heartbeat_at = None
        wake(self.session, f"search:{self.row.id}")

    def _begins_anew(self, trial: Trial) -> bool:
        """Whether a trial that was paused by the search and has no checkpoint begins again: each time, where its code
        never saved one; once, where what it saved is gone."""
        saved = self.session.scalar(select(Checkpoint.uuid).where(Checkpoint.trial_id == trial.id).limit(1))
        if saved is None:
            text = "It never saved a checkpoint: it begins again, and trains what it had trained before once more."
            self.say(trial.task_id, text, "WARNING")
            return True
        trial.begun_anew += 1
        if trial.begun_anew > 1:
            why = "the search paused it, and its checkpoint is gone for the second time"
            self._later(lambda: self.trial_event(trial, trials.Stop(trials.StopCause.ERROR, why)))
            return False
        self.say(trial.task_id, "Its checkpoint is gone: it begins again, this once.", "WARNING")
        return True

    def _finish(self, trial: Trial, decision: trials.Finish) -> None:
        trial.end_time = now()
        trial.reason = decision.why
        self._over.append(trial.task_id)
        reason = _EXIT_REASON.get(decision.early) if decision.early else None
        reason = ExitReason.OUT_OF_MEMORY if decision.out_of_memory else reason
        trial.search_pause = ""
        if decision.state is State.COMPLETED and reason is None:
            trial.progress = 1.0
            reported = (trial.summary_metrics or {}).get("validation_metrics") or {}
            if not self.row.unmanaged and (text := awaited.never_reported(self.row.config.searcher, reported)):
                self.say(trial.task_id, text, "WARNING")
        if not self.row.unmanaged and (text := wrong_direction.warning(self.session, self.row, trial)):
            self.story("search", "Warning", why=text)
            self.say(trial.task_id, f"{text}.", "WARNING")
        # The end of an experiment that is being stopped is not the search's to decide, and may be there because of it.
        if not self.row.unmanaged and not State(self.row.state).stopping:
            search, key = self.search, trial.request_id
            spending = self._spending(trial)
            self._act(search.exited_early(key, reason, **spending) if reason else search.exited(key, **spending))
        self._later(lambda: self.experiment_event(experiments.TrialsLive(self.row.live_trials - 1)))
        wake(self.session, f"task:{trial.task_id}")
