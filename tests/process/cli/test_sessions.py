"""Logging in and out: where the user and the password come from, and what is stored."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.support.det_shell import Shell
from tests.support.master import MasterProcess
from tests.support.reference import reference
from trainmaster.client.errors import NotLoggedIn
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport


@pytest.fixture
def logged_out(shell: Shell) -> Shell:
    return shell.with_(DET_USER=None, DET_PASS=None)


def store(shell: Shell) -> dict[str, object]:
    path = shell.home / ".config/determined/auth.json"
    found: dict[str, object] = json.loads(path.read_text())["masters"] if path.exists() else {}
    return found


def test_login_at_a_terminal_lasts(logged_out: Shell, process: MasterProcess) -> None:
    done = logged_out.at_terminal(
        "user", "login", "determined", typed={"Password for user 'determined': ": process.password}
    )
    assert done.status == 0
    assert "Logged in as user 'determined'" in done.out
    assert process.password not in done.out
    assert logged_out.det("user", "whoami").out == "You are logged in as user 'determined'\n"
    assert store(logged_out)[process.url]["active_user"] == "determined"  # type: ignore[index]


def test_a_user_without_a_session_learns_how_to_log_in(logged_out: Shell) -> None:
    done = logged_out.run("experiment", "list")
    assert (done.status, done.sentence) == (
        1,
        "det: You are not logged in as determined. Run `det user login determined` at a terminal, "
        "or set DET_USER and DET_PASS.",
    )


def test_a_command_at_a_terminal_asks(logged_out: Shell, process: MasterProcess) -> None:
    done = logged_out.at_terminal(
        "-u", "admin", "user", "whoami", typed={"Password for user 'admin': ": process.password}
    )
    assert (done.status, "You are logged in as user 'admin'" in done.out) == (0, True)
    assert logged_out.det("-u", "admin", "user", "whoami").out == "You are logged in as user 'admin'\n"
    assert "active_user" not in store(logged_out)[process.url]  # type: ignore[operator]


def test_a_wrong_password_is_one_sentence(shell: Shell) -> None:
    for arguments in (["user", "login"], ["experiment", "list"]):
        done = shell.with_(DET_PASS="wrong").run(*arguments)
        assert (done.status, done.sentence) == (1, "det: invalid credentials: The user name or the password is wrong.")
    assert store(shell) == {}


def test_the_environments_password_is_its_users_only(shell: Shell) -> None:
    assert shell.det("user", "whoami", "--json").json()["username"] == "determined"
    done = shell.run("user", "login", "admin")
    assert (done.status, done.sentence.startswith("det: You are not logged in as admin.")) == (1, True)
    anyone = shell.with_(DET_USER=None)
    assert anyone.det("user", "login", "admin").out == "Logged in as user 'admin'\n"


def test_last_login_is_default_user(shell: Shell) -> None:
    anyone = shell.with_(DET_USER=None)
    anyone.det("user", "login", "determined")
    anyone.det("user", "login", "admin")
    assert "user 'admin'" in anyone.det("user", "whoami").out
    assert "user 'determined'" in anyone.det("-u", "determined", "user", "whoami").out
    assert "user 'determined'" in shell.det("user", "whoami").out  # DET_USER is stronger


def test_logout_ends_the_session_at_the_master_too(shell: Shell, process: MasterProcess) -> None:
    anyone = shell.with_(DET_USER=None)
    anyone.det("user", "login", "determined")
    token = store(anyone)[process.url]["tokens"]["determined"]  # type: ignore[index]
    http = Transport(process.url, token)
    assert Master(http).whoami()["username"] == "determined"
    assert anyone.det("user", "logout").out == "Logged out user 'determined'\n"
    with pytest.raises(NotLoggedIn):
        Master(http).whoami()
    http.close()
    assert anyone.det("user", "logout").out == "You are not logged in.\n"
    assert anyone.with_(DET_PASS=None).run("user", "whoami").status == 1


def test_logout_of_all(shell: Shell, process: MasterProcess) -> None:
    anyone = shell.with_(DET_USER=None)
    for user in ("determined", "admin"):
        anyone.det("user", "login", user)
    assert anyone.det("user", "logout", "--all").out == "Logged out user 'admin'\nLogged out user 'determined'\n"
    assert store(anyone)[process.url]["tokens"] == {}  # type: ignore[index]


def test_a_session_that_ended_is_renewed_with_the_password(
    shell: Shell, process: MasterProcess, finished: object
) -> None:
    shell.det("user", "login")
    token = store(shell)[process.url]["tokens"]["determined"]  # type: ignore[index]
    http = Transport(process.url, token)
    Master(http).logout()
    http.close()
    assert "user 'determined'" in shell.det("user", "whoami").out
    assert store(shell)[process.url]["tokens"]["determined"] != token  # type: ignore[index]


def test_a_session_that_ended_is_reported_without_a_password(shell: Shell, process: MasterProcess) -> None:
    shell.det("user", "login")
    http = Transport(process.url, store(shell)[process.url]["tokens"]["determined"])  # type: ignore[index]
    Master(http).logout()
    http.close()
    for arguments in (["user", "whoami"], ["trial", "logs", "1"]):
        done = shell.with_(DET_PASS=None).run(*arguments)
        assert (done.status, done.sentence.startswith("det: You are not logged in as determined. Run")) == (1, True)
    assert shell.det("user", "logout").out == "Logged out user 'determined'\n"


def test_a_token_from_the_environment(logged_out: Shell, process: MasterProcess) -> None:
    http = Transport(process.url)
    token = Master(http).login("admin", process.password)
    http.close()
    shell = logged_out.with_(DET_USER="admin", DET_USER_TOKEN=token)
    assert shell.det("user", "whoami").out == "You are logged in as user 'admin'\n"
    assert store(shell) == {}
    assert shell.run("-u", "determined", "user", "whoami").status == 1


def test_job_ignores_ended_session_in_users_home(shell: Shell, process: MasterProcess) -> None:
    shell.det("user", "login")
    http = Transport(process.url, store(shell)[process.url]["tokens"]["determined"])  # type: ignore[index]
    Master(http).logout()
    http.close()
    http = Transport(process.url)
    token = Master(http).login("determined", process.password)
    http.close()
    inside = shell.with_(DET_USER="determined", DET_USER_TOKEN=token, DET_PASS=None)
    assert inside.det("user", "whoami").out == "You are logged in as user 'determined'\n"


def test_a_home_that_cannot_be_written_is_a_warning(shell: Shell) -> None:
    (shell.home / "file").write_text("")
    done = shell.with_(XDG_CONFIG_HOME=str(shell.home / "file")).run("user", "whoami")
    assert (done.status, done.out) == (0, "You are logged in as user 'determined'\n")
    assert done.sentence.startswith("det: warning: The token store in ")


def test_users(shell: Shell) -> None:
    table = shell.det("user", "list").table()
    assert [(row["Username"], row["Admin"]) for row in table] == [("admin", "yes"), ("determined", "no")]
    assert [row["Username"] for row in shell.det("user", "list", "--csv").csv()] == ["admin", "determined"]
    assert shell.det("user", "ls", "--json").json()[0]["username"] == "admin"


def test_the_store_is_shared_with_determineds_client(logged_out: Shell, process: MasterProcess) -> None:
    try:
        theirs = reference.environment() / "bin" / "det"
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")

    def their_det(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**logged_out.environment, **variables}
        return subprocess.run([str(theirs), *arguments], env=environment, capture_output=True, text=True, check=True)

    logged_out.with_(DET_PASS=process.password).det("user", "login", "determined")
    assert "logged in as user 'determined'" in their_det("user", "whoami").stdout
    their_det("user", "whoami", DET_USER="admin", DET_PASS=process.password)
    assert "logged in as user 'admin'" in logged_out.det("-u", "admin", "user", "whoami").out
    logged_out.det("user", "logout")
    assert "logged in as user 'admin'" in their_det("-u", "admin", "user", "whoami").stdout
    assert logged_out.run("user", "whoami").status == 1
