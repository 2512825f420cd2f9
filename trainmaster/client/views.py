"""What the web page shows, in one call a page: the boards of experiments and trials, the rung race, comparisons."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

from trainmaster.client.resource import Json, Resource, word
from trainmaster.client.view_records import (
    Attempt,
    CheckpointTable,
    Comparison,
    Curves,
    ExperimentBoard,
    ExperimentEvent,
    GitAnswer,
    GitView,
    HomeView,
    MachineView,
    RungRace,
    SearchPlanAnswer,
    SearchSimulation,
    StorageUsage,
    TrialBoard,
    TrialCurves,
    UsageView,
    VersionOrigin,
)

T = TypeVar("T")
STORY_PAGE = 2000  # events read at once
RACE_PAGE = 20_000


class Views(Resource):
    """Calls of the web page. Their answers are small however large the search is: tables as columns and rows, which
    `by_name` turns into mappings, and curves over one grid.

    Arguments of several calls:
        experiment_id: Number of the experiment.
        trial_id: Number of the trial.
    """

    def home(self) -> HomeView:
        """Get what the caller needs to know first: what failed, runs and waits, and why; tasks and pools.

        Returns:
            The caller's experiments and tasks, and all pools.
        """
        return _read(HomeView, self._x1("home"))

    def storage_usage(self, by: str = "experiment", limit: int = 100) -> StorageUsage:
        """Read who keeps how many bytes of checkpoints, and the room that is left in the site's storage.

        Args:
            by: experiment, owner or workspace.
            limit: How many; the largest come first.

        Returns:
            The shares, in the workspaces that the caller may see.
        """
        return _read(StorageUsage, self._x1("storage/usage", by=by, limit=limit))

    def usage(self, first: str = "", last: str = "") -> UsageView:
        """Get who used the slots in some days, and which nodes lost jobs in the last seven.

        Args:
            first: The first day, as YYYY-MM-DD in UTC; empty for 30 days up to the last one.
            last: The last day, included; empty for today.

        Returns:
            Slot-seconds by day, user, pool and label, and the nodes, the worst first.

        Raises:
            NotAllowed: The caller may not see the cluster's usage.
        """
        days = {"first": first, "last": last}
        return _read(UsageView, self._x1("usage", **{name: day for name, day in days.items() if day}))

    # -- experiments ----------------------------------------------------------------------------------------------

    def experiment(
        self,
        experiment_id: int,
        *,
        curves: bool = False,
        metric: str = "",
        group: str = "validation",
        x: str = "",
        points: int = 200,
    ) -> ExperimentBoard:
        """Get all trials of an experiment as rows of a table, and the rungs of its search.

        Args:
            curves: Read the curves of a metric too.
            metric: The metric of the curves; empty for the searcher's.
            group: The metric's group.
            x: What the curves are over: batches, seconds, or a metric of the same reports; empty for batches.
            points: Places of the curves' grid, 2 to 1000.

        Returns:
            The board; `by_name` gives its rows as mappings.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        query = {"curves": True, "metric": metric, "group": group, "x": x, "points": points} if curves else {}
        return _read(ExperimentBoard, self._x1(f"experiments/{experiment_id}/board", **query))

    def git(self, experiment_id: int) -> GitView | None:
        """Get the commit that an experiment's code is of, and what was changed since.

        Returns:
            The commit with its diff; None for code that came from no repository.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        return _read(GitAnswer, self._x1(f"experiments/{experiment_id}/git")).git

    def lineage(self, model: str, number: int) -> VersionOrigin:
        """Get where a version of a model comes from.

        Args:
            model: Name or number of the model.
            number: Number of the version.

        Returns:
            Its checkpoint, and the training that wrote it: code, configuration, data and image.

        Raises:
            NoSuchThing: There is no such model or version.
        """
        return _read(VersionOrigin, self._x1(f"models/{word(model)}/versions/{number}/lineage"))

    def curves(
        self,
        experiment_id: int,
        *,
        metric: str = "",
        group: str = "validation",
        x: str = "",
        points: int = 200,
        since: int = 0,
    ) -> Curves:
        """Get the curves of all trials of an experiment over one grid.

        Args:
            metric: The metric; empty for the searcher's.
            group: The metric's group.
            x: What they are over: batches, seconds, or a metric of the same reports; empty for batches.
            points: Places of the grid, 2 to 1000.
            since: `seq` of an earlier answer, for those of trials that have reported more; 0 for all.

        Returns:
            The curves.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        query = {"metric": metric, "group": group, "x": x, "points": points, "since": since}
        return _read(Curves, self._x1(f"experiments/{experiment_id}/curves", **query))

    def story(self, experiment_id: int, *, trial: int | None = None) -> Iterator[ExperimentEvent]:
        """Read why everything happened to an experiment: decisions of its search and of people, and ends of jobs.

        Args:
            trial: Only what happened to this trial.

        Returns:
            An iterator over the events, oldest first, read as it is used.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        query: dict[str, Any] = {"limit": STORY_PAGE, "trial": trial}
        after = 0
        while True:
            answer = self._x1(f"experiments/{experiment_id}/story", after=after, **query)
            for raw in answer["events"]:
                yield _read(ExperimentEvent, raw)
                after = int(raw["id"])
            if not answer["more"]:
                return

    def rungs(self, experiment_id: int) -> RungRace:
        """Get who reached which rung of a search, in order, with what the search knew and decided then.

        Returns:
            All events; `by_name` gives them as mappings. Without brackets where the search has no rungs.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        path = f"experiments/{experiment_id}/rungs"
        race = self._x1(path, limit=RACE_PAGE)
        while len(race["rows"]) < race["total"]:
            more = self._x1(path, limit=RACE_PAGE, after=len(race["rows"]))["rows"]
            if not more:
                break
            race["rows"] += more
        return _read(RungRace, race)

    def search_plan(self, experiment_id: int) -> SearchPlanAnswer:
        """Get what a search has used of its budget, and how it is expected to end.

        Returns:
            Figures, and the same in words.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        return _read(SearchPlanAnswer, self._x1(f"experiments/{experiment_id}/search-plan"))

    def experiment_checkpoints(self, experiment_id: int) -> CheckpointTable:
        """List the checkpoints of an experiment.

        Returns:
            A table, the newest first; `by_name` gives its rows as mappings.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        return _read(CheckpointTable, self._x1(f"experiments/{experiment_id}/checkpoints"))

    def compare(
        self,
        *,
        trials: Sequence[int] = (),
        experiments: Sequence[int] = (),
        metric: str = "",
        group: str = "validation",
        x: str = "",
        points: int = 300,
    ) -> Comparison:
        """Compare trials, or experiments by their best trials: curves, values, settings and costs.

        Args:
            trials: Numbers of up to 20 trials.
            experiments: Numbers of up to 20 experiments; either these or trials.
            metric: The compared metric; empty for the searcher's of the first one.
            group: The metric's group.
            x: What curves are over: batches, seconds, or a metric of the same reports; empty for batches.
            points: Places of the curves' grid, 2 to 1000.

        Returns:
            The comparison. What is not there, or may not be seen, is in its `missing`.
        """
        query = {"metric": metric, "group": group, "x": x, "points": points}
        ids = {"trials": ",".join(map(str, trials)), "experiments": ",".join(map(str, experiments))}
        return _read(Comparison, self._x1("compare", **query, **{name: text for name, text in ids.items() if text}))

    # -- trials ---------------------------------------------------------------------------------------------------

    def trial(self, trial_id: int) -> TrialBoard:
        """Get a trial with its jobs, the curve of the searcher's metric and the last lines of its log.

        Returns:
            The board.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return _read(TrialBoard, self._x1(f"trials/{trial_id}/board"))

    def attempts(self, trial_id: int) -> tuple[Attempt, ...]:
        """List the jobs of a trial: when each waited and ran, how it ended, what it saved and what was lost.

        Returns:
            The attempts, oldest first.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return tuple(_read(Attempt, raw) for raw in self._x1(f"trials/{trial_id}/attempts")["attempts"])

    def trial_curves(
        self, trial_id: int, metrics: Sequence[tuple[str, str]], *, x: str = "", points: int = 500
    ) -> TrialCurves:
        """Get several metrics of a trial over its own steps.

        Args:
            metrics: Pairs of group and name, up to 50, such as ("validation", "loss").
            x: What they are over: batches, seconds, or a metric of the same reports; empty for batches.
            points: Points of each curve, 2 to 5000; the lowest and highest values are kept.

        Returns:
            The curves.

        Raises:
            NoSuchThing: There is no such trial.
        """
        named = ",".join(f"{quote(group, safe='')}:{quote(name, safe='')}" for group, name in metrics)
        return _read(TrialCurves, self._x1(f"trials/{trial_id}/curves", metrics=named, x=x, points=points))

    def machine(self, trial_id: int, *, points: int = 300) -> MachineView:
        """Get what the profiler measured on a trial's nodes and GPUs.

        Args:
            points: Points of each series, 2 to 5000; the lowest and highest values are kept.

        Returns:
            The series.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return _read(MachineView, self._x1(f"trials/{trial_id}/machine", points=points))

    def trial_checkpoints(self, trial_id: int) -> CheckpointTable:
        """List the checkpoints of a trial.

        Returns:
            A table, the newest first; `by_name` gives its rows as mappings.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return _read(CheckpointTable, self._x1(f"trials/{trial_id}/checkpoints"))

    def what_if(
        self,
        experiment_id: int,
        searcher: Mapping[str, Any] | None = None,
        *,
        workers: int | None = None,
        seeds: int = 5,
        delay: float = 0.0,
        delay_spread: float = 0.0,
        deaths: float = 0.0,
        walltime: float | None = None,
    ) -> SearchSimulation:
        """Simulate another searcher on the recorded curves of an experiment.

        Args:
            searcher: Keys of a `searcher` section that replace the experiment's.
            workers: Trials at the same time; None for as many as the searcher runs.
            seeds: How many simulations, 1 to 50.
            delay: Median seconds of a job in the queue.
            delay_spread: Standard deviation of their logarithm.
            deaths: The part of all jobs that die and start again, 0 to 0.9.
            walltime: Seconds after which a job is cut and queued again; None for no limit.

        Returns:
            What the experiment did, and what each simulation did.

        Raises:
            NoSuchThing: There is no such experiment.
            APIError: It has no values yet, or the searcher cannot be.
        """
        cluster = _cluster(searcher, workers, seeds, delay, delay_spread, deaths, walltime)
        path = f"/api/x1/experiments/{experiment_id}/what-if"
        return _read(SearchSimulation, self._http.request("POST", path, body=cluster))

    def simulate(
        self,
        config: str,
        curves: int | CurveTable,
        searcher: Mapping[str, Any] | None = None,
        *,
        workers: int | None = None,
        seeds: int = 5,
        delay: float = 0.0,
        delay_spread: float = 0.0,
        deaths: float = 0.0,
        walltime: float | None = None,
    ) -> SearchSimulation:
        """Simulate the search of a configuration on recorded curves. Nothing is created.

        Args:
            config: The experiment's configuration, as YAML.
            curves: The number of an experiment whose curves to take, or a table.
            searcher: Keys of a `searcher` section that replace the configuration's.
            workers: Trials at the same time; None for as many as the searcher runs.
            seeds: How many simulations, 1 to 50.
            delay: Median seconds of a job in the queue.
            delay_spread: Standard deviation of their logarithm.
            deaths: The part of all jobs that die and start again, 0 to 0.9.
            walltime: Seconds after which a job is cut and queued again; None for no limit.

        Returns:
            What each simulation did, and for an experiment's curves what that did.

        Raises:
            NoSuchThing: There is no such experiment.
            APIError: The configuration is refused, or the table does not fit it.
        """
        body = {"config": config, **_cluster(searcher, workers, seeds, delay, delay_spread, deaths, walltime)}
        if isinstance(curves, int):
            body["experiment_id"] = curves
        else:
            body |= {"points": curves.points, "values": curves.values, "seconds": curves.seconds}
        return _read(SearchSimulation, self._http.request("POST", "/api/x1/search/simulate", body=body))

    def _x1(self, path: str, **query: Any) -> Json:
        return self._http.request("GET", f"/api/x1/{path}", query=query)


