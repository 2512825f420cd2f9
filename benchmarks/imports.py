"""Measures the CPU time of the imports of every trial: core in each rank, the runtime on each node."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Deadline, Sample, say
from trainmaster.runtime.archive import build_runtime_zip

TIMES = 20
WANTED = 35  # ms of CPU for core
MODULES = {
    "from trainmaster import core": "trainmaster.core",
    "the runtime's own imports": "trainmaster.runtime.main, trainmaster.runtime.node",
}


def run(deadline: Deadline) -> None:
    """Each beside a Python that imports nothing, in turns, from a runtime.zip as in a job."""
    with tempfile.TemporaryDirectory(prefix="tm-bench-") as folder:
        package = Path(folder) / "runtime.zip"
        package.write_bytes(build_runtime_zip())
        programs = {"nothing": "pass"}
        for name, modules in MODULES.items():
            programs[name] = f"import sys; sys.path[0] = {str(package)!r}; import {modules}"
        found: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(TIMES):
            for name, program in programs.items():
                found[name].append(_cpu(program))
            if deadline.left <= 0:
                break
    bare = Sample(found["nothing"])
    for name in MODULES:
        least = min(found[name]) - min(bare.values)
        wanted = f"under {WANTED} is wanted" if "core" in name else "each node of a job"
        say("start", f"{name}, CPU", f"{least:.1f} ms at least", f"with Python itself {Sample(found[name])}", wanted)
    say("start", "Python itself (-S), CPU", bare)


def _cpu(program: str) -> float:
    """Milliseconds."""
    process = subprocess.Popen([sys.executable, "-S", "-c", program])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, program
    return (used.ru_utime + used.ru_stime) * 1000
