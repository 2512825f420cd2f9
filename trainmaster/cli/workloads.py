"""Table of the reports of trials: a row for each trial and number of batches, a column for each metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainmaster.cli import render

Load = Mapping[str, Any]  # a workload of the API, with one member: training, validation or checkpoint


def table(loads: Iterable[tuple[int, Load]], *, training: bool, trials: bool) -> tuple[list[str], list[list[Any]]]:
    """Headers and rows of the table.

    Args:
        loads: The trial's number and the workload, for each report.
        training: Include training metrics.
        trials: Begin each row with the trial's number.
    """
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    columns: dict[str, dict[str, None]] = {"training": {}, "validation": {}}  # dicts keep the order of arrival
    for trial_id, load in loads:
        (kind, content), *_ = load.items()
        if kind == "training" and not training:
            continue
        row = rows.setdefault((trial_id, int(content["totalBatches"])), {})
        row["time"] = content.get("endTime")
        if kind == "checkpoint":
            row["checkpoint"] = str(content.get("state", "")).removeprefix("STATE_")
            row["uuid"] = content.get("uuid")
            continue
        for name, value in (content.get("metrics", {}).get("avgMetrics") or {}).items():
            row[f"{kind} {name}"] = value
            columns[kind][f"{kind} {name}"] = None
    metrics = [*columns["training"], *columns["validation"]]
    headers = ["# of Batches", "Report Time", *metrics, "Checkpoint", "Checkpoint UUID"]
    lines: list[list[Any]] = []
    for (trial_id, batches), row in sorted(rows.items()):
        cells = [batches, render.Moment(row["time"] or ""), *(row.get(name) for name in metrics)]
        lines.append([*([trial_id] if trials else []), *cells, row.get("checkpoint"), row.get("uuid")])
    return (["Trial ID", *headers] if trials else headers), lines
