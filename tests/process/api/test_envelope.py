"""Whatever goes wrong leaves in Determined's envelope; nothing that a client sends is answered with 500."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config

EXPERIMENTS = "/api/v1/experiments"


def test_each_status_has_grpcs_code_and_name(user: Api, anonymous: Api, job: Job) -> None:
    ended = f"{EXPERIMENTS}/{job.experiment_id}"
    answers = {
        400: user.get(EXPERIMENTS, sortBy="SORT_BY_COLOUR"),
        401: anonymous.get(EXPERIMENTS),
        403: job.api.get(EXPERIMENTS),
        404: user.get(f"{EXPERIMENTS}/99999999"),
        405: user.call("PUT", EXPERIMENTS, {}),
        409: user.call("DELETE", ended),
    }
    found = {wanted: (a.status, a.error["code"], a.error["reason"]) for wanted, a in answers.items()}
    assert found == {
        400: (400, 3, "InvalidArgument"),
        401: (401, 16, "Unauthenticated"),
        403: (403, 7, "PermissionDenied"),
        404: (404, 5, "NotFound"),
        405: (405, 12, "Unimplemented"),
        409: (409, 6, "AlreadyExists"),
    }
    assert "SORT_BY_START_TIME" in answers[400].sentence, "the message says what there is"
    assert "99999999" in answers[404].sentence
    assert "kill it before" in answers[409].sentence


def test_error_names_unknown_path(user: Api) -> None:
    answer = user.get("/api/v1/no/such/thing")
    assert answer.status == 404
    assert "/api/v1/no/such/thing" in answer.sentence


def test_unknown_fields_are_refused_by_name(user: Api) -> None:
    answer = user.post(EXPERIMENTS, {"config": config(), "activat": True, "modelDefinition": [{"pth": "x"}]})
    assert answer.status == 400
    assert "activat" in answer.sentence
    assert "pth" in answer.sentence


def test_snake_case_is_taken_too(user: Api) -> None:
    answer = user.post(EXPERIMENTS, {"config": config(), "validate_only": True, "model_definition": []})
    assert answer.status == 200


def test_a_wrong_configuration_says_where_and_creates_nothing(user: Api) -> None:
    before = user.get(EXPERIMENTS, limit=1).json["pagination"]["total"]
    text = "name: x\nentrypoint: run\nsearcher: {name: single, metric: loss}\nmax_restart: 3\n"
    answer = user.post(EXPERIMENTS, {"config": text, "configSource": "mine.yaml"})
    assert answer.status == 400
    assert "mine.yaml" in answer.sentence
    assert "4" in answer.sentence
    assert "max_restarts" in answer.sentence
    (detail,) = answer.error["details"]
    assert (detail["line"], detail["suggestion"]) == (4, "max_restarts")
    assert user.get(EXPERIMENTS, limit=1).json["pagination"]["total"] == before


BODIES: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"3",
    b'"text"',
    b"\xff\xfe\x00",
    b'{"config": 3}',
    b'{"config": "\\u0000"}',
    b'{"config": "\\ud800"}',
    b'{"config": "a: [1, 2"}',
    b'{"config": "&a [*a]"}',
    b'{"config": "- 1"}',
    b'{"config": "' + b"[" * 5000 + b'"}',
    b"[" * 100_000,
    b'{"config": "name: x", "modelDefinition": [{"path": "../x", "type": 48, "content": ""}]}',
    b'{"config": "name: x", "modelDefinition": [{"path": "x", "type": 48, "content": "%%%"}]}',
    b'{"config": "name: x", "modelDefinition": [{"path": "x", "type": 48, "content": "", "mtime": "soon"}]}',
    b'{"config": "name: x", "projectId": 99999999999999999999}',
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:40].decode(errors="replace"))
def test_a_malformed_experiment_is_a_bad_request(user: Api, body: bytes) -> None:
    answer = user.call("POST", EXPERIMENTS, raw=body, headers={"Content-Type": "application/json"})
    assert answer.status in (400, 404), answer.content  # 404: a project of that number
    assert answer.error["code"] in (3, 5)


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "../x", "type": 48, "content": ""}],
        [{"path": "/etc/passwd", "type": 48, "content": ""}],
        [{"path": "x\u0000y", "type": 48, "content": ""}],
        [{"path": "x", "type": 48, "content": "%%%"}],
        [{"path": "x", "type": 48, "content": "", "mtime": "soon"}],
        [{"path": "x", "type": 48, "content": "", "mtime": 10**30}],
        [{"path": "x", "type": 51, "content": ""}],
        [{"path": "x", "type": 48, "content": "", "mode": -1}],
        [{"path": "", "type": 48, "content": ""}],
        [{"path": "\ud800", "type": 48, "content": ""}],
    ],
    ids=repr,
)
def test_files_that_cannot_be_unpacked_are_refused(user: Api, files: list[dict[str, Any]]) -> None:
    answer = user.post(EXPERIMENTS, {"config": config(), "modelDefinition": files, "activate": False})
    assert answer.status == 400, answer.content


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/experiments/x",
        "/api/v1/experiments/99999999999999999999",
        "/api/v1/experiments/-1",
        "/api/v1/trials/99999999999",
        "/api/v1/trials/99999999999/logs",
        "/api/v1/trials/99999999999/workloads",
        "/api/v1/trials/metrics/trial_metrics",
        "/api/v1/trials/metrics/trial_metrics?trialIds=99999999999",
        "/api/v1/checkpoints/not-a-uuid",
        "/api/v1/checkpoints/00000000-0000-0000-0000-000000000000",
        "/api/v1/tasks/none",
        "/api/v1/tasks/%00",
        "/api/v1/tasks/%00/logs",
        "/api/v1/allocations/%00",
        "/api/v1/experiments?limit=x",
        "/api/v1/experiments?limit=99999999999999999999",
        "/api/v1/experiments?offset=-99999999999999999999",
        "/api/v1/experiments?name=%00",
        "/api/v1/experiments?labels=%00",
        "/api/v1/experiments?users=%00",
        "/api/v1/experiments?userIds=99999999999",
        "/api/v1/experiments?experimentIdFilter.incl=99999999999",
        "/api/v1/experiments?projectId=99999999999",
        "/api/v1/experiments?states=STATE_HAPPY",
        "/api/v1/experiments?orderBy=SIDEWAYS",
        "/api/v1/experiments?archived=perhaps",
        "/api/v1/job-queues-v2?resourcePool=%00",
    ],
)
def test_odd_paths_and_parameters_never_break_the_master(user: Api, path: str) -> None:
    answer = user.call("GET", path)
    assert answer.status in (200, 400, 404), answer.content
    if answer.status != 200:
        assert answer.sentence


def test_error_names_unknown_query_parameter_value(user: Api) -> None:
    for query in ({"states": "STATE_HAPPY"}, {"orderBy": "SIDEWAYS"}):
        answer = user.get(EXPERIMENTS, **query)
        assert answer.status == 400
        assert next(iter(query.values())) in answer.sentence


def test_a_body_that_is_no_json_by_its_header_is_refused(user: Api) -> None:
    answer = user.call("POST", EXPERIMENTS, raw=b"config=x", headers={"Content-Type": "text/plain"})
    assert answer.status == 400
    assert json.loads(answer.content)
