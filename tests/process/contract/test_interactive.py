"""Notebooks, shells and TensorBoards that run, by the published `det`: opened, listed, moved in the queue, ended."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.process.contract.conftest import Reference
from tests.support import trainings
from tests.support.api import programs
from tests.support.master import files, wait_ended, wait_for
from tests.support.reference.batch import batch
from trainmaster.client.master import Master


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a browser, if one is asked for, leaves the addresses it was to show."""
    shown = tmp_path / "shown"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$1" >>{shown}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    return shown


def test_running_tasks_are_opened_listed_and_ended(
    client: Reference, truth: Master, opened: Path, tmp_path: Path
) -> None:
    if not shutil.which("sshd", path="/usr/sbin:/usr/bin"):
        pytest.skip("there is no sshd on this machine")
    number = truth.create_experiment(trainings.experiment(epochs=1), files(train__py=trainings.COUNTING)).id
    wait_ended(truth, number)
    config = tmp_path / "config.yaml"
    path = f"PATH={programs.stand_ins(tmp_path)}:/usr/local/bin:/usr/bin:/bin"
    config.write_text(json.dumps({"resources": {"slots": 0}, "environment": {"environment_variables": [path]}}))
    made = batch(
        client,
        f"notebook start -d --config-file {config}",
        f"tensorboard start -d {number} --config-file {config}",
        f"shell start -d --config-file {config}",
    )
    notebook, board, shell = (said.out.strip().splitlines()[-1] for said in made)
    for task in (notebook, board):
        wait_for(lambda task=task: is_ready(client, task), "the program to answer")  # type: ignore[misc]
    said = list(
        batch(
            client,
            f"notebook open {notebook}",
            f"tensorboard open {board}",
            f"notebook logs {notebook}",
            f"tensorboard logs {board}",
            f"shell logs {shell}",
            f"task logs {board}",
            f"tensorboard config {board}",
            f"shell config {shell}",
            f"notebook set priority {notebook} 40",
            f"tensorboard set priority {board} 40",
            f"shell set priority {shell} 40",
            f"shell show_ssh_command {shell}",
            "tensorboard list --json",
            "shell list --json",
        )
    )
    assert [landed(client, address) for address in opened.read_text().split()] == [
        f"/proxy/{notebook}/",
        f"/proxy/{board}/",
    ]
    assert "a notebook stands" in said[2].out
    assert "a board stands" in said[3].out == said[5].out
    assert "Server listening" in said[4].out
    assert "idle_timeout: 300" in said[6].out
    assert "slots: 0" in said[7].out
    assert all("keeps its own order" in one.out for one in said[8:11]), "this pool has no priorities"
    assert f"@{shell}" in said[11].out
    (entry,) = [one for one in json.loads(said[12].out) if one["id"] == board]
    assert (entry["experimentIds"], entry["state"]) == ([number], "RUNNING")
    assert shell in {one["id"] for one in json.loads(said[13].out)}
    list(batch(client, f"shell kill {shell}", f"tensorboard kill {board}", f"notebook kill {notebook}"))
    wait_for(lambda: client.run(_STATES, notebook, board, shell) == [True] * 3, "their ends")


def landed(client: Reference, address: str) -> str:
    """Where a browser that has logged in ends up."""
    return str(client.run(_LANDED, address))


_LANDED = """
import requests
client.login()
answer_ = requests.get(sys.argv[1], cookies={"auth": client._determined._session.token})
assert answer_.status_code == 200, answer_.text
answer(answer_.request.path_url)
"""
_READY = """
from determined.common.api import bindings
session = client.Determined()._session
answer(any(one.isReady for one in bindings.get_GetTask(session, taskId=sys.argv[1]).task.allocations))
"""
_STATES = """
from determined.common.api import bindings
session = client.Determined()._session
answer([bindings.get_GetTask(session, taskId=task).task.endTime is not None for task in sys.argv[1:]])
"""


def is_ready(client: Reference, task: str) -> Any:
    return client.run(_READY, task)
