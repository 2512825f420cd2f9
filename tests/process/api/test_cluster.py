"""The master as a whole: configuration, log, tasks, and what slots were used for. What Determined's harness calls."""

from __future__ import annotations

import csv
import datetime as dt
import io
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, give_slots, jobs_of
from tests.support.master import MasterProcess, wait_for

DAY = dt.date(2021, 2, 28)


def test_the_configuration_without_secrets(user: Api, admin: Api) -> None:
    shown = admin.get("/api/v1/master/config").json["config"]
    assert shown["resource_manager"]["type"] == "local"
    assert shown["webhooks"]["signing_key"]
    assert user.get("/api/v1/master/config").status == 403


def test_the_level_of_the_log_can_be_changed(admin: Api) -> None:
    def patch(level: str, *paths: str) -> int:
        body = {"config": {"log": {"level": level}}, "fieldMask": {"paths": list(paths)}}
        return admin.call("PATCH", "/api/v1/master/config", body).status

    assert patch("LOG_LEVEL_WARNING", "log.level") == 200
    assert admin.get("/api/v1/master/config").json["config"]["log"]["level"] == "warning"
    assert patch("LOG_LEVEL_INFO", "log.level", "log.color") == 200
    assert admin.get("/api/v1/master/config").json["config"]["log"]["level"] == "info"
    assert patch("LOG_LEVEL_LOUD", "log.level") == 400
    assert patch("LOG_LEVEL_INFO", "port") == 400


def test_the_master_shows_its_log(admin: Api, user: Api) -> None:
    entries = [line["logEntry"] for line in admin.lines("/api/v1/master/logs")]
    assert len(entries) > 2
    assert [entry["id"] for entry in entries] == list(range(entries[0]["id"], entries[-1]["id"] + 1))
    assert {"id", "message", "timestamp", "level"} == set(entries[0])
    last = [line["logEntry"]["id"] for line in admin.lines("/api/v1/master/logs", offset=-2)]
    assert len(last) == 2
    assert last[1] >= entries[-1]["id"]
    assert len(list(admin.lines("/api/v1/master/logs", limit=1))) == 1
    following = admin.lines("/api/v1/master/logs", offset=-1, follow=True)
    assert next(following)
    masked = [line["logEntry"] for line in user.lines("/api/v1/master/logs", limit=5)]
    assert [(line["id"], line["timestamp"]) for line in masked] == [
        (one["id"], one["timestamp"]) for one in entries[:5]
    ]
    assert all(line["message"].endswith(": ********") for line in masked)


def test_small_answers(user: Api, anonymous: Api) -> None:
    assert user.get("/api/v1/master/telemetry").json["enabled"] is False
    assert set(user.get("/api/v1/tasks/count").json) == {"commands", "notebooks", "shells", "tensorboards"}
    here, there = (anonymous.get(path).json for path in ("/api/v1/health", "/health"))
    for manager in (*here["resource_managers"], *there["resource_managers"]):  # measured anew at each pass
        assert manager.pop("seconds_per_pass") >= 0
        assert manager.pop("seconds_per_look") >= 0
    assert here == there


