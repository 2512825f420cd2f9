"""A user tries to change what colleagues' jobs run and load, or to open their shells."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.api.jobs import config, create, jobs_of
from tests.support.api.people import Person, give, person, workspace_of
from tests.support.api.tasks import launch
from tests.support.database import engine_of
from tests.support.master import MasterProcess, remove_folder, serving, wait_for
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

Json = dict[str, Any]
EDITOR = 5
EVIL = {"environment": {"environment_variables": ["LD_PRELOAD=/tmp/evil.so"]}}
# No sudo is needed: no job is started here, and the master knows by its configuration how jobs would run.
AS_USERS = """
security: {authz: {type: rbac}}
resource_manager:
  type: slurm
  job_storage_root: {root}
  impersonation: sudo
  helper: /bin/true
additional_resource_managers:
- {type: local, cluster_name: here, slots: 1, poll_interval: 0.2}
"""


@pytest.fixture
def mallory(admin: Api) -> Person:
    return person(admin)


# -- templates --------------------------------------------------------------------------------------------------


@pytest.fixture
def template(user: Api) -> str:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    assert user.post(f"/api/v1/templates/{name}", {"config": {"max_restarts": 1}}).status == 200
    return name


def test_colleagues_template_cannot_be_changed_or_removed(user: Api, mallory: Person, template: str) -> None:
    path = f"/api/v1/templates/{template}"
    tries = [
        mallory.api.call("PUT", path, {"config": EVIL}),
        mallory.api.call("PATCH", path, EVIL),
        mallory.api.call("DELETE", path),
        mallory.api.call("PATCH", "/api/v1/template/rename", {"oldName": template, "newName": f"{template}-2"}),
    ]
    assert [answer.status for answer in tries] == [403] * 4
    assert "belongs to somebody else" in tries[0].sentence
    assert user.get(path).json["template"]["config"] == {"max_restarts": 1}
    assert user.call("PATCH", path, {"max_restarts": 2}).status == 200


def test_template_without_owner_is_changed_only_by_admin(user: Api, admin: Api, template: str, engine: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE templates SET owner_id = NULL WHERE name = :name"), {"name": template})
    path = f"/api/v1/templates/{template}"
    assert user.call("PATCH", path, EVIL).status == 403
    assert admin.call("PATCH", path, {"max_restarts": 3}).status == 200


# -- shells, checkpoints ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def as_users() -> Iterator[MasterProcess]:
    """A master with roles whose jobs run, on one of its clusters, as the people who ask for them."""
    root = Path(f"/var/tmp/tm-jobs-{uuid.uuid4().hex[:8]}")
    with serving(AS_USERS.replace("{root}", str(root))) as process:
        yield process
    remove_folder(root)


@pytest.fixture(scope="module")
def boss(as_users: MasterProcess) -> Api:
    return Api(as_users.url, log_in(as_users, "admin"))


def colleagues(boss: Api) -> tuple[int, Person, Person]:
    """A workspace's project with two Editors, whose jobs run as different accounts."""
    workspace, _ = workspace_of(boss)
    first, second = person(boss), person(boss)
    for number, one in enumerate((first, second), 61_001):
        give(boss, EDITOR, one.id, workspace)
        name = f"tm{number}"  # no account of this machine
        link = {"agentUid": number, "agentUser": name, "agentGid": number, "agentGroup": name}
        assert boss.call("PATCH", f"/api/v1/users/{one.id}", {"agentUserGroup": link}).status == 200
    return workspace, first, second


def test_editor_gets_no_key_of_colleagues_shell(as_users: MasterProcess, boss: Api) -> None:
    workspace, victim, mallory = colleagues(boss)
    shell = launch(victim.api, "shell", config={"resources": {"resource_pool": "default"}}, workspaceId=workspace)
    with engine_of(EmbeddedServer(as_users.data).url, 1) as engine, engine.begin() as connection:
        # As it were on the cluster of Slurm, which cannot be reached here.
        query = text("UPDATE allocations SET dispatcher = 'default', run_as = 'tm61001' WHERE task_id = :id")
        connection.execute(query, {"id": shell["id"]})
    try:
        path = f"/api/v1/shells/{shell['id']}"
        assert "OPENSSH PRIVATE KEY" in victim.api.get(path).json["shell"]["privateKey"]
        assert mallory.api.get(path).json["shell"]["privateKey"] == ""
        assert "OPENSSH PRIVATE KEY" in boss.get(path).json["shell"]["privateKey"]
        killed = mallory.api.post(f"{path}/kill")  # what roles do allow, without the key
        assert (killed.status, killed.json["shell"]["privateKey"]) == (200, "")
    finally:
        boss.post(f"/api/v1/shells/{shell['id']}/kill")


