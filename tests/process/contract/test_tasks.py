"""Commands, shells, notebooks, TensorBoards and generic tasks through the published client."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support.master import wait_for
from tests.support.reference.batch import batch

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def test_a_command_from_its_start_to_its_end(client: Reference, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "say.py").write_text("import sys; print('spoken:', *sys.argv[1:])\n")
    config = tmp_path / "config.yaml"
    config.write_text("description: speaks\nresources: {slots: 0}\n")
    said = client.det(
        "command", "run", "--config-file", str(config), "-c", str(tmp_path / "files"), "python3", "say.py", "two words"
    )
    assert "spoken: two words" in said
    (mine,) = [row for row in client.rows("command", "list") if row["description"] == "speaks"]
    assert (mine["username"], mine["state"], mine["workspaceName"]) == ("determined", "TERMINATED", "Uncategorized")
    described, configured, logged = batch(
        client,
        f"command describe {mine['id'][:12]} --json",
        f"command config {mine['id']}",
        f"command logs {mine['id']}",
    )
    assert json.loads(described.out)["exitStatus"] == "The program ended with status 0"
    assert "- say.py" in configured.out
    assert "spoken: two words" in logged.out


def last_line(log: str) -> str:
    """Of what the master says, without the time."""
    return [line for line in log.splitlines() if " || " in line][-1].partition(" || ")[2]


def test_one_word_is_a_line_for_the_shell(client: Reference, tmp_path: Path) -> None:
    """So are those of generic tasks and of trials; without any the command ends at once."""
    (tmp_path / "task.yaml").write_text("entrypoint: ['echo a$((1 + 1))task']\n")
    (tmp_path / "trial.yaml").write_text(
        "name: one word\nentrypoint: ['echo a$((1 + 2))trial && sleep 0']\nmax_restarts: 0\n"
        "searcher: {name: single, metric: loss}\nresources: {slots_per_trial: 0}\n"
    )
    (tmp_path / "files").mkdir()
    slots = ["--config", "resources.slots=0"]
    command, nothing, task, experiment = batch(
        client,
        ["command", "run", *slots, "env | grep ^DET_TASK_TYPE; echo a$((1 + 0))command"],
        ["command", "run", *slots],
        f"task create {tmp_path / 'task.yaml'}",
        f"experiment create --paused {tmp_path / 'trial.yaml'} {tmp_path / 'files'}",
    )
    assert ("DET_TASK_TYPE=COMMAND" in command.out, "a1command" in command.out) == (True, True)
    assert last_line(nothing.out) == "INFO: resources exited successfully with a zero exit code"
    (task_id,), number = UUID.findall(task.out), experiment.out.split()[-1]
    shown, logged, _, trial = batch(
        client,
        f"task config {task_id} --json",
        f"task logs -f {task_id}",
        f"experiment activate {number}",
        f"experiment logs -f {number}",
    )
    assert json.loads(shown.out) == {"entrypoint": ["echo a$((1 + 1))task"]}
    assert ("a2task" in logged.out, "a3trial" in trial.out) == (True, True)
    assert last_line(trial.out) == "INFO: resources exited successfully with a zero exit code"
    failed = client.det("command", "run", *slots, "exit 7")
    assert last_line(failed).startswith("ERROR: crashed: resources failed with non-zero exit code: ")


def test_commands_are_killed(client: Reference) -> None:
    detached = ["command", "run", "-d", "--config", "resources.slots=0", "sleep", "600"]
    first, second = (said.out.strip() for said in batch(client, detached, detached))
    listed, killed, again, priority = batch(
        client,
        "command list -q",
        f"command kill {first} {second}",
        f"command kill -f {first} 00000000-0000-0000-0000-000000000000",
        f"command set priority {first} 10",
    )
    assert {first, second} <= set(listed.out.split())
    assert killed.out.count("Killed command") == 2
    assert ("Killed command" in again.out, "Skipping" in again.out) == (True, True)
    assert "Set priority" in priority.out  # of one that was just killed, too
    wait_for(
        lambda: (
            {row["state"] for row in client.rows("command", "list") if row["id"] in (first, second)} == {"TERMINATED"}
        ),
        "their ends",
    )


def test_a_generic_task(client: Reference, tmp_path: Path) -> None:
    config = tmp_path / "task.yaml"
    config.write_text("entrypoint: [sleep, '600']\nresources: {slots: 0}\npreemption_timeout: 1\n")
    (created,) = batch(client, f"task create {config}")
    (task,) = UUID.findall(created.out)
    wait_for(lambda: task in {row["Task ID"] for row in client.rows("task", "list")}, "its place in the list")
    shown, _, forked = batch(client, f"task config {task} --json", f"task pause {task}", f"task fork {task}")
    (fork,) = UUID.findall(forked.out)
    assert "sleep" in shown.out
    wait_for(lambda: client.run(_STATES, task) == ["PAUSED"], "the pause")
    list(batch(client, f"task unpause {task}", f"task kill {task}", f"task kill --root {fork}"))
    wait_for(lambda: client.run(_STATES, task, fork) == ["CANCELED"] * 2, "their ends")


_STATES = """
from determined.common.api import bindings
session = client.Determined()._session
found = [bindings.get_GetTask(session, taskId=task).task.taskState.value for task in sys.argv[1:]]
answer([state.replace("GENERIC_TASK_STATE_", "") for state in found])
"""


def test_a_shell_is_opened(client: Reference, tmp_path: Path) -> None:
    if not shutil.which("sshd", path="/usr/sbin:/usr/bin"):
        pytest.skip("there is no sshd on this machine")
    (started,) = batch(client, "shell start -d --config resources.slots=0")
    shell = started.out.strip()
    try:
        said = client.det("shell", "open", shell, "--", "echo", "in $DET_TASK_TYPE; exit")
        assert "in SHELL" in said
        shown = client.det("shell", "show-ssh-command", shell)
        command = next(line for line in shown.splitlines() if line.startswith("ssh "))
        done = subprocess.run(
            ["sh", "-c", f"{command} 'echo by hand'"], capture_output=True, text=True, timeout=120, check=False
        )
        assert "by hand" in done.stdout, done
    finally:
        list(batch(client, f"shell kill {shell}"))


def test_a_notebook_and_a_tensorboard_are_asked_for(client: Reference, training: Path) -> None:
    preview, started, refused = batch(
        client,
        "notebook start --preview --config description=looked",
        "notebook start -d --config resources.slots=0 --config description=mine",
        "!tensorboard start -d 99999999",
    )
    assert "description: looked" in preview.out
    assert "There is no experiment 99999999" in refused.err
    notebook = started.out.strip()
    listed, configured, killed = batch(
        client, "notebook list", f"notebook config {notebook}", f"notebook kill {notebook}"
    )
    assert notebook in {row["id"] for row in listed.rows()}
    assert "notebook_idle_type: kernels_or_terminals" in configured.out
    assert "Killed notebook" in killed.out
