"""Every command that users of Determined know, unmodified, and what it brings about."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.process.contract.conftest import Reference
from tests.support.master import only_trial, wait_ended, wait_for
from trainmaster.client.errors import NoSuchThing
from trainmaster.client.master import Master
from trainmaster.version import VERSION


def create(client: Reference, training: Path, config: str, *more: str) -> int:
    said = client.det("experiment", "create", str(training / config), str(training), *more)
    found = re.search(r"Created experiment (\d+)", said)
    assert found, said
    return int(found[1])


@pytest.fixture(scope="module")
def ended(running: Any, installed: Path, training: Path, truth: Master, tmp_path_factory: Any) -> int:
    """An experiment that ran to its end."""
    client = Reference(installed, running, tmp_path_factory.mktemp("config"))
    number = create(client, training, "quick.yaml")
    assert wait_ended(truth, number).state == "COMPLETED"
    return number


@pytest.fixture
def long(client: Reference, training: Path, truth: Master) -> Iterator[int]:
    """One that runs for minutes, and has reported something."""
    number = create(client, training, "long.yaml")
    wait_for(lambda: any(trial.batches for trial in truth.trials(number)), "its first report")
    yield number
    truth.kill(number)
    wait_ended(truth, number)


# -- users ----------------------------------------------------------------------------------------------------


def test_login_whoami_logout(client: Reference, running: Any) -> None:
    stranger = replace(client, logged_in=False)
    wrong = stranger.det("user", "login", "determined", stdin="wrong\n", status=1)
    assert "wrong" in wrong or "invalid" in wrong.lower()
    stranger.det("user", "login", "determined", stdin=f"{running.password}\n")
    assert "'determined'" in stranger.det("user", "whoami")
    stored = json.loads((client.home / "auth.json").read_text())
    assert list(stored["masters"]) == [running.url]
    stranger.det("experiment", "list")
    stranger.det("user", "logout")
    stored = json.loads((client.home / "auth.json").read_text())
    assert not stored["masters"].get(running.url, {}).get("tokens")


def test_version(client: Reference, truth: Master) -> None:
    found = yaml.safe_load(client.det("version"))
    assert found["client"]["version"] == "0.38.1"
    assert found["master"]["cluster_id"] == truth.info()["clusterId"]
    assert found["master"]["version"] == "0.38.1"  # else every command would warn that one of them is too old
    assert found["master"]["trainmaster_version"] == VERSION


# -- creating ---------------------------------------------------------------------------------------------------


def test_create_sends_the_files_and_starts(client: Reference, training: Path, truth: Master) -> None:
    number = create(client, training, "quick.yaml", "--config", "name=by det", "--config", "hyperparameters.epochs=2")
    assert wait_ended(truth, number).state == "COMPLETED"
    experiment = truth.experiment(number)
    assert experiment.name == "by det"
    assert only_trial(truth, number).batches == 2
    assert int(experiment.raw["modelDefinitionSize"]) > 500


def test_create_paused(client: Reference, training: Path, truth: Master) -> None:
    number = create(client, training, "quick.yaml", "--paused")
    assert truth.experiment(number).state == "PAUSED"
    assert truth.trials(number) == [] or only_trial(truth, number).attempts == 0
    truth.kill(number)


def test_create_and_follow_ends_with_the_experiment(client: Reference, training: Path) -> None:
    said = client.det("experiment", "create", str(training / "quick.yaml"), str(training), "--follow-first-trial")
    assert "Following first trial with ID" in said
    assert "starting after epoch 0" in said


def test_create_as_a_trial_run(client: Reference, training: Path, truth: Master) -> None:
    said = client.det(
        *("experiment", "create", str(training / "quick.yaml"), str(training), "--test-mode"),
        *("--config", "searcher.max_length.batches=100", "--config", "hyperparameters.epochs=1"),
    )
    found = re.search(r"Created test experiment (\d+)", said)
    assert found, said
    assert wait_ended(truth, int(found[1])).state == "COMPLETED"


def test_create_shows_masters_configuration_error(client: Reference, training: Path, truth: Master) -> None:
    before = len(truth.experiments(archived=None))
    said = client.det(
        "experiment", "create", str(training / "quick.yaml"), str(training), "--config", "max_restart=1", status=1
    )
    assert "max_restarts" in said
    assert len(truth.experiments(archived=None)) == before


# -- looking ------------------------------------------------------------------------------------------------------


def test_list(client: Reference, ended: int) -> None:
    (mine,) = [row for row in client.rows("experiment", "list") if row["ID"] == str(ended)]
    assert (mine["Owner"], mine["State"], mine["Resource Pool"]) == ("determined", "COMPLETED", "default")
    assert mine["Ended"]
    table = client.det("experiment", "list")
    assert [cell.strip() for cell in table.splitlines()[0].split("|")][:5] == [
        "ID",
        "Owner",
        "Name",
        "Parent ID",
        "State",
    ]


def test_describe(client: Reference, ended: int, truth: Master) -> None:
    trial = only_trial(truth, ended)
    said = client.det("experiment", "describe", str(ended), "--metrics")
    for wanted in ("Trial ID", "H-Params", "Workloads", "Validation", "error", "COMPLETED"):
        assert wanted in said, said
    client.det("experiment", "describe", str(ended), "--outdir", str(client.home.parent))
    rows = list(csv.DictReader(io.StringIO((client.home.parent / "trials.csv").read_text())))
    assert [int(row["Trial ID"]) for row in rows] == [trial.id]


def test_config(client: Reference, ended: int) -> None:
    found = yaml.safe_load(client.det("experiment", "config", str(ended)))
    assert found["searcher"]["metric"] == "error"
    assert found["hyperparameters"]["epochs"] in (4, {"type": "const", "val": 4})
    assert found["max_restarts"] == 0


def test_logs_of_an_experiment_and_of_a_trial(client: Reference, ended: int, truth: Master) -> None:
    trial = only_trial(truth, ended)
    whole = client.det("experiment", "logs", str(ended))
    assert "starting after epoch 0" in whole
    assert client.det("trial", "logs", str(trial.id)) == whole
    tail = client.det("trial", "logs", str(trial.id), "--tail", "2")
    assert whole.splitlines()[-1] in tail
    assert len(tail.splitlines()) <= 4
    head = client.det("trial", "logs", str(trial.id), "--head", "1")
    assert head.splitlines()[0] == whole.splitlines()[0]
    followed = client.det("trial", "logs", "--follow", str(trial.id))
    assert "starting after epoch 0" in followed
    entries = client.values("trial", "logs", str(trial.id))
    assert any("starting after epoch 0" in entry["log"] for entry in entries)


def test_list_trials_and_describe_one(client: Reference, ended: int, truth: Master) -> None:
    trial = only_trial(truth, ended)
    said = client.det("experiment", "list-trials", str(ended))
    assert re.search(rf"\b{trial.id}\b.*COMPLETED", said)
    (shown,) = client.values("trial", "describe", str(trial.id))
    assert shown["trial"]["id"] == trial.id
    kinds = [kind for load in shown["workloads"] for kind, content in load.items() if content]
    assert (kinds.count("training"), kinds.count("validation"), kinds.count("checkpoint")) == (4, 4, 1)
    table = client.det("trial", "describe", str(trial.id), "--metrics")
    for wanted in ("Summary Metrics", "# of Batches", "Checkpoint UUID", "error"):
        assert wanted in table, table


def test_checkpoints(client: Reference, ended: int, truth: Master) -> None:
    (checkpoint,) = truth.checkpoints(ended)
    said = client.det("experiment", "list-checkpoints", str(ended))
    assert checkpoint.uuid in said
    assert "COMPLETED" in said
    best = client.det("experiment", "list-checkpoints", str(ended), "--best", "1")
    assert checkpoint.uuid in best
    described = client.det("checkpoint", "describe", checkpoint.uuid)
    assert checkpoint.uuid in described
    assert re.search(r"Steps Completed\D+4", described.replace("\n", " ")) or " 4 " in described


def test_jobs(client: Reference, long: int) -> None:
    (mine,) = [row for row in client.rows("job", "list") if row["Job Name"] == f"test ({long})"]
    assert (mine["Type"], mine["User"], mine["State"]) == ("TYPE_EXPERIMENT", "determined", "STATE_SCHEDULED")
    assert mine["Slots (acquired/needed)"] == "1/1"
    assert mine["Submitted"]
    (whole,) = client.values("job", "list")
    assert str(long) in [entry["entityId"] for entry in whole["jobs"]]


def test_preview_search(client: Reference, tmp_path: Path) -> None:
    config = {
        "name": "x",
        "entrypoint": "x",
        "searcher": {"name": "random", "metric": "loss", "max_trials": 7},
        "hyperparameters": {"lr": {"type": "double", "minval": 0, "maxval": 1}},
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(config))
    said = client.det("preview-search", str(tmp_path / "search.yaml"))
    assert "train to completion" in said
    assert "7" in said


# -- steering ------------------------------------------------------------------------------------------------------


def test_wait_ends_with_the_experiment_and_tells_by_its_status(
    client: Reference, training: Path, ended: int, truth: Master
) -> None:
    client.det("experiment", "wait", str(ended))
    failing = create(client, training, "quick.yaml", "--config", "hyperparameters.fail_at=1")
    client.det("experiment", "wait", "--polling-interval", "1", str(failing), status=1)
    assert truth.experiment(failing).state == "ERROR"


def test_pause_and_activate(client: Reference, long: int, truth: Master) -> None:
    client.det("experiment", "pause", str(long))
    wait_for(lambda: truth.experiment(long).state == "PAUSED", "the pause")
    trial = only_trial(truth, long)
    wait_for(lambda: "leaving after epoch" in client.det("trial", "logs", str(trial.id)), "the checkpoint")
    client.det("experiment", "activate", str(long))
    wait_for(lambda: only_trial(truth, long).attempts == 2, "the second attempt")
    wait_for(lambda: truth.experiment(long).state == "RUNNING", "it to run again")


def test_cancel_saves_and_ends(client: Reference, long: int, truth: Master) -> None:
    client.det("experiment", "cancel", str(long))
    assert wait_ended(truth, long).state == "CANCELED"
    assert len(truth.checkpoints(long)) == 1


def test_kill_ends_at_once(client: Reference, long: int, truth: Master) -> None:
    client.det("experiment", "kill", str(long))
    assert wait_ended(truth, long).state == "CANCELED"
    assert truth.checkpoints(long) == []


def test_kill_a_trial(client: Reference, long: int, truth: Master) -> None:
    client.det("trial", "kill", str(only_trial(truth, long).id))
    assert wait_ended(truth, long).ended_for_good
    assert only_trial(truth, long).state == "CANCELED"


def test_delete(client: Reference, training: Path, truth: Master) -> None:
    number = create(client, training, "quick.yaml")
    wait_ended(truth, number)
    client.det("experiment", "delete", str(number), "--yes")

    def gone() -> bool:
        try:
            truth.experiment(number)
        except NoSuchThing:
            return True
        return False

    wait_for(gone, "the experiment to be deleted")


def test_missing_experiment_or_trial_is_named_in_error(client: Reference) -> None:
    assert "99999" in client.det("experiment", "describe", "99999", status=1)
    assert "99999" in client.det("trial", "describe", "99999", status=1)
