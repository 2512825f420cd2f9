"""Measures our gang scheduler in simulated time, with thousands of agents and jobs, in real seconds."""

from __future__ import annotations

import heapq
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measure import Deadline, say
from trainmaster.dispatchers.docker.scheduler import AgentNode, Fitting, Gang, Scheduler, SchedulingPolicy, Sharing

AGENTS = 1000
SLOTS = 8
JOBS = 10_000
LIMIT = 10.0  # seconds that we claim to stay below
# Slots of a job -> share of all jobs: many small ones, few large gangs.
SIZES = {0: 2, 1: 48, 2: 15, 4: 10, 8: 15, 16: 5, 32: 3, 64: 2}
MEAN_HOURS = 2.0
LOAD = 1.3  # of what the agents can do: a queue builds up
GROUPS = 120
PRIORITIES = (10, 42, 42, 42, 60)
LEAVES_IN = 120.0  # simulated seconds from a preemption request to the job's end

POLICIES = {
    "priority": SchedulingPolicy(),
    "priority, spread": SchedulingPolicy(fitting=Fitting.WORST),
    "priority, preemption": SchedulingPolicy(preemption=True),
    "fair share": SchedulingPolicy(Sharing.FAIR_SHARE),
}


@dataclass(frozen=True)
class Arrival:
    at: float  # simulated seconds
    job: Gang
    lasts: float


@dataclass(frozen=True)
class Result:
    seconds: float  # of this machine's time spent in the scheduler
    rounds: int
    slowest: float  # milliseconds of one round
    waits: Sequence[float]  # simulated seconds
    utilisation: float
    preemptions: int


def workload(seed: int = 1, jobs: int = JOBS, agents: int = AGENTS) -> list[Arrival]:
    """Reproducible; arrivals are a Poisson process."""
    random_ = random.Random(seed)
    sizes = random_.choices(list(SIZES), weights=list(SIZES.values()), k=jobs)
    seconds = MEAN_HOURS * 3600
    rate = LOAD * agents * SLOTS / (statistics.mean(sizes) * seconds)
    at = 0.0
    found = []
    for number, slots in enumerate(sizes):
        at += random_.expovariate(rate)
        group = random_.randrange(GROUPS)
        job = Gang(
            id=f"job-{number:05}",
            slots=slots,
            number=number,
            group=f"group-{group:03}",
            weight=1.0 + group % 3,
            priority=PRIORITIES[group % len(PRIORITIES)],
            max_slots=256 if group % 10 == 0 else None,
        )
        found.append(Arrival(at, job, random_.expovariate(1 / seconds)))
    return found


def simulate(policy: SchedulingPolicy, arrivals: Sequence[Arrival], agents: int = AGENTS) -> Result:
    """Run all jobs to their ends. A preempted one comes again with what it lacks."""
    scheduler = Scheduler(policy)
    for number in range(agents):
        scheduler.set_node(AgentNode(f"agent-{number:04}", SLOTS, aux=100))
    left = {arrival.job.id: arrival.lasts for arrival in arrivals}
    jobs = {arrival.job.id: arrival.job for arrival in arrivals}
    events: list[tuple[float, int, str, str]] = [
        (arrival.at, number, "arrives", arrival.job.id) for number, arrival in enumerate(arrivals)
    ]
    heapq.heapify(events)
    started: dict[str, float] = {}
    ends: dict[str, int] = {}  # job -> number of the event that ends it; others are void
    waits: list[float] = []
    asked: dict[str, float] = {arrival.job.id: arrival.at for arrival in arrivals}
    number, rounds, spent, slowest, preemptions, used = len(events), 0, 0.0, 0.0, 0, 0.0
    now = 0.0
    while events:
        now, event, what, job_id = heapq.heappop(events)
        begun = time.perf_counter()
        if what == "arrives":
            scheduler.submit(jobs[job_id])
        elif ends.get(job_id) == event:
            scheduler.release(job_id)
            used += (now - started[job_id]) * jobs[job_id].slots
            left[job_id] -= now - started.pop(job_id)
            del ends[job_id]
            if left[job_id] > 1e-6:
                asked[job_id] = now
                scheduler.submit(jobs[job_id])
        else:
            continue
        decisions = scheduler.decide()
        took = time.perf_counter() - begun
        spent, slowest, rounds = spent + took, max(slowest, took), rounds + 1
        for start in decisions.starts:
            number += 1
            started[start.job_id], ends[start.job_id] = now, number
            waits.append(now - asked[start.job_id])
            heapq.heappush(events, (now + left[start.job_id], number, "ends", start.job_id))
        for preempt in decisions.preemptions:
            preemptions += 1
            number += 1
            gone = min(now + LEAVES_IN, started[preempt.job_id] + left[preempt.job_id])
            ends[preempt.job_id] = number
            heapq.heappush(events, (gone, number, "ends", preempt.job_id))
    assert not scheduler.waiting(), "jobs were left waiting"
    return Result(spent, rounds, slowest * 1000, waits, used / (now * agents * SLOTS), preemptions)


def run(deadline: Deadline) -> None:
    """One line a policy."""
    arrivals = workload()
    for name, policy in POLICIES.items():
        if not deadline.left:
            return
        found = simulate(policy, arrivals)
        waits = sorted(found.waits)
        say(
            "scheduler",
            f"{JOBS:,} jobs on {AGENTS:,} agents of {SLOTS} slots, {name}",
            f"{found.seconds:.2f} s for {found.rounds:,} rounds (claimed: under {LIMIT:.0f} s)",
            f"{found.seconds / found.rounds * 1e6:.0f} us a round, the slowest {found.slowest:.1f} ms",
            f"slots in use {found.utilisation:.0%}",
            f"median wait {waits[len(waits) // 2] / 60:.0f} min, p95 {waits[int(len(waits) * 0.95)] / 60:.0f} min",
            f"{found.preemptions} preemptions",
        )
