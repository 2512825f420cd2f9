"""ProfilerContext: reports the load of the node and its GPUs while it trains; names as in Determined 0.38.1."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Dict, List, Mapping, Optional

from trainmaster.core.reports import Reports

_SECTOR = 512  # bytes; the unit of /proc/diskstats whatever the device
_KIB = 1024

Sample = Dict[str, Dict[str, float]]  # group (or a GPU's UUID) -> metric -> value


class ProfilerContext:
    """Samples CPU, memory, disk, network and this job's GPUs on the chief's node, and reports the means as metrics
    of the groups `cpu`, `memory`, `disk`, `network` and `gpu`, below the node's name."""

    def __init__(self, agent_id: str, reports: Optional[Reports]) -> None:
        """Report to `reports`; None: nothing is to be reported."""
        self._agent_id = agent_id
        self._reports = reports
        self._stop: Optional[threading.Event] = None
        self._thread: Optional[threading.Thread] = None
        self._count = 0

    def on(self, sampling_interval: float = 1, samples_per_report: int = 10) -> None:
        """Start sampling. Does nothing when it has started, outside of a job, and on ranks other than the chief.

        Args:
            sampling_interval: Seconds between two samples, at least 0.1.
            samples_per_report: Samples of which a report has the means, at least 1.

        Raises:
            ValueError: An argument is too small.
        """
        if sampling_interval < 0.1 or samples_per_report < 1:
            raise ValueError("sampling_interval must be at least 0.1 s, samples_per_report at least 1")
        if self._reports is None or self._thread is not None:
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            args=(self._stop, float(sampling_interval), samples_per_report),
            name="core-profiler",
            daemon=True,
        )
        self._thread.start()

    def off(self) -> None:
        """Stop sampling. Waits for a sample that is being taken."""
        if self._thread is not None and self._stop is not None:
            self._stop.set()
            self._thread.join()
            self._thread = self._stop = None

    def _run(self, stop: threading.Event, interval: float, samples_per_report: int) -> None:
        from trainmaster.core.gpus import open_reader  # most trainings are not profiled

        read_gpus = open_reader()
        previous = read_counters()
        samples: List[Sample] = []
        of_gpus: List[Sample] = []
        while not stop.wait(interval):
            current = read_counters()
            samples.append(rates(previous, current))
            of_gpus.append(read_gpus())
            previous = current
            if len(samples) == samples_per_report:
                self._report(mean(samples), mean(of_gpus))
                samples, of_gpus = [], []

    def _report(self, means: Sample, of_gpus: Sample) -> None:
        # Determined nests a disk's metrics below the path that is mounted, and a GPU's below its UUID.
        groups: Dict[str, Any] = {**means, "gpu": of_gpus}
        if "disk" in groups:
            groups["disk"] = {"/": groups["disk"]}
        assert self._reports is not None
        for group, measured in groups.items():
            if measured:
                metrics = {self._agent_id: measured}
                self._reports.add("metrics", group=group, steps_completed=self._count, metrics=metrics)
        self._count += 1


def read_counters() -> Dict[str, float]:
    """Read the kernel's counters now; a source that cannot be read is left out."""
    counters: Dict[str, float] = {"time": time.monotonic()}
    for line in _lines("/proc/stat"):
        if line.startswith("cpu "):
            ticks = [float(word) for word in line.split()[1:9]]
            counters["cpu_total"] = sum(ticks)
            counters["cpu_idle"] = ticks[3] + ticks[4]  # idle and iowait, proc(5)
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            counters["memory_free"] = float(line.split()[1]) * _KIB
    device = _root_device()
    for line in _lines("/proc/diskstats"):
        words = line.split()
        if device is not None and words[0:2] == device:
            counters["disk_operations"] = float(words[3]) + float(words[7])
            counters["disk_read"] = float(words[5]) * _SECTOR
            counters["disk_written"] = float(words[9]) * _SECTOR
            counters["disk_busy"] = float(words[12]) / 1000.0
    sent = received = 0.0
    for line in _lines("/proc/net/dev"):
        name, colon, rest = line.partition(":")
        if colon and name.strip() != "lo":
            words = rest.split()
            received += float(words[0])
            sent += float(words[8])
    counters["net_sent"], counters["net_received"] = sent, received
    return counters


def rates(before: Mapping[str, float], after: Mapping[str, float]) -> Sample:
    """Group -> metric -> value between two readings. Percent, bytes, and bytes or operations a second."""
    seconds = max(1e-9, after["time"] - before["time"])

    def per_second(name: str) -> float:
        return max(0.0, after[name] - before[name]) / seconds

    groups: Sample = {}
    if "cpu_total" in before and "cpu_total" in after:
        total = after["cpu_total"] - before["cpu_total"]
        idle = after["cpu_idle"] - before["cpu_idle"]
        busy = 100.0 * (1.0 - idle / total) if total > 0 else 0.0
        groups["cpu"] = {"cpu_util_simple": min(100.0, max(0.0, busy))}
    if "memory_free" in after:
        groups["memory"] = {"memory_free": after["memory_free"]}
    if "disk_read" in before and "disk_read" in after:
        groups["disk"] = {
            "disk_iops": per_second("disk_operations"),
            "disk_throughput_read": per_second("disk_read"),
            "disk_throughput_write": per_second("disk_written"),
            "disk_util": min(100.0, 100.0 * per_second("disk_busy")),
        }
    groups["network"] = {
        "net_throughput_sent": per_second("net_sent"),
        "net_throughput_recv": per_second("net_received"),
    }
    return groups


def mean(samples: List[Sample]) -> Sample:
    """Return the mean of each metric over the samples that have it."""
    sums: Dict[str, Dict[str, List[float]]] = {}
    for sample in samples:
        for group, metrics in sample.items():
            for name, value in metrics.items():
                sums.setdefault(group, {}).setdefault(name, []).append(value)
    return {
        group: {name: sum(values) / len(values) for name, values in metrics.items()} for group, metrics in sums.items()
    }


def _root_device() -> Optional[List[str]]:
    try:
        device = os.stat("/").st_dev
    except OSError:
        return None
    return [str(os.major(device)), str(os.minor(device))]


def _lines(path: str) -> List[str]:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
