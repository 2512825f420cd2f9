"""Answers of the API that try to become a word of a program, a path or an address on the machine of `det`.

A job chooses the account of its shell, and whoever answers for the master chooses the rest.
"""

from __future__ import annotations

import ast
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.process.security.test_addresses import say_where
from tests.support.api.jobs import Job
from tests.support.det_shell import Shell
from trainmaster.client.errors import ClientError
from trainmaster.client.untrusted import checked_account, checked_id, checked_path

TASK = "0d9b31f2-5e1c-4a2b-8c3d-7f6e5a4b3c2d"
READY = {"task": {"taskId": TASK, "allocations": [{"isReady": True}]}}
HOSTILE_ACCOUNTS = ("-oKnownHostsCommand=/tmp/x", "-F/tmp/config", "a\nProxyCommand=x", "", "../x", "x" * 300)
HOSTILE_IDS = ("-oProxyCommand=x", "../../.ssh", ".ssh", "a/b", "a b", "a\n", "")
HOSTILE_PAGES = (".evil.example/", "@evil.example/", ":80@evil.example", "", "/a b", "/a\nb")


class Answers:
    """A server in the place of a master, which gives each path the answer that a test sets."""

    def __init__(self) -> None:
        self.of: dict[str, Any] = {}
        answers = self.of

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                found = answers.get(self.path.partition("?")[0])
                body = json.dumps(found if found is not None else {"message": "not there"}).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def answers() -> Iterator[Answers]:
    found = Answers()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def det(answers: Answers, tmp_path: Path) -> Shell:
    """`det` with stand-ins of ssh and of a browser, which write down their words."""
    programs, home, here = tmp_path / "bin", tmp_path / "home", tmp_path / "here"
    for folder in (programs, home, here):
        folder.mkdir()
    for name in ("ssh", "browser"):
        program = programs / name
        program.write_text(f'#!/bin/sh\nprintf "%s\\0" "$@" > {tmp_path}/{name}.words\n')
        program.chmod(0o755)
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    browser = str(programs / "browser")
    return Shell(home, here, DET_MASTER=answers.url, DET_USER="u", DET_USER_TOKEN="t", PATH=path, BROWSER=browser)


def words(det: Shell, program: str) -> list[str] | None:
    """The words that a stand-in got; None: it was not started."""
    written = det.cwd.parent / f"{program}.words"
    return written.read_text().split("\0")[:-1] if written.exists() else None


def shell_of(account: str, task_id: str = TASK) -> dict[str, Any]:
    of = {"id": task_id, "privateKey": "key", "hostPublicKey": "ssh-ed25519 AAAA", "agentUserGroup": {"user": account}}
    return {"shell": of, "config": {}}


@pytest.mark.parametrize("account", HOSTILE_ACCOUNTS)
def test_an_account_of_a_shell_is_no_option_of_ssh(answers: Answers, det: Shell, account: str) -> None:
    answers.of.update({f"/api/v1/tasks/{TASK}": READY, f"/api/v1/shells/{TASK}": shell_of(account)})
    for verb in (("open", TASK), ("show-ssh-command", TASK)):
        done = det.run("shell", *verb)
        assert (done.status, "which cannot be one" in done.err, done.out) == (1, True, ""), done
    assert words(det, "ssh") is None


@pytest.mark.parametrize("task_id", HOSTILE_IDS)
def test_an_id_of_a_shell_is_no_option_and_no_folder(answers: Answers, det: Shell, task_id: str) -> None:
    answers.of.update({f"/api/v1/tasks/{TASK}": READY, f"/api/v1/shells/{TASK}": shell_of("u", task_id)})
    before = sorted(det.home.rglob("*"))
    done = det.run("shell", "show-ssh-command", TASK)
    assert (done.status, "which is not an id" in done.err) == (1, True), done
    assert (words(det, "ssh"), [p for p in sorted(det.home.rglob("*key*")) if p not in before]) == (None, [])


