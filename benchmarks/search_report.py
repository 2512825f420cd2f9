"""What runs of searches say: medians with bootstrap bands, whether they pass what was set, and a table for the docs.

`python -m benchmarks.search_report FILE` prints the table, and `--verdicts` the lines, of results that
`scripts/bench search` wrote to the file named by TRAINMASTER_SEARCH_RESULTS.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MISLEADING = 0.3  # rank correlation of the lowest rung with the end, below which early epochs mislead
WORSE = 1.10
BETTER = 0.80
SAMPLES = 1000  # with replacement, of a band
MEASURES = ("time", "regret")


@dataclass(frozen=True)
class TaskRecord:
    """`early`: the rank correlation of the values after one epoch with those at the end. `best`: of the points that are
    known; `worst`: the median of all at the end, from which a search starts."""

    name: str
    epochs: int
    early: float
    target: float
    best: float
    worst: float
    points: int | None = None  # None: any point has a curve


@dataclass(frozen=True)
class RunRecord:
    """One run. `time`: until the target, in full trials; None where it was not reached. `mean`: over time, of the best
    value so far; `found`: at the end. `cpu`: milliseconds of a suggestion. `length`: of the run, in full trials."""

    task: str
    workers: int
    search: str
    seed: int
    time: float | None
    mean: float
    found: float
    cpu: float
    trials: int
    length: float


@dataclass
class Results:
    """`searches`: in the order in which they are shown. `random`: the peers that draw points at random."""

    machine: str
    searches: list[str]
    random: list[str]
    tasks: list[TaskRecord] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=0))

    @classmethod
    def read(cls, file: Path) -> Results:
        read = json.loads(file.read_text())
        read["tasks"] = [TaskRecord(**each) for each in read["tasks"]]
        read["runs"] = [RunRecord(**each) for each in read["runs"]]
        return cls(**read)

    def cells(self) -> dict[tuple[str, int], dict[str, list[RunRecord]]]:
        """Return runs by task and workers, and by search."""
        found: dict[tuple[str, int], dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
        for run in sorted(self.runs, key=lambda run: (self.searches.index(run.search), run.seed)):
            found[run.task, run.workers][run.search].append(run)
        order = [task.name for task in self.tasks]
        return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))

    def values(self, runs: Sequence[RunRecord], measure: str) -> Any:
        """Return times, infinite where the target was not reached, or regrets: the mean distance on the way to the best
        value that is known or that any run of the task found, as a part of the median point's."""
        if measure == "time":
            return np.array([math.inf if run.time is None else run.time for run in runs])
        best, worst = self._spans[runs[0].task]
        return np.array([(run.mean - best) / max(worst - best, 1e-9) for run in runs])

    def capped(self, runs: Sequence[RunRecord], measure: str) -> Any:
        """Return values that can be divided: a target that was not reached is reached at the end of the run."""
        return np.clip(self.values(runs, measure), 1e-4, [run.length for run in runs])

    @functools.cached_property
    def _spans(self) -> dict[str, tuple[float, float]]:
        spans = {task.name: (task.best, task.worst) for task in self.tasks}
        for run in self.runs:
            best, worst = spans[run.task]
            spans[run.task] = (min(best, run.found), worst)
        return spans


def of_cell(results: Results, runs: Sequence[RunRecord]) -> str:
    """Return a line on the runs of one search in one cell."""
    times, regrets = results.values(runs, "time"), results.values(runs, "regret")
    reached = int(np.isfinite(times).sum())
    return (
        f"target after {_figure(np.median(times))} full trials ({_band(_medians(times))}; {reached} of {len(times)} "
        f"seeds); regret {regrets.mean():.3f} ({_band(_means(regrets), 3)}); "
        f"{np.mean([run.cpu for run in runs]):.3g} ms of CPU a suggestion"
    )


