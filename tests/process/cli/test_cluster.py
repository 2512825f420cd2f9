"""`det resources`, `det task`, and the verbs of `det master` about the master itself."""

from __future__ import annotations

import datetime as dt

from tests.process.cli.conftest import Finished
from tests.support.det_shell import Shell
from trainmaster.client.master import Master


def test_resources_commands_list_slot_usage(shell: Shell, finished: Finished) -> None:
    today = dt.datetime.now(dt.UTC)
    span = [(today + dt.timedelta(days=days)).isoformat() for days in (-2, 1)]
    mine = {trial.task_id for trial in finished.trials}
    uses = shell.det("resources", "allocations", *span, "--csv").csv()
    assert mine <= {row["Allocation ID"].rpartition(".")[0] for row in uses}
    raw = shell.det("res", "raw", *span, "--json").json()
    assert finished.id in {entry["experimentId"] for entry in raw}
    days = [str((today + dt.timedelta(days=days)).date()) for days in (-1, 1)]
    rows = shell.det("resources", "agg", *days).table()
    assert {"total", "user", "pool"} <= {row["Kind"] for row in rows}
    assert shell.det("resources", "aggregated", *days, "--monthly", "--csv").csv()
    refused = shell.run("resources", "raw", *reversed(span))
    assert (refused.status, "must lie after" in refused.sentence) == (1, True)


def test_tasks(shell: Shell, api: Master, finished: Finished) -> None:
    assert "Task ID" in shell.det("task", "list").out
    task = finished.trials[0].task_id
    whole = shell.det("task", "logs", task).out.splitlines()
    assert shell.det("task", "logs", task, "--tail", "2").out.splitlines() == whole[-2:]
    assert shell.det("task", "logs", task, "--head", "1").out.splitlines() == whole[:1]
    found = shell.det("task", "logs", task, "--search", "^Trial ended", "--regex").out.splitlines()
    assert len(found) == 1
    assert found[0] in whole
    missing = shell.run("task", "logs", "none")
    assert (missing.status, "none" in missing.sentence) == (1, True)


def test_the_master_itself(shell: Shell) -> None:
    boss = shell.with_(DET_USER="admin")
    assert len(boss.det("master", "logs", "--tail", "1").out.splitlines()) == 1
    assert "resource_manager:" in boss.det("master", "config", "show").out
    assert boss.det("master", "config", "show", "--json").json()["log"]["level"]
    assert "DEBUG" in boss.det("master", "config", "set", "--log.level", "debug").out
    boss.det("master", "config", "set", "--log.level", "INFO")
    lines = shell.det("master", "logs").out.splitlines()
    assert {line.rpartition(" ")[2] for line in lines} == {"********"}
