"""Simulates a search in a process of its own: reads a request as JSON from its input, writes the answer.

A simulation takes seconds of a processor, which the master has better uses for; the process may have so many, and no
more, and so much memory.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from trainmaster.master.search.actions import SearchError
from trainmaster.master.search.simulation import RecordedCurves, SimulatedCluster, Simulation

CPU_SECONDS = 60
MEMORY = 2 * 2**30


def simulate(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a search for each seed.

    Args:
        request: `searcher` and `space` (sections of a configuration), `points`, `values` and `seconds` (recorded
            trials), `workers`, `delay` (median seconds in the queue and the standard deviation of their logarithm),
            `deaths` (the part of all jobs that die), `seeds` (how many).

    Returns:
        `runs`, one a seed: `bests` (seconds and value of each improvement), `seconds` until the end, `slot_seconds`,
        `trials`, `lengths` (units trained, and how many trials). Or `error`, a sentence.
    """
    curves = RecordedCurves(request["points"], request["values"], request["seconds"])
    median, spread = request["delay"]

    def delay(stream: random.Random) -> float:
        return median * stream.lognormvariate(0.0, spread) if median else 0.0

    runs = []
    for seed in range(request["seeds"]):
        cluster = SimulatedCluster(request["workers"], delay, request["deaths"])
        try:
            outcome = Simulation.of(request["searcher"], request["space"], curves, cluster, seed).run()
        except SearchError as error:
            return {"error": str(error)}
        runs.append(
            {
                "bests": outcome.bests,
                "seconds": outcome.end,
                "slot_seconds": outcome.slot_seconds,
                "trials": len(outcome.trained),
                "lengths": sorted(Counter(outcome.trained).items()),
            }
        )
    return {"runs": runs}


def main() -> None:
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    json.dump(simulate(json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
