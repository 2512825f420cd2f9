"""More slots than there are: refused, or waited for where the site says `launch_error: false`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.api.jobs import config, create
from tests.support.master import MasterProcess, serving, wait_for

PATIENT = """
launch_error: false
resource_manager: {type: local, slots: 2, poll_interval: 0.2}
"""
EXCEEDED = ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"]


@pytest.fixture(scope="module")
def patient() -> Iterator[MasterProcess]:
    with serving(PATIENT) as process:
        yield process


@pytest.fixture(scope="module")
def waiter(patient: MasterProcess) -> Api:
    return Api(patient.url, log_in(patient, "determined"))


def sized(slots: int, **keys: object) -> str:
    return config(entrypoint="sleep 600", resources={"slots_per_trial": slots, **keys})


def test_rejection_of_too_many_slots_has_words_clients_expect(user: Api) -> None:
    refused = user.post("/api/v1/experiments", {"config": sized(3)})
    assert refused.status == 400
    assert refused.sentence.startswith("slots requested exceeds cluster capacity: The job asks for 3 slots")
    for path, body in (
        ("experiments", {"config": sized(3, is_single_node=True)}),
        ("commands", {"config": {"entrypoint": ["true"], "resources": {"slots": 10485}}}),
    ):
        refused = user.post(f"/api/v1/{path}", body)
        assert refused.status == 400
        assert refused.sentence.startswith("request unfulfillable, please try requesting less slots: ")


def test_more_than_there_are_waits_with_a_warning(waiter: Api) -> None:
    answer = waiter.post("/api/v1/experiments", {"config": sized(3), "activate": True})
    assert answer.status == 200, answer.content
    assert answer.json["warnings"] == EXCEEDED
    number = answer.json["experiment"]["id"]

    trial = waiter.get(f"/api/v1/experiments/{number}/trials").json["trials"][0]
    logs = f"/api/v1/trials/{trial['id']}/logs"
    wait_for(
        lambda: any("asks for 3 slots, and the pool default has 2" in line["log"] for line in waiter.lines(logs)),
        "the reason in the trial's log",
    )
    # What is small enough passes it by.
    small = create(waiter, sized(2))
    wait_for(
        lambda: waiter.get(f"/api/v1/experiments/{small}").json["experiment"]["state"] == "STATE_RUNNING",
        "the experiment that fits",
    )
    assert waiter.get(f"/api/v1/experiments/{number}").json["experiment"]["state"] == "STATE_QUEUED"
    for one in (number, small):
        assert waiter.post(f"/api/v1/experiments/{one}/kill").status == 200
    wait_for(
        lambda: waiter.get(f"/api/v1/experiments/{number}").json["experiment"]["state"] == "STATE_CANCELED",
        "the end of the one that waited",
    )


def test_fitting_job_gets_no_warning_and_impossible_is_rejected(waiter: Api) -> None:
    body = {"config": sized(2), "validateOnly": True}
    assert waiter.post("/api/v1/experiments", body).json["warnings"] == []
    generic = {"config": json.dumps({"entrypoint": ["sleep", "600"], "resources": {"slots": 3}})}
    answer = waiter.post("/api/v1/generic-tasks", generic)
    assert answer.json["warnings"] == EXCEEDED
    assert waiter.post(f"/api/v1/tasks/{answer.json['taskId']}/kill").status == 200
    for wrong in (
        {"config": sized(3, is_single_node=True)},
        {"config": config(resources={"slots_per_trial": 3}, slurm={"sbatch_args": ["--x"]})},
    ):
        assert waiter.post("/api/v1/experiments", wrong).status == 400
    command = {"config": {"entrypoint": ["true"], "resources": {"slots": 3}}}
    assert waiter.post("/api/v1/commands", command).status == 400


def test_log_warns_of_setting_without_effect(waiter: Api) -> None:
    number = create(waiter, config(resources={"slots": 2}), activate=False)
    (trial,) = waiter.get(f"/api/v1/experiments/{number}/trials").json["trials"]
    (line,) = waiter.lines(f"/api/v1/trials/{trial['id']}/logs")
    assert line["level"] == "LOG_LEVEL_WARNING"
    assert "resources.slots: has no effect in an experiment" in line["log"]
    waiter.post(f"/api/v1/experiments/{number}/kill")
