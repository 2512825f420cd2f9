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
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Deadline, Unavailable, machine, say
from benchmarks.peers.search_peer import FACTOR, METRIC, TIME, TimedSearch
from benchmarks.peers.searches import PEERS
from benchmarks.scan_tables import clip, language
from benchmarks.search_report import Results, RunRecord, TaskRecord, of_cell, verdicts
from benchmarks.search_tables import EPOCHS, Drawn, trained
from trainmaster.master.search.search import Search
from trainmaster.master.search.simulation import LearningCurve, RecordedCurves, SimulatedCluster, Simulation
from trainmaster.master.values.search import SearchGoal

CACHE = Path(os.environ.get("TRAINMASTER_CACHE", "/var/cache/trainmaster"))
PRIOR = CACHE / "ifbo"  # the unpacked package
SCAN = CACHE / "scan-bench" / "scan_bench"  # its files
CELLS = ((4, 6.0), (16, 3.0), (64, 1.5))  # workers, and for how many mean full trials
DEATHS = 0.05
POOLED = 0.05  # of a pool of some hundred runs, of which few are one in a hundred
OURS = ("random", "async_halving", "asha", "auto")


@dataclass
class Task:
    """`target`: a value that a `share` of the points reaches; `best`: of all points; `full`: seconds of a full trial;
    `early`, `early_best`: the rank correlation of values after one epoch with those at the end, and with the best ones
    (which differ where curves rise again)."""

    name: str
    space: Mapping[str, Any]
    points: Sequence[Mapping[str, Any]] = ()
    values: Sequence[Sequence[float]] = ()
    seconds: Sequence[float] = ()
    drawn: int | None = None  # the seed of a drawn task, whose curves are made when they are asked for
    epochs: int = EPOCHS
    cells: Sequence[tuple[int, float]] = CELLS
    share: float = 0.01
    target: float = 0.0
    best: float = 0.0
    worst: float = 0.0
    full: float = 0.0
    early: float = 0.0
    early_best: float = 0.0

    def curves(self) -> Any:
        """Return where trials take their values from."""
        if self.drawn is not None:
            return DrawnCurves(self.drawn)
        return RecordedCurves(self.points, self.values, self.seconds)

    def record(self) -> TaskRecord:
        points = len(self.points) or None
        return TaskRecord(self.name, self.epochs, self.early, self.target, self.best, self.worst, points)


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
    """Return the trained tables, those of real trainings, and tasks that are drawn with these seeds."""
    found = []
    for name in ("digits", "synth"):
        table = trained(name, CACHE / "search-tables")
        table["values"] = [[float(value) for value in row] for row in table["values"]]
        found.append(_tabled(name, table))
    if SCAN.exists():
        # 64 workers would train nearly all of the first pool, whatever the search.
        found.append(_tabled("OpenCLIP", clip(SCAN), epochs=9, cells=CELLS[:2], share=POOLED))
        found.append(_tabled("language", language(SCAN), epochs=3, share=POOLED))
    for seed in drawn:
        task, stream = Drawn(seed, PRIOR), random.Random(5)
        curves = [task.curve({name: stream.random() for name in task.names}) for _ in range(1000)]
        found.append(
            _judged(Task(f"drawn {seed}", task.space, drawn=seed), [c[0] for c in curves], [c[1] for c in curves])
        )
    return found


def _tabled(name: str, table: Mapping[str, Any], **other: Any) -> Task:
    task = Task(name, table["space"], table["points"], table["values"], table["seconds"], **other)
    return _judged(task, task.values, task.seconds)


def _judged(task: Task, rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> Task:
    lowest = sorted(min(row) for row in rows)
    task.best, task.target = lowest[0], lowest[max(int(len(lowest) * task.share), 1)]
    task.worst = statistics.median(row[-1] for row in rows)
    task.full = statistics.fmean(seconds) * task.epochs
    first = [row[0] for row in rows]
    task.early = rank_correlation(first, [row[-1] for row in rows])
    task.early_best = rank_correlation(first, [min(row) for row in rows])
    return task


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's; equal values share the mean of their ranks."""
    ranks = []
    for values in (first, second):
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count - 1) / 2)[place])
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def section(name: str, workers: int, epochs: int) -> dict[str, Any]:
    """Return the searcher's section of a configuration."""
    found: dict[str, Any] = {
        "name": name, "metric": METRIC, "max_trials": 100_000, "max_concurrent_trials": workers,
    }  # fmt: skip
    if name != "random":
        found |= {"time_metric": TIME, "max_time": epochs, "divisor": FACTOR}
    if name == "async_halving":
        found["num_rungs"] = round(math.log(epochs, FACTOR)) + 1
    return found


@dataclass(frozen=True)
class Job:
    """Runs of one search on one task. `until`: by the clock, when no further run begins."""

    name: str
    task: Task
    seeds: range
    until: float


