"""The JSON of what trials report: measurements and lines of logs, as Determined writes them.

Plain dictionaries, no models as in `shapes`: streams have many thousands of them.
"""

from __future__ import annotations

from trainmaster.master.http.messages import rfc3339
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.values.stored import Json


def metrics_workload(report: metric_reports.StoredReport, *, batches: bool) -> Json:
    stored = report.metrics
    metrics: Json = {"avgMetrics": stored.get("avg_metrics", stored.get("validation_metrics", {}))}
    if batches and "batch_metrics" in stored:
        metrics["batchMetrics"] = stored["batch_metrics"]
    return {"endTime": rfc3339(report.at), "metrics": metrics, "numInputs": 0, "totalBatches": report.steps}


def metrics_report(report: metric_reports.StoredReport) -> Json:
    return {
        "trialId": report.trial_id,
        "endTime": rfc3339(report.at),
        "metrics": report.metrics,
        "totalBatches": report.steps,
        "archived": report.archived,
        "id": report.id,
        "trialRunId": report.run_id,
        "group": report.group,
    }


def log_line(line: log_store.StoredLine) -> Json:
    """Return a task's log entry. `message` is the formatted line, `log` the bare text."""
    rank = f"[rank={line.rank_id}] " if line.rank_id is not None else ""
    stamp = rfc3339(line.at)
    level = "" if line.level == "UNSPECIFIED" else f"{line.level}: "
    where = f" [{line.agent_id}]" if line.agent_id else ""
    shown: Json = {
        "id": str(line.id),
        "taskId": line.task_id,
        "timestamp": stamp,
        "level": f"LOG_LEVEL_{line.level}",
        "log": line.log,
        "message": f"[{stamp}]{where} || {level}{rank}{line.log}\n",
        "source": line.source,
    }
    optional = {
        "allocationId": line.allocation_id,
        "agentId": line.agent_id,
        "containerId": line.container_id,
        "rankId": line.rank_id,
        "stdtype": line.stdtype,
    }
    return shown | {key: value for key, value in optional.items() if value is not None}
