"""Measures how soon searches find good models: time until a result of the best 1 %, and the mean regret on the way, on
recorded and drawn learning curves, beside searches of other packages in the same simulated cluster."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Deadline, say
from benchmarks.peers.searches import METRIC, PEERS, TIME
from benchmarks.search_tables import EPOCHS, Drawn, trained
from trainmaster.master.search.simulation import (
    LearningCurve,
    RecordedCurves,
    SimulatedCluster,
    Simulation,
    SimulationResult,
)

CACHE = Path(os.environ.get("TRAINMASTER_CACHE", "/var/cache/trainmaster"))
PEER_PYTHON = CACHE / "search-peers" / "bin" / "python"
PRIOR = CACHE / "ifbo"  # the unpacked package
CELLS = ((4, 6.0), (16, 3.0), (64, 1.5))  # workers, and for how many mean full trials
DEATHS = 0.05
OURS = ("random", "async_halving", "asha", "auto")
REFERENCE = "asha"


@dataclass
class Task:
    """`target`: a value that one point in a hundred reaches; `best`: of all points; `full`: seconds of a full trial."""

    name: str
    space: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]] = ()
    values: Sequence[Sequence[float]] = ()
    seconds: Sequence[float] = ()
    drawn: int | None = None  # the seed of a drawn task, whose curves are made when they are asked for
    target: float = 0.0
    best: float = 0.0
    worst: float = 0.0
    full: float = 0.0

    def curves(self) -> Any:
        """Return where trials take their values from."""
        if self.drawn is not None:
            return DrawnCurves(self.drawn)
        return RecordedCurves(self.points, self.values, self.seconds)


@dataclass
class DrawnCurves:
    """Curves of a drawn task, each made once."""

    seed: int
    made: dict[Any, LearningCurve] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.task = Drawn(self.seed, PRIOR)

    def curve(self, hparams: Mapping[str, Any], taken: Any) -> LearningCurve:
        del taken
        key = tuple(hparams[name] for name in self.task.names)
        if key not in self.made:
            values, seconds = self.task.curve(dict(hparams))
            self.made[key] = LearningCurve(len(self.made), values, seconds)
        return self.made[key]


def tasks(drawn: Sequence[int]) -> list[Task]:
    """Return the trained tables, and tasks that are drawn with these seeds."""
    found = []
    for name in ("digits", "synth"):
        table = trained(name, CACHE / "search-tables")
        rows = [[float(value) for value in row] for row in table["values"]]
        found.append(
            _judged(Task(name, table["space"], table["points"], rows, table["seconds"]), rows, table["seconds"])
        )
    for seed in drawn:
        task, stream = Drawn(seed, PRIOR), random.Random(5)
        curves = [task.curve({name: stream.random() for name in task.names}) for _ in range(1000)]
        found.append(
            _judged(Task(f"drawn {seed}", task.space, drawn=seed), [c[0] for c in curves], [c[1] for c in curves])
        )
    return found


def _judged(task: Task, rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> Task:
    lowest = sorted(min(row) for row in rows)
    task.best, task.target = lowest[0], lowest[max(len(lowest) // 100, 1)]
    task.worst = statistics.median(row[-1] for row in rows)
    task.full = statistics.fmean(seconds) * EPOCHS
    return task


@dataclass
class Found:
    """Of one search in one cell. `times`: until the target, in full trials, infinite where it was not reached;
    `regrets`: the mean distance to the best value on the way, as a part of the median's; `cpu`: milliseconds of a
    suggestion."""

    times: list[float] = field(default_factory=list)
    regrets: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, task: Task, bests: Sequence[Sequence[float]], seconds: float, cpu: float) -> None:
        hit = next((at for at, value in bests if value <= task.target), math.inf)
        self.times.append(hit / task.full)
        area, before, now = 0.0, 0.0, task.worst
        for at, value in bests:
            area += (min(at, seconds) - before) * (now - task.best)
            before, now = at, min(now, value)
        area += (seconds - before) * (now - task.best)
        self.regrets.append(area / seconds / max(task.worst - task.best, 1e-9))
        self.cpu.append(1000 * cpu)


def section(name: str, workers: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": name, "metric": METRIC, "max_trials": 100_000, "max_concurrent_trials": workers,
    }  # fmt: skip
    if name != "random":
        found |= {"time_metric": TIME, "max_time": EPOCHS, "divisor": 3}
    if name == "async_halving":
        found["num_rungs"] = 5
    return found


def ours(name: str, task: Task, seeds: int) -> dict[int, Found]:
    """Run one of our searches on a task; return what it found, by workers."""
    curves = task.curves()
    cells: dict[int, Found] = {}
    for workers, length in CELLS:
        found = cells[workers] = Found()
        for seed in range(seeds):
            before = time.process_time()
            cluster = SimulatedCluster(workers, deaths=DEATHS)
            outcome: SimulationResult = Simulation.of(section(name, workers), task.space, curves, cluster, seed).run(
                length * task.full
            )
            cpu = (time.process_time() - before) / max(len(outcome.trained), 1)
            found.add(task, outcome.bests, length * task.full, cpu)
    return cells


def peers(name: str, task: Task, seeds: int) -> dict[int, Found]:
    """Run a search of another package, in an environment of its own."""
    cells: dict[int, Found] = {}
    lengths = {workers: length * task.full for workers, length in CELLS}
    given = pickle.dumps((task, list(lengths.items()), seeds, DEATHS))
    done = subprocess.run(
        [PEER_PYTHON, "-W", "ignore", "-m", "benchmarks.peers.searches", name],
        input=given, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    for line in done.stdout.splitlines():
        workers, _, bests, cpu = json.loads(line)
        cells.setdefault(workers, Found()).add(task, bests, lengths[workers], cpu)
    return cells


def run(deadline: Deadline) -> None:
    """Print a line for each task, workers and search."""
    del deadline
    seeds = int(os.environ.get("TRAINMASTER_SEARCH_SEEDS", "10"))
    drawn = [100 + n for n in range(int(os.environ.get("TRAINMASTER_SEARCH_DRAWN", "6")))]
    names = [*OURS, *(PEERS if PEER_PYTHON.exists() else ())]
    every = tasks(drawn)
    with ProcessPoolExecutor(2) as pool:
        futures = {
            (task.name, name): pool.submit(ours if name in OURS else peers, name, task, seeds)
            for task in every
            for name in names
        }
        for task in every:
            for workers, _ in CELLS:
                for name in names:
                    _print(task.name, workers, name, futures[task.name, name].result()[workers])
    for name in names:
        _summarise(name, every, {key: future.result() for key, future in futures.items()})


def _print(task: str, workers: int, name: str, found: Found) -> None:
    low, high = _band(found.regrets)
    say(
        f"search {task}, {workers} workers",
        name,
        f"target after {statistics.median(found.times):.2f} full trials "
        f"({sum(math.isfinite(each) for each in found.times)} of {len(found.times)} seeds); "
        f"regret {statistics.fmean(found.regrets):.3f} ({low:.3f} to {high:.3f}); "
        f"{statistics.fmean(found.cpu):.1f} ms of CPU a trial",
    )


def _summarise(name: str, every: Sequence[Task], found: Mapping[tuple[str, str], Mapping[int, Found]]) -> None:
    logs = []
    for task in every:
        for workers, _ in CELLS:
            mine, reference = (
                max(statistics.fmean(found[task.name, each][workers].regrets), 1e-4) for each in (name, REFERENCE)
            )
            logs.append(math.log(mine / reference))
    say("search", name, f"regret {math.exp(statistics.fmean(logs)):.2f} of {REFERENCE}'s, over all tasks and workers")


def _band(values: Sequence[float]) -> tuple[float, float]:
    """Return the middle 90 % of means of samples with replacement."""
    stream = random.Random(1)
    means = sorted(statistics.fmean(stream.choices(values, k=len(values))) for _ in range(500))
    return means[25], means[474]


if __name__ == "__main__":
    sys.exit("bash scripts/bench search")
