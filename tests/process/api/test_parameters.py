"""Query parameters as grpc-gateway takes them, by either name, enums also by number; and what `curl -d` sends."""

from __future__ import annotations

import csv
import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job, config, create
from tests.support.master import MasterProcess
from trainmaster.client.session_calls import hashed
from trainmaster.master.http import grpc_gateway
from trainmaster.master.http.not_served import REFUSED

TABLE = Path(__file__).parent.parent.parent / "data" / "determined-0.38.1" / "parameters.csv"
EXPERIMENTS = "/api/v1/experiments"
NOBODY = "99999999"
# Ways to sort and to narrow that this master does not have.
NOT_HAD = ("timeSeriesFilter.doubleRange", "timeSeriesFilter.timeRange", "labels.metricType")
NOT_HAD_AT = {
    ("/workloads", "group"),  # without effect in Determined's, too
    ("/trials/time-series", "timeSeriesFilter.integerRange.incl"),
    ("/trials/time-series", "timeSeriesFilter.integerRange.notIn"),
}
SHOWN_ALWAYS = ("showTrialData",)


class Parameter(NamedTuple):
    method: str
    path: str
    name: str
    json: str
    type: str
    values: dict[str, str]

    @property
    def address(self) -> str:
        return re.sub(r"{[^}]*}", NOBODY, self.path)

    @property
    def needed(self) -> dict[str, str]:
        """What the endpoint does nothing without."""
        if "/metrics-stream/" in self.path and self.name not in ("group", "metric_type", "ids"):
            return (
                {"ids": NOBODY} if self.path.endswith("metric-names") else {"metricName": "loss", "group": "training"}
            )
        return {}

    @property
    def had(self) -> bool:
        if self.json.startswith(NOT_HAD) or self.json in SHOWN_ALWAYS:
            return False
        if any(self.path.endswith(end) and self.json == name for end, name in NOT_HAD_AT):
            return False
        refused = {re.sub(r"{[^}]*}", "{}", key) for key in REFUSED}
        return f"{self.method} {re.sub(r'{[^}]*}', '{}', self.path)}" not in refused


def parameters() -> Iterator[Parameter]:
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            values = dict(entry.split("=") for entry in row["values"].split())
            yield Parameter(row["method"], row["path"], row["name"], row["json"], row["type"], values)


@pytest.fixture(scope="module")
def described(admin: Api) -> dict[str, dict[str, dict[str, Any]]]:
    """The query parameters of each endpoint, by their names, as the master's own description has them."""
    found = {}
    for path, methods in admin.get("/openapi.json").json["paths"].items():
        for method, entry in methods.items():
            taken = {one["name"]: one["schema"] for one in entry.get("parameters", ()) if one["in"] == "query"}
            found[f"{method.upper()} {re.sub(r'{[^}]*}', '{}', path)}"] = taken
    return found


def test_every_parameter_of_determined_is_known(described: dict[str, dict[str, dict[str, Any]]]) -> None:
    rows = [row for row in parameters() if row.had]
    assert len(rows) > 170
    for row in rows:
        assert row.json in described[f"{row.method} {re.sub(r'{[^}]*}', '{}', row.path)}"], row
        assert grpc_gateway.json_name(row.name) == row.json


def test_the_gateway_knows_which_parameters_are_lists(described: dict[str, dict[str, dict[str, Any]]]) -> None:
    """And no parameter of the API has a name of its own beside Determined's way to write names."""
    for endpoint, taken in described.items():
        if not endpoint.partition(" ")[2].startswith(grpc_gateway.PREFIXES):
            continue
        for name, schema in taken.items():
            assert grpc_gateway.json_name(name) == name, (endpoint, name)
            assert (schema.get("type") == "array") == (name in grpc_gateway.LISTS), (endpoint, name)


def test_a_value_that_cannot_be_meant_is_refused_by_either_name(admin: Api) -> None:
    for row in parameters():
        if not row.had or row.type.startswith(("string", "msg")):
            continue
        for name in {row.name, row.json}:
            answer = admin.call(row.method, row.address, query={**row.needed, name: "sideways"})
            assert answer.status == 400, (row, name, answer.content)
            assert row.json in answer.sentence or "sideways" in answer.sentence, (row, answer.content)


