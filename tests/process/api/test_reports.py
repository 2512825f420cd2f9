"""Reports: each record counts once, whatever is sent twice, out of order or half; and what they add up to."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, jobs_of
from tests.support.master import MasterProcess


def steps(user: Api, job: Job, group: str = "training") -> list[int]:
    return [report["totalBatches"] for report in reports(user, job, group)]


def reports(user: Api, job: Job, group: str) -> list[dict[str, Any]]:
    found = user.lines("/api/v1/trials/metrics/trial_metrics", trialIds=[job.trial_id], group=group)
    return [report for message in found for report in message["metrics"]]


def trial(user: Api, job: Job) -> dict[str, Any]:
    found: dict[str, Any] = user.get(f"/api/v1/trials/{job.trial_id}").json["trial"]
    return found


# -- exactly once -------------------------------------------------------------------------------------------------


def test_repeated_records_count_once(user: Api, job: Job) -> None:
    records = [job.training(n, loss=n) for n in range(1, 6)]
    for _ in range(3):
        answer = job.send(records, first=1)
        assert answer.json == {"acked": 5, "preempt": None, "gone": False}
    assert steps(user, job) == [1, 2, 3, 4, 5]
    assert trial(user, job)["summaryMetrics"]["avg_metrics"]["loss"]["count"] == 5


def test_of_an_overlap_the_new_part_counts(user: Api, job: Job) -> None:
    records = [job.training(n, loss=n) for n in range(1, 9)]
    assert job.send(records[:5], first=1).json["acked"] == 5
    assert job.send(records[2:8], first=3).json["acked"] == 8
    assert steps(user, job) == list(range(1, 9))


def test_a_gap_is_not_taken(user: Api, job: Job) -> None:
    assert job.send([job.training(1, loss=1)], first=1).json["acked"] == 1
    assert job.send([job.training(5, loss=5)], first=5).json["acked"] == 1, "the sender must go back"
    assert steps(user, job) == [1]


def test_empty_report_returns_last_acknowledged_record(user: Api, job: Job) -> None:
    assert job.send([]).json["acked"] == 0
    job.send([job.training(1, loss=1)])
    assert job.send([]).json["acked"] == 1


def test_streams_are_numbered_apart(user: Api, job: Job) -> None:
    assert job.send([job.training(1, loss=1)], stream="core").json["acked"] == 1
    assert job.send([{"t": 1.0, "line": "a"}, {"t": 1.0, "line": "b"}], stream="log-0").json["acked"] == 2
    assert job.send([{"t": 1.0, "line": "c"}], stream="log-1").json["acked"] == 1
    assert job.send([], stream="core").json["acked"] == 1
    logs = [entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", sources="task")]
    assert sorted(logs) == ["a", "b", "c"]


def test_the_same_piece_from_many_senders_at_once_counts_once(user: Api, job: Job) -> None:
    records = [job.training(n, loss=n) for n in range(1, 51)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: job.send(records, first=1).json["acked"], range(16)))
    assert answers == [50] * 16
    assert steps(user, job) == list(range(1, 51))


def test_report_after_job_end_is_answered_with_gone(job: Job) -> None:
    job.leave()
    answer = job.send([job.training(1, loss=1)])
    assert answer.status == 200
    assert answer.json["gone"] is True


# -- values ---------------------------------------------------------------------------------------------------------


def test_nan_and_infinities_travel_as_words(user: Api, job: Job) -> None:
    words = {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1.5}
    body = {"stream": "core", "first": 1, "records": [job.training(1, **words)]}
    assert job.api.post(f"/api/x1/allocations/{job.allocation_id}/reports", body).status == 200
    assert job.send([job.training(2, a=math.nan, b=math.inf, c=-math.inf, d=2.5)], first=2).status == 200, "bare NaN"
    for report in reports(user, job, "training"):
        found = report["metrics"]["avg_metrics"]
        assert (found["a"], found["b"], found["c"]) == ("NaN", "Infinity", "-Infinity")
    summary = trial(user, job)["summaryMetrics"]["avg_metrics"]
    assert summary["a"]["count"] == 2
    assert summary["a"]["last"] == "NaN"
    assert "mean" not in summary["a"]
    assert summary["d"]["mean"] == 2.0


def test_any_json_can_be_a_metric(user: Api, job: Job) -> None:
    values = {"text": "good", "truth": True, "list": [1, 2], "nothing": None, "nested": {"a": {"b": 1}}, "ü": 1}
    assert job.send([job.training(1, **values)]).status == 200
    assert reports(user, job, "training")[0]["metrics"]["avg_metrics"] == values
    types = {name: entry["type"] for name, entry in trial(user, job)["summaryMetrics"]["avg_metrics"].items()}
    assert types == {
        "text": "string",
        "truth": "boolean",
        "list": "array",
        "nothing": "null",
        "nested": "object",
        "ü": "number",
    }


def test_the_summary_counts_and_measures(user: Api, job: Job) -> None:
    values = [4.0, -1.0, 2.5, 2.5]
    assert job.send([job.validation(n, loss=value) for n, value in enumerate(values, 1)]).status == 200
    entry = trial(user, job)["summaryMetrics"]["validation_metrics"]["loss"]
    wanted = {"count": 4, "min": -1.0, "max": 4.0, "sum": 8.0, "mean": 2.0, "last": 2.5, "type": "number"}
    assert {key: entry[key] for key in wanted} == wanted


def test_a_metric_that_changes_its_type_is_text(user: Api, job: Job) -> None:
    assert job.send([job.training(1, x=1), job.training(2, x="one")]).status == 200
    entry = trial(user, job)["summaryMetrics"]["avg_metrics"]["x"]
    assert (entry["type"], entry["count"], entry["last"]) == ("string", 2, "one")


def test_best_and_latest_validation(user: Api, job: Job) -> None:
    losses = [3.0, 1.0, math.nan, 2.0]
    for n, loss in enumerate(losses, 1):
        assert job.send([job.validation(n, loss=loss, other=n)]).status == 200
    found = trial(user, job)
    assert found["bestValidation"]["totalBatches"] == 2
    assert found["bestValidation"]["metrics"]["avgMetrics"] == {"loss": 1.0, "other": 2}
    assert found["latestValidation"]["totalBatches"] == 4
    assert found["searcherMetricValue"] == 1.0
    path = f"/api/v1/experiments/{job.experiment_id}/searcher/best_searcher_validation_metric"
    assert job.api.get(path).json == {"metric": 1.0}


def test_larger_metric_is_better_if_configured(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    searcher = {"name": "single", "metric": "accuracy", "smaller_is_better": False}
    job = jobs_of(master, user, experiment(config(searcher=searcher)))[0]
    job.lease()
    assert job.send([job.validation(n, accuracy=value) for n, value in ((1, 0.5), (2, 0.9), (3, 0.7))]).status == 200
    assert trial(user, job)["bestValidation"]["totalBatches"] == 2


@pytest.mark.parametrize("first", ["validation", "checkpoint"])
def test_a_checkpoint_has_the_metrics_of_its_steps(user: Api, job: Job, first: str) -> None:
    uuid = f"11111111-1111-1111-1111-{job.trial_id:012d}"
    checkpoint = {"t": 1.7e9, "kind": "checkpoint", "uuid": uuid, "steps_completed": 7, "resources": {"w": 3}}
    records = [job.validation(7, loss=0.25), checkpoint]
    assert job.send(records if first == "validation" else records[::-1]).status == 200
    training = user.get(f"/api/v1/checkpoints/{uuid}").json["checkpoint"]["training"]
    assert training["searcherMetric"] == 0.25
    assert training["validationMetrics"]["avgMetrics"] == {"loss": 0.25}
    assert job.send([checkpoint]).status == 200, "the same checkpoint again changes nothing"
    assert trial(user, job)["checkpointCount"] == 1
    assert trial(user, job)["bestCheckpoint"]["uuid"] == uuid


# -- the same steps again -----------------------------------------------------------------------------------------


def test_repeated_report_adds_new_metrics_and_keeps_old_values(user: Api, job: Job) -> None:
    job.send([job.training(1, loss=1.0)])
    assert job.send([job.training(1, loss=9.0, extra=2)]).status == 200
    assert [r["metrics"] for r in reports(user, job, "training")] == [{"avg_metrics": {"loss": 1.0, "extra": 2}}]
    summary = trial(user, job)["summaryMetrics"]["avg_metrics"]
    assert (summary["loss"]["count"], summary["loss"]["last"]) == (1, 1.0)
    assert summary["extra"]["count"] == 1


def test_a_newer_run_puts_the_older_ones_later_rows_aside(master: MasterProcess, user: Api, job: Job) -> None:
    huge = 1.7e308  # two of them are more than a float holds
    tiny = 1e-310
    job.send(
        [job.validation(n, loss=loss, huge=huge, tiny=tiny) for n, loss in ((1, 9.0), (2, 8.0), (3, 1.0), (4, 6.0))]
    )
    before = trial(user, job)
    assert before["searcherMetricValue"] == 1.0
    assert float(before["summaryMetrics"]["validation_metrics"]["huge"]["sum"]) == sys.float_info.max
    path = f"/api/v1/experiments/{job.experiment_id}"
    user.post(f"{path}/pause")
    job.api.post(f"/api/v1/allocations/{job.allocation_id}/signals/ack_preemption")
    job.leave(preempted={"reason": "pause"}, preempt_acked=True)
    user.post(f"{path}/activate")
    second = jobs_of(master, user, job.experiment_id, attempt=2)[0]
    second.lease("played-2")
    assert second.send([second.validation(3, loss=5.0)]).status == 200
    found = reports(user, job, "validation")
    assert [(r["totalBatches"], r["trialRunId"]) for r in found] == [(1, 1), (2, 1), (3, 2)]
    assert found[2]["metrics"]["validation_metrics"] == {"loss": 5.0}
    after = trial(user, job)
    entry = after["summaryMetrics"]["validation_metrics"]["huge"]
    assert (entry["count"], float(entry["max"]), float(entry["sum"])) == (2, huge, sys.float_info.max)
    assert math.isclose(after["summaryMetrics"]["validation_metrics"]["tiny"]["sum"], 2 * tiny)
    entry = after["summaryMetrics"]["validation_metrics"]["loss"]
    assert (entry["count"], entry["min"], entry["max"], entry["sum"], entry["last"]) == (3, 5.0, 9.0, 22.0, 5.0)
    assert (after["searcherMetricValue"], after["bestValidation"]["totalBatches"]) == (5.0, 3)
    assert (after["latestValidation"]["totalBatches"], after["totalBatchesProcessed"]) == (3, 3)
    loads = user.get(f"/api/v1/trials/{job.trial_id}/workloads").json["workloads"]
    assert [load["validation"]["totalBatches"] for load in loads if "validation" in load] == [1, 2, 3]


# -- records that cannot be taken -----------------------------------------------------------------------------------

POISON: list[dict[str, Any]] = [
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": 3},
    {"kind": "metrics", "group": "", "steps_completed": 2, "metrics": {"a": 1}},
    {"kind": "metrics", "group": "a.b", "steps_completed": 2, "metrics": {"a": 1}},
    {"kind": "metrics", "group": "training", "steps_completed": -1, "metrics": {"a": 1}},
    {"kind": "metrics", "group": "training", "steps_completed": 2**63, "metrics": {"a": 1}},
    {"kind": "metrics", "group": "training", "steps_completed": "x", "metrics": {"a": 1}},
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": {"": 1}},
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": {"epoch": "two"}},
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": {"a": "\u0000"}},
    {"kind": "metrics", "group": "tr\u0000", "steps_completed": 2, "metrics": {"a": 1}},
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": {"a": 10**400}},
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": {"a": 1}, "t": 1e300},
    {"kind": "metrics", "group": "training", "steps_completed": 2, "metrics": {"a": 1}, "batch_metrics": 3},
    {"kind": "checkpoint"},
    {"kind": "checkpoint", "uuid": "x"},
    {"kind": "checkpoint", "uuid": "22222222-2222-2222-2222-222222222222", "resources": {"a": "big"}},
    {"kind": "checkpoint", "uuid": "22222222-2222-2222-2222-222222222222", "resources": [1]},
    {"kind": "checkpoint", "uuid": "22222222-2222-2222-2222-222222222222", "metadata": {"a": "\u0000"}},
    {"kind": "early_exit", "reason": "EXITED_REASON_BORED"},
    {"kind": "progress", "progress": "half"},
    {"kind": "metadata", "metadata": 3},
    {"kind": "status", "state": "\u0000"},
]


@pytest.mark.parametrize("poison", POISON, ids=lambda record: str(record)[:90])
def test_unstorable_record_is_refused_in_batch_and_alone(user: Api, job: Job, poison: dict[str, Any]) -> None:
    """The runtime halves a refused batch until it has found the record, then sends `unreadable` in its place."""
    good = [job.training(1, loss=1.0), job.training(3, loss=3.0)]
    refused = job.send([good[0], {"t": 1.7e9, **poison}, good[1]], first=1)
    assert refused.status == 400, refused.content
    assert refused.error["code"] == 3
    assert job.send([], first=1).json["acked"] == 0, "nothing of the batch was taken"
    assert steps(user, job) == []
    assert job.send([good[0]], first=1).json["acked"] == 1
    assert job.send([{"t": 1.7e9, **poison}], first=2).status == 400
    stands_for_it = {"t": 1.7e9, "kind": "unreadable", "why": refused.sentence, "start": str(poison)[:80]}
    assert job.send([stands_for_it, good[1]], first=2).json["acked"] == 3
    assert steps(user, job) == [1, 3]
    log = [entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", levels="LOG_LEVEL_ERROR")]
    assert [text for text in log if "refused for good" in text] == [
        f"A report was refused for good and left out: {refused.sentence[:300]}"
    ]
    assert trial(user, job)["refusedReports"] == "1"


def test_refused_reports_are_counted_and_logged_by_powers_of_ten(user: Api, job: Job) -> None:
    bad = [{"t": 1.7e9, "kind": "unreadable", "why": f"cause {n}"} for n in range(1, 26)]
    assert job.send([*bad, {"t": 1.7e9, "kind": "of tomorrow"}], first=1).json["acked"] == 26
    log = [entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", levels="LOG_LEVEL_ERROR")]
    assert [text for text in log if "refused" in text] == [
        "A report was refused for good and left out: cause 1",
        "10 reports were refused for good and left out: cause 10",
    ]
    assert trial(user, job)["refusedReports"] == "26"
    assert user.get(f"/api/x1/trials/{job.trial_id}/board").json["trial"]["refusedReports"] == 26


def test_a_line_that_is_refused_leaves_a_line_in_its_place(user: Api, job: Job) -> None:
    refused = {"t": 1.7e9, "kind": "unreadable", "why": "no date", "start": '{"line": "12 %"'}
    assert job.send([{"t": 1.7e9, "line": "a"}, refused, {"t": 1.7e9, "line": "b"}], stream="log-0").json["acked"] == 3
    logs = [entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs", sources="task")]
    middle = 'A line of the log was refused for good and left out: no date; it began: {"line": "12 %"'
    assert logs == ["a", middle, "b"]


LARGE = [1, 2**31 - 1, 2**31, 4_000_000_000, 2**53 + 1, 2**63 - 1]


def test_steps_up_to_the_largest_integer_are_kept_exactly(user: Api, job: Job) -> None:
    """By the quick way of whole batches (`metric_batches`), and by the one that merges with what is there."""
    assert job.send([job.training(n, loss=1.0) for n in LARGE], first=1).json["acked"] == len(LARGE)
    again = [job.training(n, lr=0.5) for n in LARGE]
    assert job.send(again, first=len(LARGE) + 1).json["acked"] == 2 * len(LARGE)
    assert steps(user, job) == LARGE
    assert all(found["metrics"]["avg_metrics"] == {"loss": 1.0, "lr": 0.5} for found in reports(user, job, "training"))
    assert trial(user, job)["totalBatchesProcessed"] == 2**63 - 1
    checkpoint = "33333333-3333-3333-3333-333333333333"
    record = {"t": 1.7e9, "kind": "checkpoint", "uuid": checkpoint, "steps_completed": 2**62, "resources": {"w": 2**40}}
    assert job.send([record], first=2 * len(LARGE) + 1).status == 200
    found = user.get(f"/api/v1/checkpoints/{checkpoint}").json["checkpoint"]
    assert found["metadata"]["steps_completed"] == 2**62


def test_steps_beyond_the_largest_integer_are_refused(user: Api, job: Job) -> None:
    refused = job.send([job.training(2**63, loss=1.0)], first=1)
    assert refused.status == 400
    assert str(2**63 - 1) in refused.sentence


@pytest.mark.parametrize(
    "body",
    [
        {"stream": "", "records": [{}]},
        {"stream": "x\u0000", "records": [{}]},
        {"stream": "core", "first": 0, "records": [{}]},
        {"stream": "core", "first": "one", "records": [{}]},
        {"stream": "core", "first": 10**30, "records": [{}]},
        {"stream": "core", "records": {}},
        {"stream": "core", "records": [3]},
        [],
        None,
    ],
    ids=repr,
)
def test_a_malformed_piece_is_a_bad_request(job: Job, body: Any) -> None:
    answer = job.api.call("POST", f"/api/x1/allocations/{job.allocation_id}/reports", body, raw=b"null")
    assert answer.status == 400, answer.content


@pytest.mark.parametrize(
    "record",
    [
        {"line": "x", "t": "soon"},
        {"line": "x", "t": 1e300},
        {"line": "x", "level": 3},
        {"line": "x", "rank": 10**12},
        {"line": "x", "stdtype": 3},
        {"line": "a\u0000b"},
        {"line": 3, "source": {}},
        {"kind": "preempt_pending", "reason": "\u0000"},
    ],
    ids=repr,
)
def test_malformed_log_records_do_not_break_master(user: Api, job: Job, record: Any) -> None:
    answer = job.send([record], stream="log-0")
    assert answer.status in (200, 400), answer.content
    assert job.send([{"t": 1.0, "line": "after it"}], stream="log-0").status == 200


def test_unknown_record_kind_is_logged_and_skipped(user: Api, job: Job) -> None:
    assert job.send([{"kind": "dance"}, {}, job.training(1, loss=1)]).json["acked"] == 3
    assert steps(user, job) == [1]
    assert any("dance" in entry["log"] for entry in user.lines(f"/api/v1/trials/{job.trial_id}/logs"))


def test_progress_and_status_are_shown(user: Api, job: Job) -> None:
    job.send([{"kind": "progress", "progress": 0.25}, {"kind": "status", "state": "warming up"}])
    assert trial(user, job)["runnerState"] == "warming up"
    assert user.get(f"/api/v1/experiments/{job.experiment_id}").json["experiment"]["progress"] == 0.25
    job.send([{"kind": "progress", "progress": 7}])
    assert user.get(f"/api/v1/experiments/{job.experiment_id}").json["experiment"]["progress"] == 1.0
    job.send([{"kind": "metadata", "metadata": {"a": 1}}, {"kind": "metadata", "metadata": {"b": 2}}])
    assert trial(user, job)["metadata"] == {"a": 1, "b": 2}
