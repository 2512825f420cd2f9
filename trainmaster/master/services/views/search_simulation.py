"""Searches on recorded curves: what another searcher would have found in an experiment, and what a configuration would
find before anything is paid for."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.config.searcher import keys_of as searcher_keys
from trainmaster.master.db.tables import Experiment, Project
from trainmaster.master.search.actions import SearchError
from trainmaster.master.search.methods import make_method, searcher_of
from trainmaster.master.search.simulated import CPU_SECONDS
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.experiments.creation import ExperimentCreation, ExperimentRequest
from trainmaster.master.services.experiments.search_limits import refuse_excess
from trainmaster.master.services.metrics import series
from trainmaster.master.services.views import recorded_curves
from trainmaster.master.services.views.recorded_curves import RecordedTrials
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.stored import Json

PATIENCE = 90.0  # seconds, of which a simulation may calculate `CPU_SECONDS`
TURN = 10.0  # seconds that a request waits for another simulation
_turn = threading.BoundedSemaphore(1)


@dataclass(frozen=True)
class SimulationRequest:
    """`searcher`: keys that replace those of the configuration's section. `workers`: None for as many as the searcher
    runs. `delay`: median seconds in the queue, and the standard deviation of their logarithm. `walltime`: seconds of a
    job; None: not limited."""

    searcher: Mapping[str, Any] = field(default_factory=dict)
    workers: int | None = None
    seeds: int = 5
    delay: tuple[float, float] = (0.0, 0.0)
    deaths: float = 0.0
    walltime: float | None = None


@dataclass(frozen=True)
class SimulatedSearch:
    """`goal`: of the search as it was simulated. `runs` and `course`: as `simulated.simulate` returns them."""

    goal: SearchGoal
    units: str  # in which its trials are measured
    workers: int
    curves: RecordedTrials
    runs: Sequence[Json]
    course: Json


class SearchSimulations(BoundService):
    """Searches on recorded curves, by the code that searches in earnest."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._creation = ExperimentCreation(master)

    def replay(self, experiment_id: int, asked: SimulationRequest) -> SimulatedSearch:
        """Simulate a search on an experiment's curves. Raises NotFound; Invalid where there is nothing to learn from,
        or the searcher cannot be; Conflict while another simulation runs."""
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(_absent(experiment_id))
            config = row.config
            curves = recorded_curves.of_experiment(session, row, _goal(config, asked))
        return simulated(self._limits, config, curves, asked)

    def try_out(
        self, caller: Caller, request: ExperimentRequest, curves: RecordedTrials | int, asked: SimulationRequest
    ) -> SimulatedSearch:
        """Simulate the search of a configuration, which is merged and checked as if the experiment were created, on a
        table, or on the curves of the experiment with that number. Raises as `replay`, and Forbidden."""
        config = self._creation.resolve(caller, request).config
        if isinstance(curves, int):
            curves = self._curves_of(caller, curves, _goal(config, asked))
        return simulated(self._limits, config, curves, asked)

    def _curves_of(self, caller: Caller, experiment_id: int, goal: SearchGoal) -> RecordedTrials:
        with self._store.transaction() as session:
            series.one_moment(session)
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(_absent(experiment_id))
            caller.check(session.get_one(Project, row.project_id).workspace_id, _absent(experiment_id))
            return recorded_curves.of_experiment(session, row, goal)


def simulated(
    limits: Limits, config: StoredConfig, curves: RecordedTrials, asked: SimulationRequest
) -> SimulatedSearch:
    """Simulate the search of a complete configuration. Raises Invalid, Conflict."""
    section, space = _section(config.searcher, asked.searcher, len(curves.points)), config.hyperparameters
    refuse_excess(limits, StoredConfig({**config.to_json(), "searcher": section}))
    if section.get("name") == "custom":
        raise Invalid("searcher.name: custom decides in a program of its own, which cannot be simulated.")
    goal = SearchGoal.from_json(section)
    recorded_curves.refuse_unlike(curves, space, goal)
    if asked.workers and "max_concurrent_trials" in searcher_keys(section):
        section["max_concurrent_trials"] = asked.workers
    workers = asked.workers or min(make_method(section, space).max_concurrent, 1024)
    request = {
        "searcher": section,
        "space": space,
        "points": curves.points,
        "values": curves.values,
        "seconds": curves.seconds,
        "workers": workers,
        "delay": asked.delay,
        "deaths": asked.deaths,
        "walltime": asked.walltime,
        "slots": max(config.slots, 1),
        "seeds": asked.seeds,
    }
    answer = _calculate(request)
    if "error" in answer:
        raise Invalid(f"searcher: {answer['error']}.")
    units = curves.units or (goal.units if recorded_curves.is_timed(goal) else "units")
    return SimulatedSearch(goal, units, workers, curves, answer["runs"], answer["course"])


def _goal(config: StoredConfig, asked: SimulationRequest) -> SearchGoal:
    return SearchGoal.from_json(_section(config.searcher, asked.searcher, 1))


def _absent(experiment_id: int) -> str:
    return f"There is no experiment {experiment_id}."


def _section(goal: SearchGoal, changes: Mapping[str, Any], trials: int) -> dict[str, Any]:
    """Return the section of the other searcher: what it shares with the configuration's, and the changes. Raises
    Invalid."""
    kept = goal.to_json()
    if changes.get("name") not in (None, goal.name):
        shared = ("metric", "smaller_is_better", "max_time", "time_metric", "max_trials", "max_concurrent_trials")
        kept = {key: kept[key] for key in shared if kept.get(key) is not None}
        kept |= {"time_metric": goal.units, "max_time": goal.length, "max_trials": kept.get("max_trials", trials)}
        known = searcher_keys({"name": changes["name"]})
        kept = {key: value for key, value in kept.items() if key in known and value is not None}
    section = {**kept, **{key: value for key, value in changes.items() if value is not None}}
    try:
        searcher_of(section)
    except SearchError as error:
        raise Invalid(f"searcher: {error}") from None
    known = searcher_keys(section)
    if unknown := next((key for key in changes if key not in known), None):
        raise Invalid(f"searcher.{unknown:.100} is no key of {section['name']}; it has {', '.join(sorted(known))}.")
    return section


def _calculate(request: Json) -> Json:
    if not _turn.acquire(timeout=TURN):
        raise Conflict("Another simulation runs: try again in a minute.")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster.master.search.simulated"],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        done = None
    finally:
        _turn.release()
    if done is None or done.returncode != 0:
        raise Invalid(
            f"The simulation needs more than {CPU_SECONDS} s of a processor or too much memory: ask for fewer seeds."
        )
    answer: Json = json.loads(done.stdout)
    return answer