@dataclass(frozen=True)
class CurveTable:
    """Curves of trials, by trial: `points` (values of the hyperparameters by dotted name), `values` (of the metric, one
    a unit of training; None where it was no number), `seconds` of a unit."""

    points: Sequence[Mapping[str, Any]]
    values: Sequence[Sequence[float | None]]
    seconds: Sequence[float]


def _cluster(
    searcher: Mapping[str, Any] | None,
    workers: int | None,
    seeds: int,
    delay: float,
    delay_spread: float,
    deaths: float,
    walltime: float | None,
) -> Json:
    return {
        "searcher": dict(searcher or {}),
        "workers": workers,
        "seeds": seeds,
        "delay": delay,
        "delay_spread": delay_spread,
        "deaths": deaths,
        "walltime": walltime,
    }


def by_name(table: ExperimentBoard | RungRace | CheckpointTable) -> list[Json]:
    """Return the rows of a table as mappings by the names of its columns.

    Args:
        table: An answer that holds `columns` and `rows`.

    Returns:
        A mapping for each row.
    """
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


# -- reading answers ----------------------------------------------------------------------------------------------


def _read(kind: type[T], answer: Mapping[str, Any]) -> T:
    """Return the answer as one of the records; fields that this client does not know are left out."""
    record: Any = kind
    return kind(**{name: _value(hint, answer.get(key)) for name, key, hint in _fields(record)})


@cache
def _fields(kind: Any) -> list[tuple[str, str, Any]]:
    """Names of a record's fields, as they are in an answer, and their types."""
    hints = get_type_hints(kind)
    return [(field.name, _camel(field.name), hints[field.name]) for field in fields(kind)]


def _camel(name: str) -> str:
    return re.sub(r"_(.)", lambda match: match.group(1).upper(), name)


def _value(hint: Any, given: Any) -> Any:
    if isinstance(hint, types.UnionType):
        record = next((get_arg for get_arg in get_args(hint) if is_dataclass(get_arg)), None)
        return _value(record, given) if record is not None and given is not None else given
    if isinstance(hint, type) and is_dataclass(hint):
        return _read(hint, given)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return tuple(_value(inner, one) for one in given or ())
    return given
