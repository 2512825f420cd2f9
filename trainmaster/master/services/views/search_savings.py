"""What searches have saved by stopping trials, and what another searcher would have used on their curves."""

from __future__ import annotations

import datetime as dt
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select

from trainmaster.config.limits import Limits
from trainmaster.config.searcher import keys_of as searcher_keys
from trainmaster.master.db.tables import Experiment, Project, Trial, User, Workspace
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.errors import Conflict, Invalid
from trainmaster.master.services.metrics import series
from trainmaster.master.services.store import Store
from trainmaster.master.services.views import board, recorded_curves
from trainmaster.master.services.views.board import JobUse
from trainmaster.master.services.views.search_simulation import SimulationRequest, simulated
from trainmaster.master.values.stored import Json

SEEDS = 5  # simulations of a replay
ENDED = (State.COMPLETED.value, State.CANCELED.value, State.ERROR.value)


@dataclass(frozen=True)
class SearchSaving:
    """One ended search. `used` and `saved` are slot-seconds: what all trials used, and what the stopped ones would have
    used further, each at its own speed, to their full length. `unknown`: stopped trials whose speed is not known, which
    count as nothing saved."""

    experiment: int
    name: str
    owner: str
    workspace: str
    searcher: str
    ended: dt.datetime
    trials: int
    stopped: int
    unknown: int
    used: float
    saved: float


@dataclass(frozen=True)
class SearchReplay:
    """An experiment's curves through another searcher, until a value as good as the experiment's: medians of the
    simulations, None where fewer than half of them came there. `seconds`: of a clock. `failed`: why there is no answer,
    else empty."""

    used: float | None = None  # slot-seconds
    seconds: float | None = None
    failed: str = ""


class SearchSavings:
    """Savings of the searches of a site. Needs only the database, so that a program beside the master has it."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store, self._limits = store, limits

    def ended(self, since: dt.datetime, most: int) -> Iterator[SearchSaving]:
        """Yield the newest searches that ended since then, the newest first."""
        query = (
            select(Experiment.id)
            .where(
                Experiment.end_time >= since,
                Experiment.state.in_(ENDED),
                Experiment.searcher_type != "single",
                ~Experiment.unmanaged,
            )
            .order_by(Experiment.end_time.desc(), Experiment.id.desc())
            .limit(most)
        )
        with self._store.transaction() as session:
            numbers = list(session.scalars(query))
        for number in numbers:
            if (found := self._of(number)) is not None:
                yield found

    def replay(self, experiment_id: int, searcher: str) -> SearchReplay:
        """Simulate another searcher on the curves of an experiment, as `what-if` does. Where the experiment names no
        length, its longest trial's is the full one."""
        try:
            with self._store.transaction() as session:
                series.one_moment(session)
                row = session.get_one(Experiment, experiment_id)
                config, goal = row.config, row.config.searcher
                curves = recorded_curves.of_experiment(session, row, goal)
            keys: Json = {"name": searcher}
            if goal.length is None and "max_time" in searcher_keys(keys):
                keys |= {"max_time": max(map(len, curves.values)), "time_metric": curves.units}
            found = simulated(self._limits, config, curves, SimulationRequest(keys, seeds=SEEDS))
        except (Invalid, Conflict) as error:
            return SearchReplay(failed=error.message)
        sign = 1 if goal.smaller_is_better else -1
        known = [sign * value for curve in curves.values for value in curve if math.isfinite(value)]
        if not known:
            return SearchReplay(failed="It has no finite value to reach.")
        reached = [
            next((at for at, (_, value) in enumerate(run["bests"]) if sign * value <= min(known)), None)
            for run in found.runs
        ]
        runs = zip(found.runs, reached, strict=True)
        slots = min(config.slots, 1)  # a job without slots is simulated as if it had one
        came = [(run["spent"][at] * slots, run["bests"][at][0]) for run, at in runs if at is not None]
        if len(came) * 2 < len(found.runs):
            return SearchReplay()
        return SearchReplay(statistics.median(used for used, _ in came), statistics.median(at for _, at in came))

    def _of(self, experiment_id: int) -> SearchSaving | None:
        """Return the saving of one search; None where it was deleted meanwhile."""
        with self._store.transaction() as session:
            series.one_moment(session)
            query = (
                select(Experiment, User.username, Workspace.name)
                .join(User, User.id == Experiment.owner_id)
                .join(Project, Project.id == Experiment.project_id)
                .join(Workspace, Workspace.id == Project.workspace_id)
                .where(Experiment.id == experiment_id)
            )
            found = session.execute(query).one_or_none()
            row, owner, workspace = found or (None, "", "")
            if row is None or (ended := row.end_time) is None:
                return None
            goal, slots = row.config.searcher, row.config.slots
            trials = board.search_trials(session, row.id, goal)
            uses = board.job_uses(session, Trial.experiment_id == row.id)
        parts = [board.spared(trial, goal, uses.get(trial.id, JobUse()), slots) for trial in trials]
        return SearchSaving(
            experiment=row.id,
            name=row.name,
            owner=owner,
            workspace=workspace,
            searcher=row.searcher_type,
            ended=ended,
            trials=len(trials),
            stopped=sum(board.cut_short(trial, goal) for trial in trials),
            unknown=parts.count(None),
            used=sum(use.slot_seconds for use in uses.values()),
            saved=sum(part for part in parts if part is not None),
        )