def test_this_machine_is_an_agent(admin: Api, user: Api, job: Job) -> None:
    """With its slots, of which live jobs hold some, as the last listing of the pools has them."""

    def busy() -> Any:
        (found,) = user.get("/api/v1/agents").json["agents"]
        return found if any(slot["container"] for slot in found["slots"].values()) else None

    agent = wait_for(busy, "a listing of pools with a job in it")
    (pool,) = user.get("/api/v1/resource-pools").json["resourcePools"]
    assert (agent["id"], agent["resourcePools"]) == (platform.node(), [pool["name"]])
    assert (agent["enabled"], agent["draining"], agent["containers"]) == (True, False, {})
    for order in ("SORT_BY_ID", "SORT_BY_TIME"):
        assert (
            user.get("/api/v1/agents", sort_by=order, order_by="ORDER_BY_DESC").json["agents"][0]["id"] == agent["id"]
        )
    assert agent["version"] == user.get("/api/v1/master").json["version"]
    slots = user.get(f"/api/v1/agents/{agent['id']}/slots").json["slots"]
    assert len(slots) == len(agent["slots"]) == pool["slotsAvailable"]
    held = [slot for slot in slots if slot["container"]]
    assert {slot["container"]["id"] for slot in held} == {"dispatcherrm-inuse-slot-placeholder"}
    assert agent["slotStats"]["typeStats"]["TYPE_CPU"]["states"] == {"STATE_RUNNING": len(held)}
    assert user.get(f"/api/v1/agents/{agent['id']}").json["agent"]["slots"] == agent["slots"]
    assert user.get(f"/api/v1/agents/{agent['id']}/slots/0").json["slot"] == slots[0]
    assert user.get("/api/v1/agents", excludeSlots=True).json["agents"][0]["slots"] == {}
    for path in ("disable", "enable", "slots/0/disable"):
        refused = admin.post(f"/api/v1/agents/{agent['id']}/{path}", {})
        assert (refused.status, "scheduler's to say" in refused.sentence) == (501, True)
    assert user.get("/api/v1/agents/nobody").status == 404
    assert user.post(f"/api/v1/agents/{agent['id']}/disable", {}).status == 403


def test_clients_find_the_feature_switches(admin: Api, anonymous: Api) -> None:
    assert admin.get("/api/v1/master/config").json["config"]["feature_switches"] == []
    assert anonymous.get("/api/v1/master").json["featureSwitches"] == []


def test_live_job_appears_in_tasks_and_queues(user: Api, job: Job) -> None:
    found = user.get("/api/v1/tasks").json["allocationIdToSummary"][job.allocation_id]
    assert (found["taskId"], found["slotsNeeded"], found["resourcePool"]) == (job.task_id, 1, "default")
    whole = user.get("/api/v1/job-queues", limit=1)
    assert whole.status == 200
    assert len(whole.json["jobs"]) == 1
    assert {"jobId", "entityId", "summary"} <= set(whole.json["jobs"][0])
    (stats,) = user.get("/api/v1/job-queues/stats").json["results"]
    assert stats["resourcePool"] == "default"
    assert stats["stats"]["queuedCount"] + stats["stats"]["scheduledCount"] >= 1
    assert user.get("/api/v1/job-queues/stats", resourcePools=["other"]).json == {"results": []}


# -- what slots were used for -------------------------------------------------------------------------------------


@pytest.fixture
def used(master: MasterProcess, user: Api, engine: Engine, experiment: Callable[..., int]) -> Iterator[Job]:
    """An attempt that held one slot from six hours before a month's end to six hours after."""
    found = jobs_of(master, user, experiment(config(labels=["=paper", "b"])))[0]
    assert found.lease().status == 200
    found.leave()
    midnight = dt.datetime.combine(DAY + dt.timedelta(days=1), dt.time(), dt.UTC)
    times = {"a": midnight - dt.timedelta(hours=6), "b": midnight + dt.timedelta(hours=6), "id": found.allocation_id}
    with engine.begin() as connection:
        moved = text("UPDATE allocations SET leased_at = :a, ended_at = :b WHERE id = :id")
        assert connection.execute(moved, times).rowcount == 1
    yield found
    with engine.begin() as connection:
        connection.execute(text("UPDATE allocations SET leased_at = now(), ended_at = now() WHERE id = :id"), times)


def rows(api: Api, path: str, **query: Any) -> list[dict[str, str]]:
    answer = api.get(path, **query)
    assert answer.status == 200, answer.content
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def test_by_attempt(user: Api, used: Job) -> None:
    span = {"timestamp_after": f"{DAY}T20:00:00Z", "timestamp_before": f"{DAY + dt.timedelta(days=1)}T12:00:00Z"}
    (row,) = rows(user, "/resources/allocation/allocations-csv", **span)
    assert (row["allocation_id"], row["username"], row["slots"]) == (used.allocation_id, "determined", "1")
    assert float(row["seconds"]) == 10 * 3600
    (raw,) = rows(user, "/resources/allocation/raw", **span)
    assert (raw["experiment_id"], raw["labels"]) == (str(used.experiment_id), "'=paper,b")
    (entry,) = user.get("/api/v1/resources/allocation/raw", **span).json["resourceEntries"]
    assert (entry["seconds"], entry["labels"]) == (36000.0, ["=paper", "b"])
    assert user.get("/api/v1/resources/allocation/raw").status == 400
    back = {"timestampAfter": span["timestamp_before"], "timestampBefore": span["timestamp_after"]}
    assert user.get("/api/v1/resources/allocation/raw", **back).status == 400


