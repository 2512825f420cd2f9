"""`det user`, `det user-group`, `det rbac` and `det token`: their output and their effects."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest

from tests.support.det_shell import Shell
from tests.support.master import MasterProcess

PASSWORD = "Correct-horse-1"


@pytest.fixture
def admin(rbac_master: MasterProcess, tmp_path: Path) -> Shell:
    """An administrator of a master that uses roles."""
    return Shell(tmp_path, tmp_path, DET_MASTER=rbac_master.url, DET_USER="admin", DET_PASS=rbac_master.password)


@pytest.fixture
def name() -> str:
    return f"u{uuid.uuid4().hex[:8]}"


@pytest.fixture
def ada(admin: Shell, name: str, tmp_path: Path) -> Shell:
    """The shell of a new user without roles."""
    assert admin.det("user", "create", name, "--password", PASSWORD).out == f"Created user '{name}'\n"
    home = tmp_path / "ada"
    home.mkdir()
    return Shell(home, home, DET_MASTER=admin.environment["DET_MASTER"], DET_USER=name, DET_PASS=PASSWORD)


def listed(admin: Shell, name: str) -> dict[str, str]:
    (row,) = [row for row in admin.det("user", "list", "--all", "--csv").csv() if row["Username"] == name]
    return row


def test_users_are_made_and_changed(admin: Shell, ada: Shell, name: str) -> None:
    assert ada.det("user", "whoami").out == f"You are logged in as user '{name}'\n"
    edited = admin.det("user", "edit", name, "--display-name", "Ada L.", "--admin", "yes")
    assert edited.out == f"Changed user '{name}'\n"
    assert (listed(admin, name)["Display Name"], listed(admin, name)["Admin"]) == ("Ada L.", "true")
    assert admin.det("user", "deactivate", name).out == f"Deactivated user '{name}'\n"
    gone = ada.run("user", "whoami")
    assert (gone.status, gone.sentence.partition(": The")[0]) == (1, "det: user is not active")
    assert name not in {row["Username"] for row in admin.det("user", "list", "--csv").csv()}
    admin.det("user", "activate", name)
    ada.det("user", "whoami")
    assert admin.det("user", "rename", name, f"{name}2").out == f"User '{name}' is '{name}2' from now on\n"
    assert listed(admin, f"{name}2")["Active"] == "true"
    link = ["--agent-uid", "4711", "--agent-user", "ada", "--agent-gid", "4711", "--agent-group", "hpc"]
    admin.det("user", "link-with-agent-user", f"{name}2", *link)
    linked = [one for one in admin.det("user", "list", "--json").json() if one["username"] == f"{name}2"]
    assert linked[0]["agentUserGroup"]["agentUser"] == "ada"


def test_a_password_is_typed_twice_at_a_terminal(admin: Shell, ada: Shell, name: str) -> None:
    old = f"Old password for user '{name}': "
    typed = {f"New password for user '{name}': ": "Another-horse-2", "Confirm password: ": "Another-horse-2"}
    wrong = ada.at_terminal("user", "change-password", typed={old: "Guess-1234", **typed})
    assert (wrong.status, "present password is wrong" in wrong.out) == (1, True)
    typed[old] = PASSWORD
    done = ada.at_terminal("user", "change-password", typed=typed)
    assert (done.status, "other sessions have ended" in done.out, "horse" in done.out) == (0, True, False)
    assert ada.with_(DET_PASS="Another-horse-2").det("user", "login").out == f"Logged in as user '{name}'\n"
    for first, second, word in (("Another-horse-2", "Another-horse-3", "differ"), ("short", "short", "8 characters")):
        typed = {f"New password for user '{name}': ": first, "Confirm password: ": second}
        done = admin.at_terminal("user", "change-password", name, typed=typed)
        assert (done.status, word in done.out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "status", "word"),
    [
        (["user", "create", "x", "--password", "simple"], 1, "8 characters"),
        (["user", "create", "x"], 2, "terminal"),
        (["user", "create", "admin", "--password", PASSWORD], 1, "already"),
        (["user", "edit", "admin"], 2, "--display-name"),
        (["user", "edit", "admin", "--admin", "perhaps"], 2, "perhaps"),
        (["user", "edit", "nobody-here", "--admin", "true"], 1, "nobody-here"),
        (["user-group", "describe", "nothing-here"], 1, "det user-group list"),
        (["rbac", "describe-role", "Emperor"], 1, "det rbac list-roles"),
        (["rbac", "assign-role", "Editor"], 2, "-g"),
        (["rbac", "assign-role", "ClusterAdmin", "-u", "admin", "-w", "Uncategorized"], 1, "everywhere"),
        (["rbac", "unassign-role", "Viewer", "-u", "admin"], 1, "not assigned"),
        (["token", "describe", "99999999"], 1, "99999999"),
        (["token", "revoke", "99999999"], 1, "99999999"),
        (["token", "create", "-e", "99999"], 1, "at most 365 days"),
        (["token", "login", "nonsense"], 1, "log in"),
    ],
)
def test_invalid_command_error_is_one_sentence(admin: Shell, arguments: list[str], status: int, word: str) -> None:
    done = admin.run(*arguments)
    assert (done.status, word in done.err.splitlines()[-1]) == (status, True), done


def test_groups_and_roles(admin: Shell, ada: Shell, name: str) -> None:
    group, place = f"g-{name}", f"w-{name}"
    admin.det("workspace", "create", place)
    assert ada.run("workspace", "describe", place).status == 1
    assert admin.det("user-group", "create", group, "--add-user", name).out.startswith(f"Created group {group} with ID")
    assert [row["Username"] for row in admin.det("user-group", "describe", group).table()] == [name]
    given = admin.det("rbac", "assign-role", "Editor", "-g", group, "-w", place)
    assert given.out == f"Assigned role Editor to {group}\n"
    ada.det("project", "create", place, "cats")
    assert ada.run("project", "delete", place, "cats", "--yes").status == 1
    assert ada.det("rbac", "list-users-roles", name).table() == [
        {"Role": "Editor", "Where": place, "How": f"by group {group}"}
    ]
    assert admin.det("rbac", "list-groups-roles", group).table() == [{"Role": "Editor", "Where": place}]
    mine = ada.det("rbac", "my-permissions", "--csv").csv()
    assert {"Where": place, "Permission": "create experiment", "By Role": "Editor"} in mine
    admin.det("rbac", "assign-role", "Viewer", "-u", name)
    assert "ModelRegistryViewer" in {row["Role"] for row in admin.det("rbac", "list-roles", "--csv").csv()}
    local = admin.det("rbac", "list-roles", "--exclude-global-roles", "--json").json()
    assert "ClusterAdmin" not in {role["name"] for role in local}
    described = admin.det("rbac", "describe-role", "Viewer")
    assert described.out.startswith("Viewer: ")
    assert {"Kind": "user", "Name": name, "Where": "everywhere"} in described.table()
    members = admin.det("workspace", "list-members", place).table()
    assert {"User/Group Name": group, "User/Group": "G", "Role Name": "Editor"} in members
    admin.det("rbac", "unassign-role", "Viewer", "-u", name)
    admin.det("user-group", "remove-user", group, name)
    assert ada.run("workspace", "describe", place).status == 1
    assert admin.det("user-group", "add-user", group, f"{name},admin").out == f"Added {name}, admin to group {group}\n"
    admin.det("user-group", "change-name", group, f"{group}2")
    (row,) = ada.det("user-group", "list", "--groups-user-belongs-to", name).table()
    assert (row["Group Name"], row["# Users"]) == (f"{group}2", "2")
    admin.det("user-group", "delete", f"{group}2", "--yes")
    assert ada.det("user-group", "list", "--json").json() == []


def test_tokens(admin: Shell, ada: Shell, name: str) -> None:
    refused = ada.run("token", "create")
    assert (refused.status, "CREATE_TOKEN" in refused.sentence) == (1, True)
    admin.det("rbac", "assign-role", "TokenCreator", "-u", name)
    made = ada.det("token", "create", "-d", "nightly", "-e", "2", "--json").json()
    number = str(made["tokenId"])
    (row,) = ada.det("token", "list").table()
    assert (row["ID"], row["Description"], row["Revoked"]) == (number, "nightly", "no")
    program = ada.with_(DET_USER=None, DET_PASS=None, HOME=str(ada.home / "program"))
    assert program.det("token", "login", made["token"]).out == f"Logged in as user '{name}'\n"
    assert program.det("user", "whoami").out == f"You are logged in as user '{name}'\n"
    assert ada.with_(DET_USER_TOKEN=made["token"], DET_PASS=None).det("user", "whoami").status == 0
    changed = ada.det("token", "edit", number, "-d", "weekly", "--json").json()
    assert changed["description"] == "weekly"
    assert ada.det("token", "revoke", number).out == f"Revoked token {number}\n"
    assert re.match("det: You are not logged in", program.run("user", "whoami").sentence)
    assert ada.det("token", "list", "--csv").csv() == []
    (row,) = admin.det("token", "list", name, "--show-inactive", "--csv").csv()
    assert (row["ID"], row["Revoked"], row["Token Type"]) == (number, "true", "ACCESS_TOKEN")
    assert [one["id"] for one in ada.det("token", "describe", number, "--json").json()] == [int(number)]


def test_roles_can_be_given_before_they_count(shell: Shell) -> None:
    admin = shell.with_(DET_USER="admin")
    given = admin.det("rbac", "assign-role", "Viewer", "-u", "determined")
    assert (given.out, "security.authz.type" in given.sentence) == ("Assigned role Viewer to determined\n", True)
    assert admin.det("rbac", "unassign-role", "Viewer", "-u", "determined").err == ""
    refused = shell.run("rbac", "assign-role", "ClusterAdmin", "-u", "determined")
    assert (refused.status, "administrator" in refused.sentence) == (1, True)
