"""The session token of programs in a job: its rights, its limits, and its end."""

from __future__ import annotations

import string
import threading
from collections.abc import Callable

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import give, person, workspace_of
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.http.permissions import ENDPOINTS, Rule, closed_inside

CLOSED = sorted(key for key in ENDPOINTS if closed_inside(key) and ENDPOINTS[key] not in (Rule.OPEN, Rule.AGENT))
EDITOR, CLUSTER_ADMIN = 5, 1


def inside(job: Job) -> Api:
    """What a program in the job does as its owner."""
    return Api(job.api.url, job.lease().json["owner_token"])


def test_it_acts_as_the_owner(master: MasterProcess, user: Api, experiment: Callable[..., int], job: Job) -> None:
    program = inside(job)
    assert program.get("/api/v1/me").json["user"]["username"] == "determined"
    made = program.post("/api/v1/experiments", {"config": config(name="made inside")})
    assert made.status == 200, made.content
    number = made.json["experiment"]["id"]
    assert made.json["experiment"]["username"] == "determined"
    assert program.post(f"/api/v1/experiments/{number}/kill").status == 200
    assert user.get(f"/api/v1/experiments/{number}").status == 200


def test_an_administrators_job_is_no_administrator(master: MasterProcess, admin: Api, user: Api) -> None:
    number = create(admin)
    theirs = create(user)
    (job,) = jobs_of(master, admin, number)
    program = inside(job)
    assert program.get("/api/v1/me").json["user"]["username"] == "admin"
    assert admin.get("/api/v1/master/config").status == 200
    assert program.get("/api/v1/master/config").status == 403
    (line,) = program.lines("/api/v1/master/logs", limit=1)
    assert line["logEntry"]["message"].endswith(": ********")
    assert program.post(f"/api/v1/experiments/{theirs}/kill").status == 403
    assert program.post(f"/api/v1/allocations/{job.allocation_id}/signals/pending_preemption").status == 403
    for api, one in ((admin, number), (user, theirs)):
        api.post(f"/api/v1/experiments/{one}/kill")


def test_endpoints_closed_to_jobs_touch_accounts_or_other_jobs() -> None:
    for key in ("POST /api/v1/tokens", "GET /api/v1/tokens", "POST /api/x1/tickets", "PATCH /api/v1/users/{user_id}"):
        assert key in CLOSED, key
    for key in (
        "POST /api/v1/users/{user_id}/password",
        "PUT /api/v1/templates/{template_name}",
        "PATCH /api/v1/workspaces/{workspace_id}",
    ):
        assert key in CLOSED, key
    for key in ("GET /api/v1/me", "GET /api/v1/users", "POST /api/v1/webhooks/custom", "POST /api/v1/groups/search"):
        assert key not in CLOSED, key
    assert not any("experiments" in key or "models" in key for key in CLOSED)


def test_closed_endpoints_reject_administrators_job_too(master: MasterProcess, admin: Api) -> None:
    number = create(admin)
    (job,) = jobs_of(master, admin, number)
    program = inside(job)
    for key in CLOSED:
        method, path = key.split(" ")
        names = {name: "1" for _, name, _, _ in string.Formatter().parse(path) if name}
        answer = program.call(method, path.format_map(names), None if method == "GET" else {})
        assert (answer.status, "acts as its owner, but not for" in answer.sentence) == (403, True), (
            key,
            answer.content,
        )
    admin.post(f"/api/v1/experiments/{number}/kill")


def test_it_is_no_jobs_token_and_a_jobs_token_is_not_it(job: Job) -> None:
    program = inside(job)
    assert program.post(f"/api/x1/allocations/{job.allocation_id}/lease", {}).status in (400, 403, 422)
    body = {"stream": "core", "first": 1, "records": [], "node_rank": 0}
    assert program.post(f"/api/x1/allocations/{job.allocation_id}/reports", body).status == 403
    assert program.get(f"/api/x1/allocations/{job.allocation_id}/context").status == 403
    assert job.api.post("/api/v1/experiments", {"config": config()}).status == 403
    turned = Api(job.api.url, program.token.replace("owner:", "alloc:"))
    assert turned.get("/api/v1/me").status == 401
    turned = Api(job.api.url, job.api.token.replace("alloc:", "owner:"))
    assert turned.get("/api/v1/me").status == 401


