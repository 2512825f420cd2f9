"""Users, access tokens, groups and roles by the published `det` and SDK, where roles are used and where not."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.process.e2e.conftest import LOCAL
from tests.support.master import MasterProcess, serving
from tests.support.reference.batch import batch
from trainmaster.client.organisation import Organisation
from trainmaster.client.transport import Transport
from trainmaster.client.users import Users

PASSWORD = "Correct-horse-1"
SDK = """
client.login()
name, password = sys.argv[1:]
user = client.create_user(name, False, password)
user.change_display_name("Ada L.")
user.rename(name + "2")
user.change_password(password + "0")
user.link_with_agent(agent_uid=4711, agent_gid=4711, agent_user="ada", agent_group="hpc")
user.deactivate()
inactive = client.get_user_by_name(name + "2").active
user.activate()
again = client.get_user_by_id(user.user_id)
answer({
    "me": client.whoami().username,
    "inactive": inactive,
    "user": [again.username, again.display_name, again.admin, again.active, again.remote, again.agent_user],
    "users": [u.username for u in client.list_users(active=True)],
})
"""


GROUPS = "security: {authz: {type: basic, rbac_ui_enabled: true}}\n"
ROLES = "security: {authz: {type: rbac}}\n"
HOSTS = "additional_resource_managers: [{type: agent, cluster_name: hosts, resource_pools: [{pool_name: gpus}]}]\n"


POOLS = """
client.login()
one, two = (client.create_workspace(name) for name in sys.argv[1:])
(pool,) = [pool for pool in one.list_pools() if pool.name == "gpus"]
def seen(): return [len(pool.list_workspaces()), *("gpus" in [p.name for p in w.list_pools()] for w in (one, two))]
found = [seen()]
pool.add_bindings([one.name]); found.append(seen())
pool.replace_bindings([two.name]); found.append(seen())
pool.remove_bindings([two.name]); found.append(seen())
answer(found)
"""


@pytest.fixture(scope="module")
def rbac_master(installed: Path) -> Iterator[MasterProcess]:
    """A master on which roles say who may do what, with a pool beside the default one."""
    with serving(ROLES + LOCAL + HOSTS) as process:
        yield process


@pytest.fixture
def rbac_admin(installed: Path, rbac_master: MasterProcess, tmp_path: Path) -> Reference:
    return Reference(installed, rbac_master, tmp_path / "config", user="admin")


@pytest.fixture
def truth_of_roles(rbac_master: MasterProcess) -> Iterator[Transport]:
    """What our own client sees as administrator."""
    http = Transport(rbac_master.url)
    http.token = rbac_master.client("admin").login("admin", rbac_master.password)
    yield http
    http.close()


def test_users_and_tokens_without_roles(client: Reference) -> None:
    name = f"u{uuid.uuid4().hex[:8]}"
    admin = replace(client, user="admin")
    said = list(
        batch(
            admin,
            f"user create {name} --password {PASSWORD}",
            f"!user create {name} --password {PASSWORD}",
            "!user create x --password simple",
            f"user edit {name} --display-name Ada --admin true",
            f"user rename {name} {name}2",
            f"user link-with-agent-user {name}2 --agent-uid 4711 --agent-user ada --agent-gid 4711 --agent-group hpc",
            f"user deactivate {name}2",
            "user list --all",
            f"user activate {name}2",
            f"user edit {name}2 --admin false",
            f"token create {name}2 --description nightly --expiration-days 2 --json",
            f"token list {name}2",
            "!user-group list",
            "!rbac my-permissions",
        )
    )
    (row,) = [row for row in said[7].rows() if row["Username"] == f"{name}2"]
    assert (row["Display Name"], row["Admin"], row["Active"], row["Agent User"]) == ("Ada", "True", "False", "ada")
    made = json.loads(said[10].out)
    (token,) = said[11].rows()
    assert (token["ID"], token["Description"], token["Revoked"]) == (str(made["tokenId"]), "nightly", "False")
    program = replace(client, home=client.home / "program", logged_in=False)
    more = list(
        batch(
            program,
            ["token", "login", made["token"]],
            "user whoami",
            "!user deactivate admin",
            f"token edit {made['tokenId']} --description weekly",
            f"token describe {made['tokenId']}",
            f"token revoke {made['tokenId']}",
            "!user whoami",
        )
    )
    assert f"'{name}2'" in more[1].out
    assert [row["Description"] for row in more[4].rows()] == ["weekly"]
    list(batch(admin, f"user deactivate {name}2"))


def test_the_sdks_users(client: Reference) -> None:
    name = f"u{uuid.uuid4().hex[:8]}"
    found = replace(client, user="admin").run(SDK, name, PASSWORD)
    assert found["me"] == "admin"
    assert found["inactive"] is False
    assert found["user"] == [f"{name}2", "Ada L.", False, True, False, "ada"]
    assert f"{name}2" in found["users"]


def test_groups_and_roles(rbac_admin: Reference, truth_of_roles: Transport) -> None:
    word = uuid.uuid4().hex[:8]
    ada, group, place = f"u{word}", f"g{word}", f"w{word}"
    said = list(
        batch(
            rbac_admin,
            f"user create {ada} --password {PASSWORD}",
            f"workspace create {place}",
            f"user-group create {group} --add-user {ada}",
            f"user-group add-user {group} admin,determined",
            f"user-group remove-user {group} determined",
            f"user-group describe {group}",
            f"user-group list --groups-user-belongs-to {ada}",
            f"rbac assign-role Editor --group-name-to-assign {group} --workspace-name {place}",
            f"!rbac assign-role Editor --group-name-to-assign {group} --workspace-name {place}",
            f"rbac assign-role Viewer --username-to-assign {ada}",
            f"!rbac assign-role ClusterAdmin --username-to-assign {ada} --workspace-name {place}",
            "rbac list-roles",
            "rbac list-roles --exclude-global-roles --json",
            "rbac describe-role Editor",
            f"rbac list-users-roles {ada}",
            f"rbac list-groups-roles {group}",
            "rbac my-permissions",
            f"workspace list-members {place}",
            "user list",
        )
    )
    assert {row["Username"] for row in said[5].rows()} == {ada, "admin"}
    assert [(row["Name"], row["Nummembers"]) for row in said[6].rows()] == [(group, "2")]
    assert re.findall(r"role '(\w+)' with ID (\d+)", said[11].out) == [
        *(("ClusterAdmin", "1"), ("WorkspaceAdmin", "2"), ("WorkspaceCreator", "3"), ("Viewer", "4"), ("Editor", "5")),
        *(("ModelRegistryViewer", "6"), ("EditorRestricted", "7"), ("GenAIUser", "8")),
        *(("EditorProjectRestricted", "9"), ("TokenCreator", "10")),
    ]
    assert "ClusterAdmin" not in {role["name"] for role in json.loads(said[12].out)["roles"]}
    assert group in said[13].out
    roles = {(row["Rolename"], row["Assignedtogroupname"], row["Scopeworkspacename"]) for row in said[14].rows()}
    assert roles == {("Viewer", "N/A", "N/A"), ("Editor", group, place)}
    assert "role 'Editor' with ID 5 assigned" in said[15].out
    assert "global permissions assigned" in said[16].out
    members = {(row["User/Group Name"], row["Role Name"]) for row in said[17].rows()}
    assert members == {(group, "Editor"), ("admin", "WorkspaceAdmin")}
    master = Users(truth_of_roles)
    held = [entry["role"]["name"] for entry in master.roles_of_user(master.user(ada)["id"])]
    assert held == ["Viewer", "Editor"]
    list(
        batch(
            rbac_admin,
            f"rbac unassign-role Viewer --username-to-assign {ada}",
            f"user-group change-name {group} {group}2",
            f"user-group delete {group}2 --yes",
        )
    )
    assert master.roles_of_user(master.user(ada)["id"]) == []
    assert Organisation(truth_of_roles).workspace(place)["name"] == place


def test_groups_without_roles(installed: Path, tmp_path: Path) -> None:
    """With `rbac_ui_enabled` the client offers groups; who may do what goes by owners and administrators."""
    with serving(LOCAL + GROUPS) as master:
        chief = Reference(installed, master, tmp_path / "config", user="admin")
        said = list(
            batch(
                chief,
                "user-group create vision --add-user determined",
                "user-group add-user vision admin",
                "user-group remove-user vision admin",
                "user-group describe vision",
                "user-group list --groups-user-belongs-to determined",
                "user-group change-name vision sight",
                "user-group delete sight --yes",
            )
        )
        assert "determined" in said[3].out
        assert "admin" not in said[3].out
        assert "vision" in said[4].out
        other = Reference(installed, master, tmp_path / "other")
        list(batch(other, "!user-group create mine", "user-group list"))


def test_editor_of_one_workspace_is_limited_to_it(
    rbac_admin: Reference, rbac_master: MasterProcess, truth_of_roles: Transport
) -> None:
    here, elsewhere = (f"w{uuid.uuid4().hex[:8]}" for _ in range(2))
    list(
        batch(
            rbac_admin,
            f"workspace create {here}",
            f"workspace create {elsewhere}",
            f"rbac assign-role Editor --username-to-assign determined --workspace-name {here}",
        )
    )
    user = replace(rbac_admin, user="determined", home=rbac_admin.home / "user")
    said = list(
        batch(
            user,
            "workspace list",
            f"project create {here} cats",
            f"!project create {elsewhere} cats",
            f"!workspace describe {elsewhere}",
            f"!project delete {here} cats --yes",
            "!workspace create mine",
            "!token create",
            f"!rbac assign-role WorkspaceAdmin --username-to-assign determined --workspace-name {here}",
            "rbac my-permissions",
            "experiment list --all",
            "model list",
        )
    )
    assert [row["Name"] for row in said[0].rows()] == [here]
    assert f"permissions assigned over workspace '{here}'" in said[8].out
    assert "Traceback" not in said[2].err + said[6].err


def test_pools_for_some_workspaces_only(rbac_admin: Reference) -> None:
    one, two = (f"w{uuid.uuid4().hex[:8]}" for _ in range(2))
    said = list(
        batch(
            rbac_admin,
            f"workspace create {one}",
            f"workspace create {two}",
            f"resource-pool bindings add gpus {one}",
            "resource-pool bindings list-workspaces gpus",
            f"workspace list-pools {two}",
            f"resource-pool bindings replace gpus {two}",
            "resource-pool bindings list-workspaces gpus",
            f"workspace list-pools {two}",
            f"resource-pool bindings remove gpus {two}",
            f"workspace list-pools {one}",
        )
    )
    assert (one in said[3].out, two in said[3].out) == (True, False)
    assert (one in said[6].out, two in said[6].out) == (False, True)
    assert ["gpus" in said[number].out for number in (4, 7, 9)] == [False, True, True]


def test_the_sdks_pools(rbac_admin: Reference) -> None:
    one, two = (f"w{uuid.uuid4().hex[:8]}" for _ in range(2))
    found = rbac_admin.run(POOLS, one, two)
    assert found == [[0, True, True], [1, True, False], [1, False, True], [0, True, True]]


def test_a_password_is_changed(rbac_admin: Reference) -> None:
    name = f"u{uuid.uuid4().hex[:8]}"
    list(batch(rbac_admin, f"user create {name} --password {PASSWORD}"))
    rbac_admin.det("user", "change-password", name, stdin=f"{PASSWORD}0\n{PASSWORD}0\n")
    stranger = replace(rbac_admin, home=rbac_admin.home / name, logged_in=False)
    stranger.det("user", "login", name, stdin=f"{PASSWORD}\n", status=1)
    stranger.det("user", "login", name, stdin=f"{PASSWORD}0\n")
    assert f"'{name}'" in stranger.det("user", "whoami")
