"""Verbs that only read: tables, JSON and CSV agree with each other and with the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.process.cli.conftest import Finished
from tests.support.det_shell import Shell
from trainmaster.client.master import Master


def test_experiment_list(shell: Shell, api: Master, finished: Finished) -> None:
    seen = api.experiment(finished.id)
    table = {row["ID"]: row for row in shell.det("experiment", "list").table()}[str(finished.id)]
    assert (table["Owner"], table["Name"], table["State"]) == ("determined", finished.name, "COMPLETED")
    assert (table["Progress"], table["Resource Pool"], table["Parent ID"]) == ("100.0 %", "default", "")
    csv = {row["ID"]: row for row in shell.det("e", "ls", "--csv").csv()}[str(finished.id)]
    assert (csv["Name"], csv["Progress"], csv["Started"]) == (finished.name, "1.0", seen.started)
    raw = {entry["id"]: entry for entry in shell.det("experiment", "list", "--json").json()}[finished.id]
    assert (raw["name"], raw["state"], raw["startTime"]) == (finished.name, "STATE_COMPLETED", seen.started)


def test_experiment_list_of_others_and_of_pages(shell: Shell, api: Master, finished: Finished, process) -> None:  # type: ignore[no-untyped-def]
    mine = [row["ID"] for row in shell.det("experiment", "list", "--csv").csv()]
    assert mine == [str(e.id) for e in api.experiments(users=["determined"])]
    admin = shell.with_(DET_USER="admin")
    assert admin.det("experiment", "list", "--csv").csv() == []
    every = admin.det("experiment", "list", "--all", "--show_project", "--csv").csv()
    assert [row["ID"] for row in every] == mine
    assert [row["Workspace"] for row in every] == [api.experiment(int(number)).workspace for number in mine]
    paged = [row["ID"] for row in shell.det("experiment", "list", "--limit", "1", "--csv").csv()]
    assert paged == mine
    assert len(shell.det("experiment", "list", "--limit", "1", "--pages", "1", "--csv").csv()) == 1
    last = shell.det("experiment", "list", "--offset", "-1", "--csv").csv()
    assert [row["ID"] for row in last] == mine[-1:]


def test_experiment_describe(shell: Shell, finished: Finished, tmp_path: Path) -> None:
    number = str(finished.id)
    done = shell.det("experiment", "describe", number, "--metrics")
    (experiment,), trials, workloads = done.table(0), done.table(1), done.table(2)
    assert (experiment["Experiment ID"], experiment["Labels"]) == (number, "a, b")
    assert [row["Trial ID"] for row in trials] == [str(t.id) for t in finished.trials]
    assert len(workloads) == 8
    assert workloads[0]["# of Batches"] == "1"
    raw = shell.det("experiment", "describe", f"{number},{number}", "--json").json()
    assert [entry["experiment"]["id"] for entry in raw] == [finished.id, finished.id]
    assert [t["hparams"] for t in raw[0]["trials"]] == [t.hparams for t in finished.trials]
    shell.det("experiment", "describe", number, "--metrics", "--outdir", str(tmp_path / "out"))
    lines = {path.name: len(path.read_text().splitlines()) for path in (tmp_path / "out").iterdir()}
    assert lines == {"experiments.csv": 2, "trials.csv": 3, "workloads.csv": 9}


def test_experiment_list_trials(shell: Shell, finished: Finished) -> None:
    first = finished.trials[0]
    table = shell.det("experiment", "list-trials", str(finished.id)).table()
    assert [row["Trial ID"] for row in table] == [str(t.id) for t in finished.trials]
    assert (table[0]["State"], table[0]["# of Batches"], table[0]["Restarts"]) == ("COMPLETED", "4", "0")
    assert f"value={first.hparams['value']:.6g}" in table[0]["H-Params"]
    csv = shell.det("e", "lt", str(finished.id), "--csv").csv()[0]
    assert json.loads(csv["H-Params"]) == first.hparams
    assert float(csv["Best Metric"]) == first.best_metric
    raw = shell.det("experiment", "list-trials", str(finished.id), "--json").json()
    assert [t["id"] for t in raw] == [t.id for t in finished.trials]


def test_experiment_list_checkpoints(shell: Shell, api: Master, finished: Finished) -> None:
    by_metric = sorted(api.checkpoints(finished.id), key=lambda c: c.metric or 0)
    assert len(by_metric) == 2
    table = shell.det("experiment", "list-checkpoints", str(finished.id)).table()
    assert {row["UUID"] for row in table} == {c.uuid for c in by_metric}
    assert "state.json" in table[0]["Resources"]
    (best,) = shell.det("experiment", "list-checkpoints", str(finished.id), "--best", "1", "--csv").csv()
    assert (best["UUID"], int(best["Size"]), best["State"]) == (by_metric[0].uuid, by_metric[0].size, "COMPLETED")
    raw = shell.det("e", "lc", str(finished.id), "--json").json()
    assert {c["uuid"] for c in raw} == {c.uuid for c in by_metric}


def test_experiment_config(shell: Shell, finished: Finished) -> None:
    import yaml

    config = yaml.safe_load(shell.det("experiment", "config", str(finished.id)).out)
    assert (config["name"], config["searcher"]["max_trials"]) == (finished.name, 2)
    assert shell.det("experiment", "config", str(finished.id), "--json").json() == config


def test_experiment_logs_are_the_first_trials(shell: Shell, finished: Finished) -> None:
    experiment = shell.det("experiment", "logs", str(finished.id)).out
    assert experiment == shell.det("trial", "logs", str(finished.trials[0].id)).out
    assert "starting after epoch 0" in experiment


def test_experiment_wait_tells_how_it_ended(shell: Shell, finished: Finished) -> None:
    done = shell.det("experiment", "wait", str(finished.id))
    assert done.out == ""
    assert (
        f"experiment {finished.id} COMPLETED [####################] 100.0 % | trials: 2 done | best error" in done.err
    )


def test_trial_describe(shell: Shell, api: Master, finished: Finished) -> None:
    trial = finished.trials[0]
    done = shell.det("trial", "describe", str(trial.id), "--metrics")
    (head,), (attempt,), reports = done.table(0), done.table(1), done.table(2)
    assert (head["Experiment ID"], head["State"]) == (str(finished.id), "COMPLETED")
    assert (attempt["Attempt"], attempt["State"], attempt["Exit"]) == ("1", "TERMINATED", "0")
    assert [row["# of Batches"] for row in reports] == ["1", "2", "3", "4"]
    assert {"training loss", "validation error", "Checkpoint UUID"} <= reports[0].keys()
    assert reports[3]["Checkpoint"] == "COMPLETED"
    csv = shell.det("trial", "describe", str(trial.id), "--csv").csv()
    assert float(csv[3]["validation error"]) == trial.best_metric
    assert "training loss" not in csv[3]
    raw = shell.det("t", "describe", str(trial.id), "--json").json()
    assert raw["workloads"] == api.workloads(trial.id)
    assert shell.det("trial", "describe", str(trial.id), "--metrics-summary").json() == trial.summary


def test_trial_logs_and_their_ends(shell: Shell, api: Master, finished: Finished) -> None:
    trial = finished.trials[1]
    lines = [line.message for line in api.logs(trial.id)]
    number = str(trial.id)
    assert shell.det("trial", "logs", number).out == "".join(lines)
    assert shell.det("trial", "logs", number, "--head", "2").out == "".join(lines[:2])
    assert shell.det("trial", "logs", number, "--tail", "2").out == "".join(lines[-2:])
    assert shell.det("trial", "logs", number, "-f", "--tail", "2").out == "".join(lines[-2:])
    assert shell.det("trial", "logs", number, "-f").out == "".join(lines)
    raw = [json.loads(line) for line in shell.det("trial", "logs", number, "--json").out.splitlines()]
    assert [entry["message"] for entry in raw] == lines


def test_trial_logs_can_be_narrowed(shell: Shell, finished: Finished) -> None:
    number = str(finished.trials[0].id)
    printed = [json.loads(x) for x in shell.det("trial", "logs", number, "--json").out.splitlines()]

    def only(*options: str) -> list[str]:
        return [json.loads(x)["id"] for x in shell.det("trial", "logs", number, "--json", *options).out.splitlines()]

    assert only("--source", "task") == [x["id"] for x in printed if x["source"] == "task"] != []
    assert only("--stdtype", "stdout") == [x["id"] for x in printed if x.get("stdtype") == "stdout"] != []
    assert only("--agent-id", "nowhere") == []
    assert only("--level", "error") == []
    assert only("--rank-id", "0") == [x["id"] for x in printed if x.get("rankId") == 0]
    assert only("--timestamp-after", "2100-01-01T00:00:00Z") == []
    assert only("--timestamp-before", "2100-01-01T00:00:00Z") == [x["id"] for x in printed]


def test_trial_story(shell: Shell, api: Master, finished: Finished) -> None:
    trial = finished.trials[0]
    events = api.story(trial.id)
    printed = shell.det("trial", "story", str(trial.id))
    assert "The searcher created this trial: " in printed.out
    assert "The trial was created\n    -> attempt 1 is to start\n" in printed.out
    assert "(now COMPLETED)\n    -> the trial ends as COMPLETED: " in printed.out
    raw = shell.det("trial", "story", str(trial.id), "--json").json()
    assert [(e["event"], e["why"]) for e in raw] == [(e.event, e.why) for e in events]
    csv = shell.det("trial", "story", str(trial.id), "--csv").csv()
    assert [e["after"] for e in csv] == [e.after for e in events]


def test_checkpoint_describe(shell: Shell, api: Master, finished: Finished) -> None:
    checkpoint = api.checkpoints(finished.id)[0]
    (row,) = shell.det("checkpoint", "describe", checkpoint.uuid).table()
    assert (row["Checkpoint UUID"], row["Steps Completed"]) == (checkpoint.uuid, "4")
    (csv,) = shell.det("checkpoint", "describe", checkpoint.uuid, "--csv").csv()
    assert json.loads(csv["Metadata"])["steps_completed"] == 4
    assert shell.det("c", "describe", checkpoint.uuid, "--json").json()["uuid"] == checkpoint.uuid


def test_master_info_and_pools(shell: Shell) -> None:
    import yaml

    info = shell.det("master", "info", "--json").json()
    assert yaml.safe_load(shell.det("master", "info").out) == info
    (pool,) = shell.det("master", "pools").table()
    assert (pool["Name"], pool["Slots"], pool["Default"]) == ("default", "4", "yes")
    (csv,) = shell.det("master", "pools", "--csv").csv()
    assert (csv["Slots"], csv["Default"]) == ("4", "true")
    assert shell.det("master", "pools", "--json").json()[0]["slotsAvailable"] == 4


def test_preview_search(shell: Shell) -> None:
    (shell.cwd / "s.yaml").write_text(
        "entrypoint: 'true'\n"
        "searcher: {name: adaptive_asha, metric: e, max_trials: 16, max_time: 16, time_metric: epochs}\n"
    )
    done = shell.det("preview-search", "s.yaml")
    assert [(row["Trials"], row["Training Time"]) for row in done.table()] == [
        ("9", "train for 1 epochs"),
        ("5", "train for 4 epochs"),
        ("2", "train for 16 epochs"),
    ]
    few = shell.det("preview-search", "s.yaml", "--config", "searcher.max_trials=1", "--csv").csv()
    assert sum(int(row["Trials"]) for row in few) == 1
    assert shell.det("preview-search", "s.yaml", "--json").json()["config"]["max_trials"] == 16
    single = shell.det("preview-search", "s.yaml", "--config", "searcher={name: single, metric: e}")
    assert single.table() == [{"Trials": "1", "Training Time": "train to completion"}]


@pytest.mark.parametrize("width", [105, 120])
def test_tables_fit_the_terminal(shell: Shell, finished: Finished, width: int) -> None:

    shell = shell.with_(COLUMNS=str(width))
    done = shell.at_terminal("experiment", "list")
    assert done.status == 0
    assert max(map(len, done.out.splitlines())) <= width
    assert "…" in done.out or width > 105