@pytest.mark.parametrize("part", ["name", "mac", "short", "odd", "surrogate"])
def test_forged_session_token_is_rejected(user: Api, experiment: Callable[..., int], job: Job, part: str) -> None:
    _, name, mac = inside(job).token.split(":")
    forged = {
        "name": f"owner:{name}0:{mac}",
        "mac": f"owner:{name}:{mac[:-1]}{'0' if mac[-1] != '0' else '1'}",
        "short": f"owner:{name}",
        "odd": f"owner:{name}:{mac}:{mac}",
        "surrogate": f"owner:{name}:{mac}\xff",
    }[part]
    assert Api(user.url, forged).get("/api/v1/me").status == 401


def test_session_token_and_its_streams_end_with_attempt(job: Job) -> None:
    program, followed = inside(job), threading.Event()

    def follow() -> None:
        for _ in program.lines(f"/api/v1/tasks/{job.task_id}/logs", follow=True):
            pass
        followed.set()

    threading.Thread(target=follow, daemon=True).start()
    assert program.get("/api/v1/me").status == 200
    job.leave()
    assert program.get("/api/v1/me").status == 401
    assert job.api.get(f"/api/v1/allocations/{job.allocation_id}").status == 200  # that one has its last words
    wait_for(followed.is_set, "the end of the log")


def test_followed_log_of_other_task_ends_with_attempt(user: Api, master: MasterProcess, job: Job) -> None:
    number = create(user)
    (other,) = jobs_of(master, user, number)
    program, followed = inside(job), threading.Event()

    def follow() -> None:
        for _ in program.lines(f"/api/v1/tasks/{other.task_id}/logs", follow=True):
            pass
        followed.set()

    threading.Thread(target=follow, daemon=True).start()
    job.leave()
    wait_for(followed.is_set, "the end of what was followed", 60)
    assert user.get(f"/api/v1/experiments/{number}").json["experiment"]["state"] != "STATE_COMPLETED"
    user.post(f"/api/v1/experiments/{number}/kill")


def test_a_deactivated_user_acts_no_more_from_inside(master: MasterProcess, admin: Api) -> None:
    owner = person(admin)
    number = create(owner.api)
    (job,) = jobs_of(master, owner.api, number)
    program = inside(job)
    assert program.get("/api/v1/me").status == 200
    assert admin.call("PATCH", owner.path, {"active": False}).status == 200
    assert program.get("/api/v1/me").status == 401
    admin.post(f"/api/v1/experiments/{number}/kill")


def test_job_has_its_owners_roles_without_admin_rights(rbac_master: MasterProcess, rbac_admin: Api) -> None:
    holds = create(rbac_admin, config(name="holds the only slot"))  # the test plays the others' jobs
    everything = "/api/v1/experiments"
    wait_for(
        lambda: any(
            one["state"] == "STATE_RUNNING" for one in rbac_admin.get(everything, limit=50).json["experiments"]
        ),
        "a job that holds the slot",
    )
    owner = person(rbac_admin)
    workspace, project = workspace_of(rbac_admin)
    elsewhere, _ = workspace_of(rbac_admin)
    give(rbac_admin, CLUSTER_ADMIN, owner.id)
    assert owner.api.get("/api/v1/master/logs", limit=1).status == 200
    number = create(owner.api, projectId=project)
    (job,) = jobs_of(rbac_master, owner.api, number)
    program = inside(job)
    assert program.get(f"/api/v1/experiments/{number}").status == 200
    assert program.get("/api/v1/master/logs", limit=1).status == 403
    assert program.get("/api/v1/master/config").status == 403
    editor = person(rbac_admin)
    give(rbac_admin, EDITOR, editor.id, workspace)
    theirs = create(editor.api, projectId=project)
    (job,) = jobs_of(rbac_master, editor.api, theirs)
    program = inside(job)
    assert program.get(f"/api/v1/workspaces/{workspace}").status == 200
    assert program.get(f"/api/v1/workspaces/{elsewhere}").status in (403, 404)
    for one in (number, theirs, holds):
        rbac_admin.post(f"/api/v1/experiments/{one}/kill")


def test_it_lies_in_no_file_of_the_jobs_folder(job: Job) -> None:
    token = inside(job).token.encode()
    held = [path.name for path in job.folder.rglob("*") if path.is_file() and token in path.read_bytes()]
    assert held == []


def test_it_opens_no_way_for_browsers(job: Job) -> None:
    program = inside(job)
    assert program.post("/api/x1/tickets", {"purpose": "stream"}).status == 403
    shown = Api(job.api.url).call("GET", "/stream", headers={"Authorization": f"Bearer {program.token}"})
    assert shown.status in (403, 404, 426)  # it is a WebSocket