@dataclass(frozen=True)
class Ratio:
    """Of one search to others in one cell. `low`, `high`: the middle 90 % of samples with replacement."""

    task: str
    workers: int
    other: str  # the best of them
    value: float
    low: float
    high: float

    def verdict(self, limit: float) -> str:
        if self.value <= limit:
            return "passes"
        return "fails" if self.low > limit else "undecided"

    def __str__(self) -> str:
        return f"{_figure(self.value)} ({_figure(self.low)} to {_figure(self.high)}) of {self.other}'s"


def ratio(results: Results, task: str, workers: int, name: str, others: Sequence[str], measure: str) -> Ratio | None:
    """Compare with the best of `others`. None: was not run. A target that is not reached counts as reached at the end:
    the true ratio to a search that does not reach it is at most the one returned. The band is of these two alone: the
    best of several samples would be better than any of them is."""
    cell = results.cells()[task, workers]
    others = [each for each in others if cell.get(each)]
    if not cell.get(name) or not others:
        return None
    sampled = _medians if measure == "time" else _means
    typical: Callable[[Any], Any] = np.median if measure == "time" else np.mean
    mine = results.capped(cell[name], measure)
    rivals = {each: results.capped(cell[each], measure) for each in others}
    best = min(others, key=lambda each: float(typical(rivals[each])))
    samples = sampled(mine, 1) / sampled(rivals[best], 2)
    low, high = np.sort(samples)[[SAMPLES // 20, SAMPLES - 1 - SAMPLES // 20]]
    return Ratio(task, workers, best, float(typical(mine) / typical(rivals[best])), float(low), float(high))


def verdicts(results: Results) -> Iterator[tuple[str, str]]:
    """Yield what is compared, and how it comes out, for each criterion and each cell."""
    misleading = {task.name for task in results.tasks if task.early < MISLEADING}
    every = list(results.cells())
    yield from _criterion(results, "asha", results.random, every, "the best peer that draws at random")
    yield from _criterion(results, "auto", ["asha"], every, "asha")
    yield from _halves(results)
    chosen = [cell for cell in every if cell[0] in misleading]
    if chosen:
        yield from _criterion(results, "auto", ["random"], chosen, "random search, where early epochs mislead")
    else:
        yield "auto", f"no task's first epoch misleads (rank correlation below {MISLEADING})"


def _criterion(
    results: Results, name: str, others: Sequence[str], cells: Sequence[tuple[str, int]], title: str
) -> Iterator[tuple[str, str]]:
    counts: dict[str, dict[str, int]] = {measure: defaultdict(int) for measure in MEASURES}
    for task, workers in cells:
        said = []
        for measure in MEASURES:
            found = ratio(results, task, workers, name, others, measure)
            if found is not None:
                verdict = found.verdict(WORSE)
                counts[measure][verdict] += 1
                said.append(f"{measure} {found}: {verdict}")
        if said:
            yield f"{name} beside {title}, {task}, {workers} workers", "; ".join(said)
    for measure, count in counts.items():
        if count:
            yield (
                f"{name} beside {title}, at most {WORSE:.2f} by {measure}",
                f"{count['passes']} of {sum(count.values())} cells pass, {count['undecided']} are undecided, "
                f"{count['fails']} fail",
            )


def _halves(results: Results) -> Iterator[tuple[str, str]]:
    for measure in MEASURES:
        said, better = [], 0
        for task in results.tasks:
            logs = [
                math.log(found.value)
                for cell, workers in results.cells()
                if cell == task.name and (found := ratio(results, cell, workers, "auto", ["asha"], measure))
            ]
            if logs:
                value = math.exp(sum(logs) / len(logs))
                better += value <= BETTER
                said.append(f"{task.name} {value:.2f}")
        if said:
            yield (
                f"auto at most {BETTER:.2f} of asha's {measure} on half of the tables",
                f"on {better} of {len(said)}: {'passes' if better * 2 >= len(said) else 'fails'} ({', '.join(said)})",
            )


def markdown(results: Results) -> str:
    """Return the comparison as two tables: of all searches, and of all cells."""
    names = [name for name in results.searches if any(run.search == name for run in results.runs)]
    workers = sorted({run.workers for run in results.runs})
    head = [f"{what}, {count} workers" for what in ("time", "regret") for count in workers]
    lines = [_row("search", *head, "target reached", "CPU a suggestion"), _row(*["---"] * (len(head) + 3))]
    for name in names:
        mine = [run for run in results.runs if run.search == name]
        reached = sum(run.time is not None for run in mine) / len(mine)
        figures = [_overall(results, name, count, what) for what in MEASURES for count in workers]
        cpu = float(np.mean([run.cpu for run in mine]))
        lines.append(_row(f"{name} (n {_seeds(mine)})", *figures, f"{reached:.0%}", f"{cpu:.3g} ms"))
    lines += ["", _row("table", "workers", "first epoch tells", "random", "asha", "auto", "best of the others")]
    lines.append(_row(*["---"] * 7))
    early = {task.name: task.early for task in results.tasks}
    for (task, count), cell in results.cells().items():
        others = [name for name in cell if name not in ("random", "asha", "auto")]
        best = min(others, key=lambda name: float(np.median(results.values(cell[name], "time"))), default=None)
        shown = [_short(results, cell[name]) if cell.get(name) else "" for name in ("random", "asha", "auto")]
        rival = f"{best}: {_short(results, cell[best])}" if best else ""
        lines.append(_row(task, str(count), f"{early[task]:.2f}", *shown, rival))
    return "\n".join(lines)


def _overall(results: Results, name: str, workers: int, measure: str) -> str:
    """Return the geometric mean over tasks of what a search takes beside asha."""
    logs = []
    for (_, count), cell in results.cells().items():
        if count == workers and cell.get(name) and cell.get("asha"):
            mine, asha = (results.capped(cell[each], measure).mean() for each in (name, "asha"))
            logs.append(math.log(mine / asha))
    return f"{math.exp(sum(logs) / len(logs)):.2f}" if logs else ""


def _short(results: Results, runs: Sequence[RunRecord]) -> str:
    times = results.values(runs, "time")
    return f"{_figure(np.median(times))} ({_band(_medians(times))})"


def _seeds(runs: Sequence[RunRecord]) -> str:
    numbers = [len(each) for each in _grouped(runs).values()]
    return str(max(numbers)) if min(numbers) == max(numbers) else f"{min(numbers)} to {max(numbers)}"


def _grouped(runs: Sequence[RunRecord]) -> dict[tuple[str, int], list[RunRecord]]:
    found: dict[tuple[str, int], list[RunRecord]] = defaultdict(list)
    for run in runs:
        found[run.task, run.workers].append(run)
    return found


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _sampled(values: Any, seed: int) -> Any:
    return values[np.random.default_rng(seed).integers(0, len(values), (SAMPLES, len(values)))]


def _medians(values: Any, seed: int = 0) -> Any:
    # The lower of the two in the middle: the mean of a time and of never is none.
    return np.sort(_sampled(values, seed), axis=1)[:, (len(values) - 1) // 2]


def _means(values: Any, seed: int = 0) -> Any:
    return _sampled(values, seed).mean(axis=1)


def _band(samples: Any, digits: int = 2) -> str:
    low, high = np.sort(samples)[[len(samples) // 20, len(samples) - 1 - len(samples) // 20]]
    return f"{_figure(low, digits)} to {_figure(high, digits)}"


def _figure(value: Any, digits: int = 2) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "never"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_report", description="Print measured searches.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--verdicts", action="store_true", help="what passes and what does not, in place of the table")
    given = parser.parse_args()
    results = Results.read(given.file)
    if given.verdicts:
        for what, outcome in verdicts(results):
            print(f"{what}: {outcome}")
    else:
        print(markdown(results))


if __name__ == "__main__":
    main()