@pytest.mark.parametrize("account", ["ada", "ada@site.org", r"DOM\ada", "ada lovelace", "4711", "a#b"])
def test_accounts_of_real_sites_reach_ssh_as_they_are(answers: Answers, det: Shell, account: str) -> None:
    answers.of.update({f"/api/v1/tasks/{TASK}": READY, f"/api/v1/shells/{TASK}": shell_of(account)})
    done = det.run("shell", "open", TASK, "--", "-L", "8080:localhost:80")
    assert done.status == 0, done
    given = words(det, "ssh")
    assert given is not None
    asked = subprocess.run(["ssh", "-G", *given], capture_output=True, text=True, check=True).stdout
    assert f"user {account}\n" in asked
    assert f"\nhostname {TASK}\n" in asked
    assert "\nlocalforward 8080 [localhost]:80\n" in asked  # options after the host are ssh's still


@pytest.mark.parametrize("page", HOSTILE_PAGES)
@pytest.mark.parametrize("kind", ["notebook", "tensorboard"])
def test_a_page_of_a_service_is_on_the_master(answers: Answers, det: Shell, kind: str, page: str) -> None:
    answers.of[f"/api/v1/tasks/{TASK}"] = READY
    answers.of[f"/api/v1/{kind}s/{TASK}"] = {kind: {"id": TASK, "serviceAddress": page}, "config": {}}
    done = det.run(kind, "open", TASK)
    assert (done.status, "is not a path of it" in done.err, done.out) == (1, True, ""), done
    assert words(det, "browser") is None


@pytest.mark.parametrize("uuid", HOSTILE_IDS)
def test_checks_of_ids(uuid: str) -> None:
    with pytest.raises(ClientError, match="is not an id"):
        checked_id(uuid, "checkpoint")


def test_checks_return_valid_values() -> None:
    assert checked_id(TASK, "shell") == TASK
    assert checked_account("user@site.org") == "user@site.org"
    assert checked_path(f"/proxy/{TASK}/?a=1") == f"/proxy/{TASK}/?a=1"


@pytest.mark.parametrize("account", ["-oProxyCommand=x", "a\nb", "a/b", "a:b", "x" * 300])
def test_the_master_takes_no_such_account_from_a_job(job: Job, account: str) -> None:
    answer = say_where(job, "127.0.0.1", port=8080, user=account)
    assert (answer.status, "cannot be the name of an account" in answer.sentence) == (400, True)


# The functions of the client's side that start a program or open an address. Each is attacked above; who adds one
# attacks it too.
STARTS = {
    "cli/notebook.py": {"webbrowser"},
    "cli/shell.py": {"subprocess"},
    "cli/ui.py": {"webbrowser"},
    "client/git_state.py": {"subprocess"},  # takes nothing from the master: tests/process/cli/test_git.py
}


def test_programs_that_the_client_starts_are_listed() -> None:
    root = Path(trainmaster.__file__).parent
    found: dict[str, set[str]] = {}
    for file in [*(root / "cli").glob("*.py"), *(root / "client").glob("*.py")]:
        if file.name.startswith("admin") or file.name == "agent_daemon.py":
            continue  # commands of administrators, on the master's machine
        for node in ast.walk(ast.parse(file.read_text())):
            names = {one.name for one in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom) and node.module:
                names = {node.module}
            used = names & {"subprocess", "webbrowser", "pty", "plumbum", "paramiko"}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                used |= {node.attr} & {"system", "popen", "startfile"}
                used |= {name for name in (node.attr,) if name.startswith(("exec", "spawn", "posix_spawn"))}
            if used:
                found.setdefault(str(file.relative_to(root)), set()).update(used)
    assert found == STARTS


def test_a_link_for_a_browser_is_no_word_of_a_program(answers: Answers, det: Shell) -> None:
    ticket = "one-time-ticket-of-the-user"
    answers.of["/api/x1/tickets"] = {"ticket": ticket, "seconds": 60}
    done = det.run("ui", "experiments/5", "--open")
    link = f"{answers.url}/ui/sign-in?to=experiments/5#ticket={ticket}"
    assert (done.status, done.out) == (0, f"{link}\n"), done
    (opened,) = words(det, "browser") or ()  # type: ignore[misc]
    assert ticket not in opened
    page = Path(opened.removeprefix("file://"))
    assert (page.stat().st_mode & 0o777, page.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert f'url={link}"' in page.read_text()
    # The fragment stays in the browser: what a server's log keeps of the link has no ticket.
    assert ticket not in link.partition("#")[0]
