"""Groups and roles: who sees them, who gives them, and what holes they must not leave."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import Person, assigned, give, person, workspace_of
from tests.support.master import MasterProcess
from trainmaster.config.master import parse_master
from trainmaster.master.main import CannotServe, creators_role

Json = dict[str, Any]
GROUPS = "/api/v1/groups"
ADD, TAKE = "/api/v1/roles/add-assignments", "/api/v1/roles/remove-assignments"
CLUSTER_ADMIN, WORKSPACE_ADMIN, WORKSPACE_CREATOR, VIEWER, EDITOR, TOKEN_CREATOR = 1, 2, 3, 4, 5, 10


def group(api: Api, *users: int) -> Json:
    answer = api.post(GROUPS, {"name": uuid.uuid4().hex[:8], "addUsers": users})
    assert answer.status == 200, answer.content
    found: Json = answer.json["group"]
    return found


# -- groups -------------------------------------------------------------------------------------------------------


def test_a_group_from_its_making_to_its_end(admin: Api, user: Api) -> None:
    ada, grace = person(admin), person(admin)
    made = group(admin, ada.id)
    path = f"{GROUPS}/{made['groupId']}"
    assert [one["username"] for one in made["users"]] == [ada.name]
    change = {"groupId": made["groupId"], "name": f"{made['name']}2", "addUsers": [grace.id], "removeUsers": [ada.id]}
    changed = admin.call("PUT", path, change).json["group"]
    assert (changed["name"], [one["id"] for one in changed["users"]]) == (f"{made['name']}2", [grace.id])
    assert user.get(path).json["group"] == changed
    for query in ({"name": changed["name"]}, {"userId": grace.id}):
        (found,) = user.post(f"{GROUPS}/search", {"limit": 10, **query}).json["groups"]
        assert found == {"group": {"groupId": made["groupId"], "name": changed["name"]}, "numMembers": 1}
    assert admin.call("DELETE", path).status == 200
    assert (user.get(path).status, admin.call("DELETE", path).status) == (404, 404)


def test_groups_that_cannot_be(admin: Api, user: Api) -> None:
    there = group(admin)
    for body, status in (
        ({"name": " "}, 400),
        ({"name": "a\nb"}, 400),
        ({"name": "x" * 300}, 400),
        ({"name": there["name"]}, 409),
        ({"name": uuid.uuid4().hex, "addUsers": [99999999]}, 404),
    ):
        assert admin.post(GROUPS, body).status == status, body
    assert admin.call("PUT", f"{GROUPS}/{group(admin)['groupId']}", {"name": there["name"]}).status == 409
    assert user.post(GROUPS, {"name": "mine"}).status == 403
    assert user.call("PUT", f"{GROUPS}/{there['groupId']}", {"addUsers": [2]}).status == 403


def test_many_users_change_groups_at_once(admin: Api) -> None:
    ada, grace = person(admin), person(admin)
    old, new = group(admin, ada.id, grace.id), group(admin, ada.id)
    path = "/api/v1/users/assignments"
    body = {"userIds": [ada.id, grace.id], "addGroups": [new["groupId"]], "removeGroups": [old["groupId"]]}
    assert admin.call("PATCH", path, body).status == 200
    members = [{one["id"] for one in admin.get(f"{GROUPS}/{g['groupId']}").json["group"]["users"]} for g in (old, new)]
    assert members == [set(), {ada.id, grace.id}]
    assert admin.call("PATCH", path, {**body, "addGroups": body["removeGroups"]}).status == 400
    assert admin.call("PATCH", path, {**body, "userIds": [99999999]}).status == 404


def test_with_roles_members_and_role_assigners_see_groups(rbac_admin: Api) -> None:
    member, stranger, manager = person(rbac_admin), person(rbac_admin), person(rbac_admin)
    give(rbac_admin, WORKSPACE_ADMIN, manager.id, workspace_of(rbac_admin)[0])
    made = group(rbac_admin, member.id)
    path = f"{GROUPS}/{made['groupId']}"
    for who, status in ((member, 200), (manager, 200), (stranger, 404)):
        assert who.api.get(path).status == status
        found = who.api.post(f"{GROUPS}/search", {"limit": 0, "name": made["name"]}).json["groups"]
        assert len(found) == (status == 200)
    assert manager.api.call("PUT", path, {"addUsers": [manager.id]}).status == 403


# -- who gives what -----------------------------------------------------------------------------------------------


def test_users_cannot_grant_roles_beyond_their_own(rbac_admin: Api) -> None:
    here, elsewhere = workspace_of(rbac_admin)[0], workspace_of(rbac_admin)[0]
    manager, ada = person(rbac_admin), person(rbac_admin)
    give(rbac_admin, WORKSPACE_ADMIN, manager.id, here)
    give(manager.api, EDITOR, ada.id, here)
    for body, status in (
        (assigned(EDITOR, manager.id), 403),
        (assigned(EDITOR, manager.id, elsewhere), 404),
        (assigned(CLUSTER_ADMIN, manager.id), 403),
    ):
        assert manager.api.post(ADD, body).status == status
    for api in (ada.api, person(rbac_admin).api):
        assert api.post(ADD, assigned(WORKSPACE_ADMIN, ada.id, here)).status == 403
    give(rbac_admin, WORKSPACE_ADMIN, manager.id)
    give(manager.api, EDITOR, ada.id, elsewhere)
    for role in (CLUSTER_ADMIN, WORKSPACE_CREATOR, TOKEN_CREATOR):
        refused = manager.api.post(ADD, assigned(role, manager.id))
        assert (refused.status, "do not have" in refused.sentence) == (403, True), role
    give(rbac_admin, CLUSTER_ADMIN, ada.id)
    assert manager.api.post(TAKE, assigned(CLUSTER_ADMIN, ada.id)).status == 403
    assert ada.api.post("/api/v1/users", {"user": {"username": ada.name}}).status != 403
    assert rbac_admin.post(TAKE, assigned(CLUSTER_ADMIN, ada.id)).status == 200
    assert ada.api.post("/api/v1/users", {"user": {"username": ada.name}}).status == 403


def test_several_assignments_are_all_or_none(rbac_admin: Api) -> None:
    here = workspace_of(rbac_admin)[0]
    ada = person(rbac_admin)
    body = assigned(VIEWER, ada.id, here)
    twice = {"userRoleAssignments": [*body["userRoleAssignments"], *body["userRoleAssignments"]]}
    assert rbac_admin.post(ADD, twice).status == 409
    assert ada.api.get(f"/api/v1/workspaces/{here}").status == 403
    both = assigned(VIEWER, ada.id, here)
    both["userRoleAssignments"][0]["roleAssignment"]["scopeCluster"] = True
    assert rbac_admin.post(ADD, both).status == 400


def test_assignments_are_seen_by_those_they_are_about(rbac_admin: Api) -> None:
    here, elsewhere = workspace_of(rbac_admin)[0], workspace_of(rbac_admin)[0]
    ada, manager, stranger = person(rbac_admin), person(rbac_admin), person(rbac_admin)
    give(rbac_admin, WORKSPACE_ADMIN, manager.id, here)
    for place in (here, elsewhere):
        give(rbac_admin, VIEWER, ada.id, place)

    def places(who: Person) -> list[set[int]]:
        """Where ada is a viewer, as `who` finds it by the user and by the role."""
        by_user = who.api.get(f"/api/v1/roles/search/by-user/{ada.id}").json["roles"]
        by_role = who.api.post("/api/v1/roles/search/by-ids", {"roleIds": [VIEWER]}).json["roles"]
        return [
            {
                one["roleAssignment"]["scopeWorkspaceId"]
                for role in found
                for one in role["userRoleAssignments"]
                if one["userId"] == ada.id
            }
            for found in (by_user, by_role)
        ]

    assert places(ada) == [{here, elsewhere}] * 2
    assert places(manager) == [{here}] * 2
    assert places(stranger) == [set()] * 2
    assert stranger.api.get("/api/v1/permissions/summary").json == {"roles": [], "assignments": []}
    everything = {"roleId": CLUSTER_ADMIN, "scopeWorkspaceIds": [], "scopeCluster": True}
    assert everything in rbac_admin.get("/api/v1/permissions/summary").json["assignments"]
    found = rbac_admin.get("/api/v1/users", roleIdAssignedDirectlyToUser=[WORKSPACE_ADMIN]).json["users"]
    assert manager.id in {one["id"] for one in found}
    assert ada.id not in {one["id"] for one in found}


def test_access_tokens_take_a_role(rbac_admin: Api) -> None:
    ada = person(rbac_admin)
    body = {"userId": ada.id}
    assert ada.api.post("/api/v1/tokens", body).status == 403
    give(rbac_admin, TOKEN_CREATOR, ada.id)
    made = ada.api.post("/api/v1/tokens", body)
    assert [one["id"] for one in ada.api.get("/api/v1/tokens").json["tokenInfo"]] == [made.json["tokenId"]]
    program = Api(rbac_admin.url, made.json["token"])
    give(rbac_admin, VIEWER, ada.id)
    assert program.get("/api/v1/workspaces").status == 200  # it acts with its owner's roles, as they are now
    assert program.post("/api/v1/workspaces", {"name": "x"}).status == 403


# -- holes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["{}.0", "%20{}", "0{}", "+{}", "{}"])
def test_an_address_cannot_be_read_in_two_ways(rbac_admin: Api, shape: str) -> None:
    here, elsewhere = workspace_of(rbac_admin), workspace_of(rbac_admin)
    ada = person(rbac_admin)
    give(rbac_admin, VIEWER, ada.id, here[0])
    for (workspace, project), ok in ((here, True), (elsewhere, False)):
        for path in (f"/api/v1/workspaces/{shape.format(workspace)}", f"/api/v1/projects/{shape.format(project)}"):
            status = ada.api.get(path).status
            assert status in ((200, 400) if ok else (400, 404)), path


def test_only_owner_may_continue_with_changed_configuration(rbac_admin: Api) -> None:
    here, project = workspace_of(rbac_admin)
    ada, editor = person(rbac_admin), person(rbac_admin)
    for who in (ada, editor):
        give(rbac_admin, EDITOR, who.id, here)
    number = create(ada.api, projectId=project, activate=False)
    ada.api.post(f"/api/v1/experiments/{number}/kill")
    body = {"id": number, "overrideConfig": "entrypoint: 'true'"}
    refused = editor.api.post("/api/v1/experiments/continue", body)
    assert (refused.status, "owner" in refused.sentence) == (403, True)
    assert rbac_admin.get(f"/api/v1/experiments/{number}").json["experiment"]["state"] == "STATE_CANCELED"
    assert editor.api.call("PATCH", f"/api/v1/experiments/{number}", {"notes": "seen"}).status == 200


@pytest.fixture
def running(rbac_master: MasterProcess, rbac_admin: Api) -> Iterator[tuple[Person, Job]]:
    """A job, and its owner, an editor in its workspace only."""
    here, project = workspace_of(rbac_admin)
    ada = person(rbac_admin)
    give(rbac_admin, EDITOR, ada.id, here)
    number = create(ada.api, projectId=project)
    yield ada, jobs_of(rbac_master, ada.api, number)[0]
    assert rbac_admin.post(f"/api/v1/experiments/{number}/kill").status == 200


def test_job_reads_its_workspace_and_those_its_owner_may_read(rbac_admin: Api, running: tuple[Person, Job]) -> None:
    ada, job = running
    there, project = workspace_of(rbac_admin)
    other = create(rbac_admin, config(name="other"), projectId=project, activate=False)
    rbac_admin.post(f"/api/v1/experiments/{other}/kill")
    own, elsewhere = (f"/api/v1/experiments/{number}" for number in (job.experiment_id, other))
    assert (job.api.get(own).status, job.api.get(elsewhere).status) == (200, 404)
    assert job.api.get(f"/api/v1/trials/{job.trial_id}").status == 200
    give(rbac_admin, VIEWER, ada.id, there)
    assert job.api.get(elsewhere).status == 200
    assert job.api.post(f"{own}/kill").status == 403
    assert job.api.get("/api/v1/experiments").status == 403
    assert job.api.get(f"/api/v1/tasks/{job.task_id}x/context_directory").status in (403, 404)


def test_the_order_of_a_strict_queue_is_the_clusters(rbac_admin: Api, running: tuple[Person, Job]) -> None:
    ada, job = running
    found = ada.api.get(f"/api/v1/experiments/{job.experiment_id}").json["experiment"]
    body = {"updates": [{"jobId": found["jobId"], "priority": 1}]}
    refused = ada.api.post("/api/v1/job-queues", body)
    assert (refused.status, "CONTROL_STRICT_JOB_QUEUE" in refused.sentence) == (403, True)
    assert rbac_admin.post("/api/v1/job-queues", body).status != 403


@pytest.mark.parametrize(("told", "role"), [("{}", 2), ("{role_id: 5}", 5), ("{enabled: false}", None)])
def test_site_sets_role_of_workspace_creators(told: str, role: int | None) -> None:
    assert creators_role(parse_master(f"security: {{authz: {{workspace_creator_assign_role: {told}}}}}")) == role


@pytest.mark.parametrize("number", [1, 10, 99])
def test_not_every_role_fits_a_workspace(number: int) -> None:
    told = f"security: {{authz: {{workspace_creator_assign_role: {{role_id: {number}}}}}}}"
    with pytest.raises(CannotServe, match=rf"role_id: {number} is no role .* 2 \(WorkspaceAdmin\)"):
        creators_role(parse_master(told))