def test_enums_are_taken_by_name_and_by_number(admin: Api) -> None:
    for row in parameters():
        if not row.had:
            continue
        for number, word in row.values.items():
            for value in (number, word):
                answer = admin.call(row.method, row.address, query={row.name: value})
                assert "There is no '" not in str(answer.json.get("message")), (row, value, answer.content)
                assert answer.status < 500, (row, value, answer.content)
        if row.values:
            assert admin.call(row.method, row.address, query={row.name: "99"}).status == 400, row


# -- what they do -------------------------------------------------------------------------------------------------


def ids(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.content
    return [entry["id"] for entry in answer.json["experiments"]]


def test_parameters_accept_protocol_and_json_names(user: Api, admin: Api) -> None:
    label = uuid.uuid4().hex
    made = [create(user, config(labels=[label]), activate=False) for _ in range(3)]
    me, other = user.get("/api/v1/me").json["user"]["id"], admin.get("/api/v1/me").json["user"]["id"]
    assert ids(user.get(EXPERIMENTS, labels=label, user_ids=me)) == made
    assert ids(user.get(EXPERIMENTS, labels=label, user_ids=other)) == []
    assert ids(user.get(EXPERIMENTS, labels=label, user_ids=[other, me])) == made
    assert ids(user.get(EXPERIMENTS, labels=label, sort_by="SORT_BY_ID", order_by=2)) == made[::-1]
    assert ids(user.get(EXPERIMENTS, **{"labels": label, "experiment_id_filter.not_in": made[:2]})) == made[2:]
    assert ids(user.get(EXPERIMENTS, **{"labels": label, "experimentIdFilter.notIn": made[:2]})) == made[2:]
    for value, shown in (("T", []), ("1", []), ("F", made), ("0", made), ("True", []), ("FALSE", made)):
        assert ids(user.get(EXPERIMENTS, labels=label, archived=value)) == shown
    assert len(ids(user.get(EXPERIMENTS, labels=label, limit=["2", "1"]))) == 2  # the first one counts
    assert ids(user.get(EXPERIMENTS, labels=label, states=["2", "STATE_ACTIVE"])) == made
    # What nobody knows is passed over, as there.
    assert ids(user.get(EXPERIMENTS, labels=label, colour="red")) == made
    for number in made:
        user.post(f"{EXPERIMENTS}/{number}/kill")


def test_archived_filter_covers_archived_projects_and_workspaces(user: Api) -> None:
    label = uuid.uuid4().hex
    home = user.post("/api/v1/workspaces", {"name": label}).json["workspace"]["id"]
    project = user.post(f"/api/v1/workspaces/{home}/projects", {"name": "p"}).json["project"]["id"]
    number = create(user, config(labels=[label]), activate=False, projectId=project)
    user.post(f"{EXPERIMENTS}/{number}/kill")
    for thing in (f"projects/{project}", f"workspaces/{home}"):
        assert ids(user.get(EXPERIMENTS, labels=label, archived=False)) == [number]
        assert user.post(f"/api/v1/{thing}/archive").status == 200
        assert ids(user.get(EXPERIMENTS, labels=label, archived=False)) == []
        assert ids(user.get(EXPERIMENTS, labels=label)) == [number]
        assert ids(user.get(EXPERIMENTS, labels=label, archived=False, project_id=project)) == [number]
        assert user.post(f"/api/v1/{thing}/unarchive").status == 200


def test_the_history_of_a_trial_in_parts(user: Api, job: Job) -> None:
    job.lease()
    for kind in ("training", "validation"):
        body = {"trialId": job.trial_id, "stepsCompleted": 5, "metrics": {"avgMetrics": {"loss": 1.0}}, "trialRunId": 1}
        assert job.api.post(f"/api/v1/trials/{job.trial_id}/{kind}_metrics", body).status == 200
    at = f"/api/v1/trials/{job.trial_id}/workloads"

    def kinds(**query: Any) -> list[str]:
        answer = user.get(at, **query).json
        found = [next(iter(entry)) for entry in answer["workloads"]]
        assert answer["pagination"]["total"] == len(found)
        return found

    assert kinds() == ["training", "validation"]
    assert kinds(filter="FILTER_OPTION_VALIDATION") == ["validation"]
    assert kinds(filter=3, remove_deleted_checkpoints=True) == ["validation"]
    assert kinds(filter="FILTER_OPTION_CHECKPOINT") == []


def test_the_history_of_a_trial_by_a_metric(user: Api, job: Job) -> None:
    records = [
        job.training(1, loss=3.0),
        job.training(2, loss=1.0),
        job.training(3, loss="much"),
        job.training(4, acc=9),
    ]
    assert job.send([*records, job.validation(2, loss=2.0)]).status == 200

    def steps(**query: Any) -> list[tuple[str, int]]:
        answer = user.get(f"/api/v1/trials/{job.trial_id}/workloads", **query)
        assert answer.status == 200, answer.content
        return [(kind, load["totalBatches"]) for entry in answer.json["workloads"] for kind, load in entry.items()]

    rest = [("training", 3), ("training", 4)]
    assert steps(sort_key="loss") == [("training", 2), ("validation", 2), ("training", 1), *rest]
    assert steps(sortKey="loss", order_by="ORDER_BY_DESC", limit=2) == [("training", 1), ("validation", 2)]
    of_validations = steps(sort_key="loss", metric_type="METRIC_TYPE_VALIDATION")
    assert of_validations == [("validation", 2), ("training", 1), ("training", 2), *rest]
    assert steps(sort_key="batches") == steps()


def test_the_queue_by_state(user: Api, job: Job) -> None:
    for path in ("/api/v1/job-queues", "/api/v1/job-queues-v2"):

        def states(at: str = path, **query: Any) -> list[str]:
            found = [entry.get("full", entry) for entry in user.get(at, **query).json["jobs"]]
            return sorted(entry["summary"]["state"] for entry in found)

        everything = states()
        assert len(everything) >= 2
        queued, scheduled = states(states="STATE_QUEUED"), states(states=["STATE_SCHEDULED", "3"])
        assert set(queued) <= {"STATE_QUEUED"}
        assert set(scheduled) == {"STATE_SCHEDULED"}
        assert sorted([*queued, *scheduled]) == everything == states(states=["1", "2"])


def test_tasks_endpoint_without_prefix_lists_live_allocations(user: Api, anonymous: Api, job: Job) -> None:
    found = user.get("/tasks").json[job.allocation_id]
    assert found["name"] == f"Trial {job.trial_id} (Experiment {job.experiment_id})"
    assert (found["task_id"], found["slots_needed"], found["resource_pool"]) == (job.task_id, 1, "default")
    assert found["resources"] == []
    assert anonymous.get("/tasks").status == 401


# -- bodies -------------------------------------------------------------------------------------------------------

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_a_program_may_send_json_as_curl_calls_it(user: Api, master: MasterProcess) -> None:
    raw = json.dumps({"config": config(), "activate": False}).encode()
    answer = user.call("POST", EXPERIMENTS, raw=raw, headers=FORM)
    assert answer.status == 200, answer.content
    user.post(f"{EXPERIMENTS}/{answer.json['experiment']['id']}/kill")
    words = {"username": "determined", "password": hashed(master.password), "isHashed": True}
    charset = {"Content-Type": "Application/X-WWW-Form-Urlencoded; charset=utf-8"}
    for headers in (FORM, charset):
        entered = Api(master.url).call("POST", "/api/v1/auth/login", raw=json.dumps(words).encode(), headers=headers)
        assert entered.status == 200, entered.content
    wrong = user.call("POST", EXPERIMENTS, raw=b"config=x&activate=false", headers=FORM)
    assert wrong.status == 400


def test_no_body_is_an_empty_message(user: Api) -> None:
    """As the published client asks for a notebook of which nothing is set."""
    for headers in ({"Content-Type": ""}, {"Content-Type": "application/json"}):
        answer = user.call("POST", "/api/v1/runs", raw=b"", headers=headers)
        assert answer.status == 200, answer.content
        needed = user.call("POST", "/api/v1/workspaces", raw=b"", headers=headers)
        assert (needed.status, "name: Field required" in needed.sentence) == (400, True)
    assert user.call("POST", "/api/v1/runs", raw=b" ", headers={"Content-Type": ""}).status == 400


@pytest.mark.parametrize("said", [{"Origin": "http://elsewhere"}, {"Sec-Fetch-Site": "cross-site"}, {"Cookie": "a=b"}])
def test_a_browsers_form_is_not_taken_for_json(master: MasterProcess, said: dict[str, str]) -> None:
    words = {"username": "determined", "password": hashed(master.password), "isHashed": True}
    raw = json.dumps(words).encode()
    refused = Api(master.url).call("POST", "/api/v1/auth/login", raw=raw, headers={**FORM, **said})
    assert refused.status == 400
    assert "Content-Type: application/json" in refused.sentence
