"""Clocks, medians, and the printed line of each claim."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


class Unavailable(RuntimeError):
    """A section cannot be measured on this machine; the message says why."""


@dataclass(frozen=True)
class Sample:
    """Measured values of one thing, in `unit`; `tails` are the quantiles that are told beside the median."""

    values: Sequence[float]
    unit: str = "ms"
    tails: Sequence[float] = (0.95,)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def quantile(self, share: float) -> float:
        ordered = sorted(self.values)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]

    def __str__(self) -> str:
        tails = "".join(f"p{share * 100:.0f} {figure(self.quantile(share))}, " for share in self.tails)
        return f"{figure(self.median)} {self.unit} ({tails}n {len(self.values)})"


class Deadline:
    """Ends a section in time: what has been measured by then counts."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._until - time.monotonic(), 0.0)


def figure(value: float) -> str:
    """Three significant figures."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def say(section: str, claim: str, *values: object) -> None:
    print(f"{section:<8} {claim}: {'; '.join(map(str, values))}", flush=True)


def versus(ours: float, peer: float, peer_name: str) -> str:
    return f"{figure(ours / peer)} times {peer_name}" if peer else f"{peer_name} is too fast to compare"


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def repeated(work: Callable[[], object], times: int, deadline: Deadline, *, warm_up: int = 1) -> Sample:
    """At least one measurement, at most `times`, within the deadline."""
    for _ in range(warm_up):
        work()
    values = [timed(work)]
    while len(values) < times and deadline.left > 0:
        values.append(timed(work))
    return Sample(values)


def machine() -> str:
    """What the figures were measured on, in one line."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{os.cpu_count()} x {model}",
        f"{memory:.0f} GiB",
        f"Linux {platform.release()}",
        f"Python {platform.python_version()}",
        _version("postgres"),
        _version("sbatch"),
        f"load {os.getloadavg()[0]:.1f}",
        time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    ]
    return ", ".join(part for part in parts if part)


def _version(program: str) -> str:
    if program == "postgres":
        from trainmaster.master.db.binaries import find_binaries

        program = find_binaries(None).program("postgres")
    try:
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
