"""`python -m benchmarks [SECTION ...]`: runs all sections, or the named ones."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import abuse, asking, commands, doors, fleet, ingest, reading, scheduler, searching, storage, webui
from benchmarks.measure import Deadline, Unavailable, machine, say

# Section -> (what measures it, seconds it may take)
SECTIONS: dict[str, tuple[Callable[[Deadline], None], float]] = {
    "commands": (commands.run, 90),
    "start": (lambda deadline: _scheduling("start", deadline), 420),
    "doors": (doors.run, 400),
    "load": (lambda deadline: _scheduling("load", deadline), 120),
    "minute": (lambda deadline: _many("minute", deadline), 300),
    "scale": (lambda deadline: _many("throughput", deadline), 900),
    "waiting": (lambda deadline: _many("waiting", deadline), 900),
    "scheduler": (scheduler.run, 60),
    "ingest": (ingest.run, 120),
    "asking": (asking.run, 120),
    "reading": (reading.run, 240),
    "abuse": (abuse.run, 600),
    "fleet": (fleet.run, 1800),
    "storage": (storage.run, 600),
    "search": (searching.run, 7200),
    "webui": (webui.run, 1800),
}
CHAOS = "chaos"
CLUSTER = {
    "TRAINMASTER_CLUSTER_RUN": "/var/lib/trainmaster-cluster-bench",
    "TRAINMASTER_CLUSTER_PORT": "18700",
    "TRAINMASTER_CLUSTER_NODES": "b1,b2,b3,b4",
}


def _scheduling(name: str, deadline: Deadline) -> None:
    for key, value in CLUSTER.items():
        os.environ.setdefault(key, value)
    from benchmarks import scheduling

    (scheduling.start if name == "start" else scheduling.load)(deadline)


def _many(name: str, deadline: Deadline) -> None:
    for key, value in CLUSTER.items():
        os.environ.setdefault(key, value)
    from benchmarks import minute, scale

    {"minute": minute.run, "throughput": scale.throughput, "waiting": scale.waiting}[name](deadline)


def _chaos(given: argparse.Namespace) -> None:
    from benchmarks import chaos

    kept = given.kept or Path(tempfile.gettempdir()) / "trainmaster-chaos"
    chaos.run(given.seed, given.minutes, given.on, kept)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure what we claim, beside its peers.")
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all of these without any"
    )
    chaos = parser.add_argument_group(CHAOS, "Searches under random faults; only when it is named.")
    chaos.add_argument("--seed", type=int, default=1, help="the same faults in the same order for the same number")
    chaos.add_argument("--minutes", type=float, default=5.0, help="for how long there are faults, on each dispatcher")
    chaos.add_argument("--on", choices=("slurm", "docker", "both"), default="both")
    chaos.add_argument("--kept", type=Path, help="folder for the logs that explain a violation")
    given = parser.parse_args()
    wanted = given.sections or list(SECTIONS)
    if unknown := set(wanted) - {*SECTIONS, CHAOS}:
        parser.error(f"there is no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)} and {CHAOS}")
    print(f"machine  {machine()}", flush=True)
    for name in wanted:
        try:
            if name == CHAOS:
                _chaos(given)
                continue
            work, seconds = SECTIONS[name]
            work(Deadline(seconds))
        except Unavailable as reason:
            say(name, "not measured", reason)


if __name__ == "__main__":
    main()
