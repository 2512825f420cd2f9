"""The published client inside of jobs: logged in as the job's owner, without a password or a log-in."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.process.contract.conftest import Reference
from tests.support.api import programs
from tests.support.master import wait_for
from tests.support.reference.batch import batch

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SDK = """
from determined.experimental import client
print("the SDK is", client.whoami().username, "and sees", client.get_experiment({number}).id)
"""
# `det` by a line of Python: the script of that name may stand in a folder with a name that is too long for `#!`.
SCRIPT = """
det() { python3 -m determined.cli "$@"; }
det user whoami
det experiment list --csv | head -n 1
python3 sdk.py
det token create; echo "a token: status $?"
echo "mine is <$DET_USER_TOKEN>"
"""


@pytest.fixture
def site(client: Reference, tmp_path: Path) -> Path:
    """A folder of files, and a configuration beside it whose jobs have the client and a home of their own."""
    (tmp_path / "home").mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "stand-ins").mkdir()
    path = f"{programs.stand_ins(tmp_path / 'stand-ins')}:{client.environment / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    variables = [f"PATH={path}", f"HOME={tmp_path / 'home'}", f"XDG_CONFIG_HOME={tmp_path / 'home'}"]
    config = {"resources": {"slots": 0}, "environment": {"environment_variables": variables}}
    (tmp_path / "task.yaml").write_text(json.dumps(config))
    trial = {
        "name": "looks around",
        "entrypoint": ["sh", "look.sh"],
        "max_restarts": 0,
        "searcher": {"name": "single", "metric": "loss"},
        "resources": {"slots_per_trial": 0},
        "environment": config["environment"],
    }
    (tmp_path / "trial.yaml").write_text(json.dumps(trial))
    (tmp_path / "files" / "look.sh").write_text(SCRIPT)
    made = client.det("experiment", "create", "--paused", str(tmp_path / "trial.yaml"), str(tmp_path / "files"))
    (tmp_path / "files" / "sdk.py").write_text(SDK.format(number=made.split()[-1]))
    return tmp_path


def check(log: str, user: str = "determined") -> None:
    assert f"You are logged in as user '{user}'" in log, log
    assert "ID,Owner" in log, log
    assert re.search(rf"the SDK is {user} and sees \d+", log), log
    assert "a token: status 1" in log, log
    assert "acts as its owner, but not for" in log, log
    assert "mine is <[session token]>" in log, log  # what is printed stands in the log for others to read


def test_in_a_command_and_in_a_generic_task(client: Reference, site: Path) -> None:
    files = ["--config-file", str(site / "task.yaml"), "-c", str(site / "files")]
    (run,) = batch(client, ["command", "run", *files, "sh look.sh"])
    check(run.out)
    task = json.loads((site / "task.yaml").read_text()) | {"entrypoint": ["sh", "look.sh"]}
    (site / "generic.yaml").write_text(json.dumps(task))
    (made,) = batch(client, f"task create {site / 'generic.yaml'} --context {site / 'files'}")
    (task_id,) = UUID.findall(made.out)
    (log,) = batch(client, f"task logs -f {task_id}")
    check(log.out)


def test_in_a_trial(client: Reference, site: Path) -> None:
    made = client.det("experiment", "create", str(site / "trial.yaml"), str(site / "files"))
    number = re.findall(r"Created experiment (\d+)", made)[0]
    check(client.det("experiment", "logs", "-f", number))


def test_in_a_notebook(client: Reference, site: Path) -> None:
    """What runs in its job has what its kernels have."""
    (site / "files" / "startup-hook.sh").write_text("set +e\nsh look.sh\nset -e\n")
    config = ["--config-file", str(site / "task.yaml"), "-c", str(site / "files")]
    (made,) = batch(client, ["notebook", "start", "-d", *config])
    notebook = made.out.strip().splitlines()[-1]
    wait_for(lambda: "mine is" in client.det("notebook", "logs", notebook), "the hook's words")
    check(client.det("notebook", "logs", notebook))
    client.det("notebook", "kill", notebook)


def test_in_a_shell(client: Reference, site: Path) -> None:
    if not shutil.which("sshd", path="/usr/sbin:/usr/bin"):
        pytest.skip("there is no sshd on this machine")
    config = ["--config-file", str(site / "task.yaml"), "-c", str(site / "files")]
    (made,) = batch(client, ["shell", "start", "-d", *config])
    shell = made.out.strip().splitlines()[-1]
    said = client.det("shell", "open", shell, "det", "user", "whoami")
    assert "You are logged in as user 'determined'" in said
    client.det("shell", "kill", shell)


def test_a_board_has_none(client: Reference, site: Path, running: Any) -> None:
    """No code of its owner runs in it."""
    made = client.det("experiment", "create", str(site / "trial.yaml"), str(site / "files"))
    number = re.findall(r"Created experiment (\d+)", made)[0]
    (site / "stand-ins" / "tensorboard").write_text('#!/bin/sh\necho "here is <$DET_USER_TOKEN>"\nsleep 600\n')
    (said,) = batch(client, f"tensorboard start -d {number} --config-file {site / 'task.yaml'}")
    board = said.out.strip().splitlines()[-1]
    wait_for(lambda: "here is <>" in client.det("tensorboard", "logs", board), "its words")
    client.det("tensorboard", "kill", board)