def ours(job: Job) -> list[RunRecord]:
    """Run one of our searches on a task."""
    curves, task = job.task.curves(), job.task
    found: list[RunRecord] = []
    for seed in job.seeds:
        for workers, length in task.cells:
            if time.time() > job.until:
                return found
            configuration = section(job.name, workers, task.epochs)
            before = time.process_time()
            search, actions = Search.start(configuration, task.space, seed, at=0.0)
            timed = TimedSearch(search, actions, time.process_time() - before)
            cluster, goal = SimulatedCluster(workers, deaths=DEATHS), SearchGoal.from_json(configuration)
            outcome = Simulation(timed, actions, goal, curves, cluster, seed).run(length * task.full)
            found.append(_record(job, workers, length, seed, outcome.bests, timed.cpu, timed.created))
    return found


def peers(job: Job) -> list[RunRecord]:
    """Run a search of another package, in an environment of its own."""
    lengths = dict(job.task.cells)
    seconds = [(workers, length * job.task.full) for workers, length in job.task.cells]
    done = subprocess.run(
        [os.environ[PEERS[job.name].environment], "-W", "ignore", "-m", "benchmarks.peers.searches", job.name],
        input=pickle.dumps((job.task, seconds, job.seeds, DEATHS, job.until)),
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"{job.name} on {job.task.name}: {done.stderr.decode().strip()[-2000:]}")
    found = []
    for line in done.stdout.splitlines():
        workers, seed, bests, cpu, created = json.loads(line)
        found.append(_record(job, workers, lengths[workers], seed, bests, cpu, created))
    return found


def _record(
    job: Job, workers: int, length: float, seed: int, bests: Sequence[Sequence[float]], cpu: float, created: int
) -> RunRecord:
    """Measure a run by each time at which a better value than all before was reported, with it."""
    task, seconds = job.task, length * job.task.full
    hit = next((at / task.full for at, value in bests if value <= task.target), None)
    area, before, now = 0.0, 0.0, task.worst
    for at, value in bests:
        area += (at - before) * now
        before, now = at, min(now, value)
    area += (seconds - before) * now
    cpu = 1000 * cpu / max(created, 1)
    return RunRecord(task.name, workers, job.name, seed, hit, area / seconds, now, cpu, created, length)


def run(deadline: Deadline) -> None:
    """Print a line for each task, workers and search, then what passes."""
    hours = os.environ.get("TRAINMASTER_SEARCH_HOURS")
    until = time.time() + (float(hours) * 3600 if hours else deadline.left)
    drawn = [100 + n for n in range(int(os.environ.get("TRAINMASTER_SEARCH_DRAWN", "6")))]
    kept = os.environ.get("TRAINMASTER_SEARCH_RESULTS")
    results = Results(machine(), [*OURS, *PEERS], [name for name, each in PEERS.items() if each.random])
    every = tasks(drawn)
    for task in every:
        results.tasks.append(task.record())
        told = (f"with the last {task.early:.2f}", f"with the best {task.early_best:.2f}")
        say(f"search {task.name}", "rank correlation of the first epoch", *told)
    with ProcessPoolExecutor(2) as pool:
        for done in as_completed(pool.submit(ours if job.name in OURS else peers, job) for job in jobs(every, until)):
            try:
                results.runs += done.result()
            except Unavailable as reason:
                say("search", "not measured", reason)
            if kept:  # each time: of a run that is ended early, what it measured
                results.write(Path(kept))
    for (name, workers), cell in results.cells().items():
        for search, runs in cell.items():
            say(f"search {name}, {workers} workers", search, of_cell(results, runs))
    for what, outcome in verdicts(results):
        say("search", what, outcome)


def jobs(every: Sequence[Task], until: float) -> list[Job]:
    """Return what is to be run, in an order in which all searches get on alike: the time may be over before the end."""
    seeds = int(os.environ.get("TRAINMASTER_SEARCH_SEEDS", "10"))
    costly = int(os.environ.get("TRAINMASTER_SEARCH_COSTLY_SEEDS", str(min(seeds, 3))))
    only = [name for name in os.environ.get("TRAINMASTER_SEARCH_ONLY", "").split(",") if name]
    names = [*OURS, *(name for name, each in PEERS.items() if os.environ.get(each.environment))]
    found = []
    for name in names:
        wanted, step = (costly, 1) if name in PEERS and PEERS[name].costly else (seeds, 10)
        for first in range(0, wanted, step) if name in (only or names) else ():
            share = range(first, min(first + step, wanted))
            found += [(first / wanted, step == 1, at, Job(name, task, share, until)) for at, task in enumerate(every)]
    return [job for *_, job in sorted(found, key=lambda each: each[:3])]


if __name__ == "__main__":
    sys.exit("bash scripts/bench search")
