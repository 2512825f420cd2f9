"""`det command`, `shell`, `notebook`, `tensorboard`, `task` and `tunnel`; the jobs really run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.process.cli.conftest import Finished
from tests.support.det_shell import DET, Shell
from tests.support.master import free_port, wait_for
from trainmaster.client.master import Master
from trainmaster.launchers.shell import find_sshd

pytestmark = pytest.mark.programs

NOTHING = ("--config", "resources.slots=0")


def ended(api: Master, task_id: str) -> str:
    """How a task ended, once it has."""
    task = wait_for(
        lambda: found if (found := api.tasks.task(task_id)).get("endTime") else None, f"the end of {task_id}"
    )
    return str(task["allocations"][0].get("exitReason"))


def test_a_command_is_followed_to_its_end(shell: Shell) -> None:
    (shell.cwd / "say.py").write_text("import sys; print('spoken:', *sys.argv[1:]); sys.exit(4)\n")
    (shell.cwd / "speak.yaml").write_text("description: speaks up\n")
    done = shell.run(
        "command",
        "run",
        "--config-file",
        "speak.yaml",
        *NOTHING,
        "-i",
        "say.py",
        "python3",
        "say.py",
        "-x",
        "two words",
    )
    assert (done.status, "spoken: -x two words" in done.out) == (4, True), done
    (mine,) = [row for row in shell.det("command", "list", "--csv").csv() if row["description"] == "speaks up"]
    assert (mine["username"], mine["state"], mine["workspaceName"]) == ("determined", "TERMINATED", "Uncategorized")
    described = shell.det("command", "describe", mine["id"][:13], "--json").json()
    assert "ended with exit code 4" in described["exitStatus"]
    assert "- two words" in shell.det("command", "config", mine["id"]).out
    assert "spoken" in shell.det("command", "logs", "--tail", "5", mine["id"]).out


def test_commands_are_listed_and_killed(shell: Shell, api: Master) -> None:
    first, second = (shell.det("command", "run", "-d", *NOTHING, "sleep", "600").out.strip() for _ in range(2))
    listed = shell.det("command", "list", "--all", "-q", "--sort-by", "startTime", "--order-by", "desc").out.split()
    assert listed.index(second) < listed.index(first)
    assert shell.det("cmd", "kill", first[:20], second).out.splitlines() == [
        f"Killed command {one}" for one in (first, second)
    ]
    for task_id in (first, second):
        how, _, by = ended(api, task_id).partition(": ")
        assert how in ("It was ended at once", "It was withdrawn before it was submitted")  # as soon as it is
        assert by == "killed by determined"
    missing = shell.run("command", "kill", "ffffffff", first)
    assert (missing.status, "No command begins with 'ffffffff'" in missing.err) == (1, True)
    both = shell.run("command", "kill", "-f", "ffffffff", first)
    assert (both.status, both.out) == (1, f"Killed command {first}\n")


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["run"], 2, "give the program to run"),
        (["run", "-v", "/data", "true"], 2, "'/data' is not HOST_PATH:CONTAINER_PATH"),
        (["run", "--config", "resources.slots=99", "true"], 1, "99"),
        (["run", "--config", "resorces.slots=1", "true"], 1, "did you mean resources?"),
        (["run", "--template", "none", "true"], 1, "There is no template 'none'"),
        (["run", "-w", "nowhere", "true"], 1, "nowhere"),
        (["set", "priority", "00000000-0000-0000-0000-000000000000", "5"], 1, "There is no command"),
    ],
)
def test_refused_calls_say_why(shell: Shell, arguments: list[str], status: int, expected: str) -> None:
    done = shell.run("command", *arguments)
    assert (done.status, expected in done.err) == (status, True), done


def test_a_generic_task_and_its_family(shell: Shell, api: Master) -> None:
    (shell.cwd / "task.yaml").write_text("entrypoint: [sleep, '600']\nresources: {slots: 0}\n")
    parent = shell.det("task", "create", "task.yaml", "--config", "preemption_timeout=1").out.split()[-1]
    child = shell.det("task", "create", "task.yaml", "-p", parent).out.split()[-1]
    assert parent in {row["Task ID"] for row in shell.det("task", "list", "--csv").csv()}
    assert shell.det("task", "config", parent, "--json").json()["preemption_timeout"] == 1
    shell.det("task", "pause", parent)
    wait_for(lambda: api.tasks.task(parent)["taskState"] == "GENERIC_TASK_STATE_PAUSED", "the pause")
    shell.det("task", "unpause", parent)
    shell.det("task", "kill", child, "--root")
    ended(api, parent)
    ended(api, child)
    (shell.cwd / "wrong.yaml").write_text("entrypoint: x\nresources:\n  slotz: 1\n")
    wrong = shell.run("task", "create", "wrong.yaml")
    assert (wrong.status, "did you mean slots?" in wrong.err) == (1, True), wrong


def test_a_fork_is_followed(shell: Shell) -> None:
    (shell.cwd / "files").mkdir()
    (shell.cwd / "files" / "say.py").write_text("print('again and again')\n")
    (shell.cwd / "task.yaml").write_text("entrypoint: python3 say.py\nresources: {slots: 0}\n")
    made = shell.det("task", "create", "task.yaml", "-c", "files", "--follow").out
    assert "again and again" in made
    assert "again and again" in shell.det("task", "fork", made.split()[2], "-f").out


# scripts/test installs sshd where it may, as root; an ordinary user may be on a machine without.
@pytest.mark.skipif(find_sshd("") is None, reason="there is no sshd on this machine")
def test_a_shell_is_entered(shell: Shell, api: Master) -> None:
    made = shell.det("shell", "start", "-d", *NOTHING).out.strip()
    done = shell.run("shell", "open", made, "--", 'echo "in $DET_TASK_TYPE"; exit 5')
    assert (done.status, done.out) == (5, "in SHELL\n"), done
    command = shell.det("shell", "show-ssh-command", made[:12]).out.strip()
    by_hand = subprocess.run(
        ["sh", "-c", f"{command} 'echo by hand'"],
        env=shell.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert by_hand.stdout == "by hand\n", by_hand
    kept = shell.home / ".cache" / "trainmaster" / "shell" / made / "key"
    assert kept.stat().st_mode & 0o777 == 0o600
    others = shell.with_(DET_USER="admin").det("shell", "list", "--json").json()
    assert made not in {one["id"] for one in others}
    shell.det("shell", "kill", made)
    ended(api, made)
    over = shell.run("shell", "open", made)
    assert (over.status, "has ended" in over.err) == (1, True)


def test_a_port_is_reached(shell: Shell, api: Master) -> None:
    port = free_port()
    served = "import socketserver as s\nclass E(s.StreamRequestHandler):\n"
    served += "    def handle(self): self.wfile.write(self.rfile.readline().upper())\n"
    (shell.cwd / "echo.py").write_text(f"{served}s.ThreadingTCPServer(('127.0.0.1', {port}), E).serve_forever()\n")
    text = {"entrypoint": "python3 echo.py", "resources": {"slots": 0}}
    (shell.cwd / "echo.json").write_text(
        json.dumps({**text, "environment": {"proxy_ports": [{"proxy_port": port, "proxy_tcp": True}]}})
    )
    task_id = shell.det("task", "create", "echo.json", "-i", "echo.py").out.split()[-1]

    def heard() -> bool:
        with subprocess.Popen(
            [*DET, "tunnel", f"{task_id}:{port}"], env=shell.environment, cwd=shell.cwd, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as tunnel:  # fmt: skip
            assert tunnel.stdin
            assert tunnel.stdout
            try:
                tunnel.stdin.write("over there\n")
                tunnel.stdin.flush()
                return tunnel.stdout.readline() == "OVER THERE\n"
            except BrokenPipeError:
                return False
            finally:
                tunnel.kill()

    wait_for(heard, "the echo")
    refused = shell.run("tunnel", f"{task_id}:1")
    assert (refused.status, "Nothing listens" in refused.err) == (1, True), refused
    shell.det("task", "kill", task_id)
    ended(api, task_id)


def test_notebooks_and_tensorboards(shell: Shell, api: Master, finished: Finished, tmp_path: Path) -> None:
    assert (
        "notebook_idle_type: activity"
        in shell.det("notebook", "start", "--preview", "--config", "notebook_idle_type=activity").out
    )
    board = shell.det("tensorboard", "start", str(finished.id), "-d", "--config", "description=mine").out.strip()
    (row,) = [row for row in shell.det("tensorboard", "list", "--csv").csv() if row["id"] == board]
    assert (row["experimentIds"], row["description"]) == (str([finished.id]), "mine")
    shell.det("tensorboard", "kill", board)
    ended(api, board)
    nothing = shell.run("tensorboard", "start")
    assert (nothing.status, "give the numbers" in nothing.err) == (2, True)
