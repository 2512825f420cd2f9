"""Reads the profiler's measurements of a trial's machines, series by series."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainmaster.master.services.context import BoundService, MasterContext
from trainmaster.master.services.metrics.metric_reports import PROFILING, MetricReports, number


@dataclass(frozen=True, order=True)
class Series:
    """A series of measurements of a node, or of one of its GPUs."""

    name: str
    agent: str
    gpu: str


@dataclass
class Measured:
    steps: list[int] = field(default_factory=list)
    times: list[dt.datetime] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class ProfilerSeries(BoundService):
    """Measurements of a trial's machines."""

    def __init__(self, master: MasterContext) -> None:
        super().__init__(master)
        self._metric_reports = MetricReports(master)

    def read(self, trial_id: int) -> dict[Series, Measured]:
        """All series of a trial, in the order of time."""
        measured: dict[Series, Measured] = {}
        for group in sorted(PROFILING):
            for report in self._metric_reports.stream([trial_id], group):
                for one, value in _values(report.metrics.get("avg_metrics") or {}):
                    kept = measured.setdefault(one, Measured())
                    kept.steps.append(report.steps)
                    kept.times.append(report.at)
                    kept.values.append(value)
        return dict(sorted(measured.items()))


def _values(reported: Mapping[str, Any]) -> Iterator[tuple[Series, float]]:
    """Unpack a report: values are nested under their node, those of GPUs also under the GPU, those of disks under a
    path."""
    for agent, of_agent in reported.items():
        if not isinstance(of_agent, Mapping):
            continue
        for name, value in of_agent.items():
            if isinstance(value, Mapping):
                for inner, deeper in value.items():
                    if (shown := number(deeper)) is not None:
                        yield Series(inner, agent, name), shown
            elif (shown := number(value)) is not None:
                yield Series(name, agent, ""), shown
