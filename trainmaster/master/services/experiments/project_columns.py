"""Lists the columns by which experiments and runs of a project can be shown, sorted and filtered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.master.db.tables import Experiment, Project, Trial
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import NotFound
from trainmaster.master.services.experiments import runs
from trainmaster.master.services.experiments.experiment_search import STATS, SUMMARY
from trainmaster.master.services.metrics.metric_reports import number

MOST = 10_000  # trials that are read, the latest first
_FIXED = {
    "NUMBER": (
        "id", "forkedFrom", "numTrials", "progress", "checkpointCount", "checkpointSize", "searcherMetricsVal",
        "duration",
    ),
    "TEXT": (
        "name", "description", "tags", "state", "resourcePool", "searcherType", "searcherMetric", "user", "archived",
    ),
    "DATE": ("startTime", "endTime"),
}  # fmt: skip
_RUN_NUMBERS = frozenset(
    {
        *("id", "projectId", "experimentId", "forkedFrom", "checkpointCount", "checkpointSize", "searcherMetricsVal"),
        *("duration", "experimentProgress"),
    }
)
_GROUPS = {key: group for group, key in SUMMARY.items()}


@dataclass(frozen=True)
class ProjectColumn:
    """`location` and `kind` as Determined names them, without their prefixes."""

    name: str
    location: str
    kind: str
    shown: str = ""


@dataclass(frozen=True)
class Range:
    name: str
    low: float
    high: float


class ProjectColumns(BoundService):
    """The columns of a project's tables, and their ranges of values."""

    def columns(self, project_id: int, *, of_runs: bool) -> list[ProjectColumn]:
        """Return the fixed columns, then hyperparameters, then metrics, then metadata of runs. Project 0: of all
        projects."""
        place = "RUN" if of_runs else "EXPERIMENT"
        with self._store.transaction() as session:
            rows = _trials(session, project_id)
        columns = [*(_of_runs() if of_runs else _of_experiments())]
        spaces: dict[str, str] = {}
        measured: dict[str, str] = {}
        kinds: dict[str, str] = {}
        for hparams, summary, metadata in rows:
            for name, value in _flat(hparams):
                spaces.setdefault(name, _kind(value))
            for key, metrics in (summary or {}).items():
                for metric, entry in metrics.items():
                    for stat in STATS:
                        if entry.get("type") == "number" or stat == "last":
                            measured.setdefault(f"{_GROUPS.get(key, key)}.{metric}.{stat}", _kind(entry.get(stat)))
            for name, value in _flat(metadata or {}):
                kinds.setdefault(name, _kind(value))
        head = "RUN_HYPERPARAMETERS" if of_runs else "HYPERPARAMETERS"
        columns += [ProjectColumn(f"hp.{name}", head, kind) for name, kind in sorted(spaces.items())]
        columns += [ProjectColumn(name, _location(name), kind) for name, kind in sorted(measured.items())]
        if of_runs:
            columns += [
                ProjectColumn(f"metadata.{name}", f"{place}_METADATA", kind) for name, kind in sorted(kinds.items())
            ]
        return columns

    def ranges(self, project_id: int) -> list[Range]:
        """Return the smallest and largest value of each metric of a project."""
        with self._store.transaction() as session:
            rows = _trials(session, project_id)
        ends: dict[str, tuple[float, float]] = {}
        for _, summary, _ in rows:
            for key, metrics in (summary or {}).items():
                for metric, entry in metrics.items():
                    for stat in STATS:
                        value = number(entry.get(stat))
                        if entry.get("type") != "number" or value is None:
                            continue
                        name = f"{_GROUPS.get(key, key)}.{metric}.{stat}"
                        low, high = ends.get(name, (value, value))
                        ends[name] = (min(low, value), max(high, value))
        return [Range(name, low, high) for name, (low, high) in sorted(ends.items())]

    def metadata_values(self, project_id: int, key: str) -> list[str]:
        """Return the texts under a key of the metadata of a project's runs; nested keys with dots."""
        with self._store.transaction() as session:
            rows = _trials(session, project_id)
        name = key.removeprefix("metadata.")
        return sorted({str(value) for _, _, metadata in rows for path, value in _flat(metadata or {}) if path == name})


# -- inside -------------------------------------------------------------------------------------------------------


def _trials(session: Session, project_id: int) -> list[tuple[Any, Any, Any]]:
    if project_id and session.get(Project, project_id) is None:
        raise NotFound(f"There is no project {project_id}.")
    query = select(Trial.hparams, Trial.summary_metrics, Trial.run_metadata)
    query = query.join(Experiment, Experiment.id == Trial.experiment_id).where(~Experiment.archived)
    if project_id:
        query = query.where(Experiment.project_id == project_id)
    return list(session.execute(query.order_by(Trial.id.desc()).limit(MOST)))


def _of_experiments() -> Iterator[ProjectColumn]:
    for kind, names in _FIXED.items():
        for name in names:
            yield ProjectColumn(name, "EXPERIMENT", "ARRAY" if name == "tags" else kind)


def _of_runs() -> Iterator[ProjectColumn]:
    for name in runs.NAMES:
        if name == "labels":
            continue
        kind = "NUMBER" if name in _RUN_NUMBERS else "DATE" if name.endswith("Time") else "TEXT"
        yield ProjectColumn(name, "RUN", "ARRAY" if name == "tags" else kind)


def _location(name: str) -> str:
    group = name.partition(".")[0]
    return {"training": "TRAINING", "validation": "VALIDATIONS"}.get(group, "CUSTOM_METRIC")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "ARRAY"
    return "NUMBER" if number(value) is not None else "TEXT"


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
