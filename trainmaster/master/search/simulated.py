"""Simulates a search in a process of its own: reads a request as JSON from its input, writes the answer.

A simulation takes seconds of a processor, which the master has better uses for; the process may have so many, and no
more, and so much memory.
"""

from __future__ import annotations

import bisect
import json
import math
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainmaster.master.search.actions import SearchError
from trainmaster.master.search.simulation import RecordedCurves, SimulatedCluster, Simulation
from trainmaster.master.values.search import SearchGoal

CPU_SECONDS = 60
MEMORY = 2 * 2**30
MOST_TIMES = 200  # at which the best value over time is told


def simulate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a search for each seed.

    Args:
        request: `searcher` and `space` (sections of a configuration), `points`, `values` and `seconds` (recorded
            trials), `workers`, `delay` (median seconds in the queue and the standard deviation of their logarithm),
            `deaths` (the part of all jobs that die), `walltime` (seconds of a job, or None), `slots` (of a job),
            `seeds` (how many).

    Returns:
        `runs`, one a seed: `bests` (seconds and value of each improvement), `spent` (slot-seconds used by then),
        `seconds` until the end, `slot_seconds`, `trials`, `lengths` (units trained, and how many trials).
        `course`: the best value over time of all runs together (`course_of`). Or `error`, a sentence.
    """
    curves = RecordedCurves(request["points"], request["values"], request["seconds"])
    median, spread = request["delay"]

    def delay(stream: random.Random) -> float:
        return median * stream.lognormvariate(0.0, spread) if median else 0.0

    walltime = math.inf if request["walltime"] is None else request["walltime"]
    runs = []
    for seed in range(request["seeds"]):
        cluster = SimulatedCluster(request["workers"], delay, request["deaths"], walltime, request["slots"])
        try:
            outcome = Simulation.of(request["searcher"], request["space"], curves, cluster, seed).run()
        except SearchError as error:
            return {"error": str(error)}
        runs.append(
            {
                "bests": outcome.bests,
                "spent": outcome.spent,
                "seconds": outcome.end,
                "slot_seconds": outcome.slot_seconds,
                "trials": len(outcome.trained),
                "lengths": sorted(Counter(outcome.trained).items()),
            }
        )
    smaller = SearchGoal.from_json(request["searcher"]).smaller_is_better
    return {"runs": runs, "course": course_of(runs, smaller=smaller)}


def course_of(runs: Sequence[Mapping[str, Any]], *, smaller: bool) -> dict[str, list[Any]]:
    """Return the best value over time: `seconds`, and at each the `median` and the quartiles (`lower` and `upper`) over
    the runs. They are None while too few runs have a value; one without a value counts as the worst."""
    times = sorted({at for run in runs for at, _ in run["bests"]} | {run["seconds"] for run in runs})
    if len(times) > MOST_TIMES:
        times = [times[round(at * (len(times) - 1) / (MOST_TIMES - 1))] for at in range(MOST_TIMES)]
    worst = math.inf if smaller else -math.inf
    quartiles: dict[str, list[Any]] = {"lower": [], "median": [], "upper": []}
    for time in times:
        reached = [bisect.bisect_right(run["bests"], time, key=lambda each: each[0]) for run in runs]
        values = sorted(
            run["bests"][place - 1][1] if place else worst for run, place in zip(runs, reached, strict=True)
        )
        for at, name in enumerate(quartiles, 1):
            value = _quantile(values, at / 4)
            quartiles[name].append(value if math.isfinite(value) else None)
    return {"seconds": times, **quartiles}


def _quantile(values: Sequence[float], part: float) -> float:
    """Return a quantile of sorted values, some of which may be infinite."""
    place = part * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)


def main() -> None:
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    json.dump(simulate(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