def test_editor_cannot_change_another_users_template(boss: Api) -> None:
    workspace, victim, mallory = colleagues(boss)
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert victim.api.post(f"/api/v1/templates/{name}", {"config": {}, "workspaceId": workspace}).status == 200
    assert mallory.api.call("PATCH", f"/api/v1/templates/{name}", EVIL).status == 403
    assert victim.api.call("PATCH", f"/api/v1/templates/{name}", {"max_restarts": 1}).status == 200


def test_editor_cannot_report_another_users_checkpoints(rbac_master: MasterProcess, rbac_admin: Api) -> None:
    workspace, project = workspace_of(rbac_admin)
    victim, mallory = person(rbac_admin), person(rbac_admin)
    for one in (victim, mallory):
        give(rbac_admin, EDITOR, one.id, workspace)
    number = create(victim.api, config(), projectId=project)
    (job,) = jobs_of(rbac_master, victim.api, number)
    report = {"uuid": str(uuid.uuid4()), "taskId": job.task_id, "metadata": {"steps_completed": 5}, "resources": {}}
    try:
        refused = mallory.api.post("/api/v1/checkpoints", report)
        assert (refused.status, "somebody else" in refused.sentence) == (403, True)
        assert checkpoints(victim.api, number) == []
        assert victim.api.post("/api/v1/checkpoints", report).status == 200
        mine = {"uuid": report["uuid"], "resources": {"resources": {}}}
        assert mallory.api.call("PATCH", "/api/v1/checkpoints", {"checkpoints": [mine]}).status == 403
        assert [one["state"] for one in checkpoints(victim.api, number)] == ["STATE_COMPLETED"]
    finally:
        victim.api.post(f"/api/v1/experiments/{number}/kill")


def checkpoints(api: Api, number: int) -> list[Json]:
    found: list[Json] = api.get(f"/api/v1/experiments/{number}/checkpoints").json["checkpoints"]
    return found


def test_editor_cannot_enter_colleagues_notebook_run_as_user(boss: Api, as_users: MasterProcess) -> None:
    """Not the notebook itself is needed: who may enter is asked before it is reached."""
    workspace, victim, mallory = colleagues(boss)
    wish = {"resources": {"resource_pool": "default", "slots": 0}}
    notebook = launch(victim.api, "notebook", config=wish, workspaceId=workspace)
    engine = make_engine(EmbeddedServer(as_users.data).url, pool_size=2)
    try:
        play = text(
            "UPDATE allocations SET lease_job = 'played', run_as = 'victim', proxy = cast(:proxy AS jsonb)"
            " WHERE task_id = :task AND dispatcher <> ''"  # only then does no account come after this one
        )
        proxy = '{"address": "203.0.113.7", "port": 1, "user": ""}'

        def played() -> bool:
            with engine.begin() as connection:
                return connection.execute(play, {"task": notebook["id"], "proxy": proxy}).rowcount == 1

        wait_for(played, "the notebook's cluster")
        with engine.begin() as connection:
            node = (
                "INSERT INTO allocation_nodes (allocation_id, node_rank, run_id, name, slot_ids, addresses, peer)"
                " SELECT id, 0, 'r', 'n', '[]', '[]', '203.0.113.7' FROM allocations WHERE task_id = :task"
            )
            connection.execute(text(node), {"task": notebook["id"]})
        refused = mallory.api.get(f"/proxy/{notebook['id']}/")
        assert (refused.status, "belongs to somebody else" in refused.sentence) == (403, True)
    finally:
        engine.dispose()
        boss.post(f"/api/v1/notebooks/{notebook['id']}/kill")
