"""Limits of the fields of received data: each has one, also a field that is in no table here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.master.db.request_context import CURRENT
from trainmaster.master.services import bounds
from trainmaster.master.services.errors import Invalid

# Limits of texts whose names these are, for characters; of all others it is `name`.
LENGTHS: Mapping[str, str] = {
    **dict.fromkeys(("description", "notes", "contents", "comment", "message"), "text"),
    **dict.fromkeys(("value", "url", "data", "filter", "sort", "path"), "text"),
}
# Fields that are checked elsewhere: where.
ELSEWHERE: Mapping[str, str] = {
    "config": "limits.config: config/source.py",
    "override_config": "limits.config: config/source.py",
    "config_policies": "limits.config: config/source.py",
    "content": "limits.context: services/files/context_archive.py",
    "model_definition": "limits.context: services/files/context_archive.py",
    "context_directory": "limits.context: services/files/context_archive.py",
    "files": "limits.context: services/files/context_archive.py",
    "diff": "cut: config/git_state.py",
    "log": "cut: services/logs/log_store.py",
    "logs": "lines, each of which is checked; limits.request_values",
    "records": "services/ingest/records.py, services/ingest/logs.py",
    "reports": "pieces of streams, each of which is checked",
    "avg_metrics": "limits.report_values, limits.metric_names: services/metrics/metric_reports.py",
    "batch_metrics": "limits.report_values: services/ingest/single_calls.py",
    "training": "dropped",
    "resources": "limits.checkpoint_files: services/bounds.py",
    "checkpoint": "limits.metadata: services/bounds.py",
    "points": "trials, names and values: services/views/recorded_curves.py; limits.request_values",
    "values": "as points",
    "seconds": "as points",
    "addresses": "64 of 256 characters: api/job_reports.py",
    "accelerator_uuids": "limits.job_entry: services/allocations/harness.py",
}


def check(fields: Iterable[tuple[str, Any]]) -> None:
    """Raise Invalid for fields, with their values, over their limits. Those that are checked ELSEWHERE are left."""
    limits = CURRENT.get().limits
    for name, value in fields:
        if value is None or isinstance(value, int | float) or name in ELSEWHERE:
            continue
        if isinstance(value, str):
            bounds.check_length(limits, value, LENGTHS.get(name, "name"), f"{name} ({value:.40} ...)")
        elif isinstance(value, list):
            _check_list(limits, name, value)
        elif isinstance(value, dict):
            if name == "metadata":
                bounds.check_metadata(limits, value)
            else:
                bounds.check_value(limits, value, name)


def _check_list(limits: Limits, name: str, value: list[Any]) -> None:
    key = "labels" if name == "labels" else "ids"
    if excess := limits.over(key, len(value), f"{name} has {{}} entries"):
        raise Invalid(excess)
    for entry in value:
        if isinstance(entry, str):
            bounds.check_length(limits, entry, "name", f"An entry of {name} ({entry:.40} ...)")
        elif isinstance(entry, dict | list):
            bounds.check_value(limits, value, name)
            return