def test_by_day_and_month(user: Api, used: Job) -> None:
    address = "/api/v1/resources/allocation/aggregated"
    days = user.get(address, startDate=str(DAY), endDate=str(DAY + dt.timedelta(days=2))).json["resourceEntries"]
    assert [(day["periodStart"], day["seconds"]) for day in days] == [
        ("2021-02-28", 21600.0), ("2021-03-01", 21600.0), ("2021-03-02", 0.0),
    ]  # fmt: skip
    assert days[0]["byUsername"] == {"determined": 21600.0}
    assert days[0]["byExperimentLabel"] == {"=paper": 21600.0, "b": 21600.0}
    monthly = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_MONTHLY"
    months = user.get(address, start_date="2021-02-10", end_date="2021-02-11", period=monthly).json["resourceEntries"]
    assert [(one["periodStart"], one["seconds"]) for one in months] == [("2021-02-01", 21600.0)]
    table = rows(user, "/resources/allocation/aggregated", start_date=str(DAY), end_date=str(DAY))
    assert {"total", "username", "experiment_label", "resource_pool"} == {row["aggregation_type"] for row in table}
    assert user.get(address, startDate="2021-02-02", endDate="2021-02-01").status == 400
    assert user.get(address, startDate="1000-02-02", endDate="2021-02-01").status == 400
    assert user.get(address).status == 400


# -- Determined's harness ---------------------------------------------------------------------------------------------


def test_accelerators(user: Api, job: Job) -> None:
    data = {"containerId": "c", "nodeName": "node-a", "acceleratorType": "cuda", "acceleratorUuids": ["GPU-1"]}
    for _ in range(2):
        answer = job.api.post(f"/api/v1/allocations/{job.allocation_id}/acceleratorData", {"acceleratorData": data})
        assert answer.json == {}
    (shown,) = user.get(f"/api/v1/tasks/{job.task_id}/acceleratorData").json["acceleratorData"]
    assert (shown["allocationId"], shown["acceleratorUuids"]) == (job.allocation_id, ["GPU-1"])
    assert user.get("/api/v1/tasks/none/acceleratorData").status == 404


def test_only_job_may_report_events_of_its_allocation(user: Api, job: Job) -> None:
    for word in ("ready", "waiting", "proxy_address", "resources/r/daemon"):
        address = f"/api/v1/allocations/{job.allocation_id}/{word}"
        assert job.api.post(address).json == {}
        assert user.post(address).status == 403


def test_a_rendezvous_waits_for_all_nodes(
    master: MasterProcess, user: Api, engine: Engine, experiment: Callable[..., int]
) -> None:
    job = jobs_of(master, user, experiment())[0]
    give_slots(engine, job, 2)
    address = f"/api/v1/allocations/{job.allocation_id}/resources/node-b/rendezvous"
    facts = {"num_nodes": 2, "addresses": ["10.0.0.1"]}
    assert job.lease(run_id="a", **facts).status == 200  # type: ignore[arg-type]
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(job.api.get, address)
        second = job.lease(run_id="b", node_rank=1, num_nodes=2, node_name="node-b", slot_ids=[2, 3], addresses=[])
        assert second.status == 200
        found = wait_for(lambda: waiting.result() if waiting.done() else None, "the rendezvous")
    assert found.json["rendezvousInfo"] == {"addresses": ["10.0.0.1", "node-b"], "rank": 1, "slots": [2, 3]}
    assert user.get(address).status == 403
