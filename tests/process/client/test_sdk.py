"""The Python SDK against a real master; the examples of `docs/sdk.md` cover the rest."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.master import MasterProcess, serving
from trainmaster.client import (
    APIError,
    ClientError,
    FileFault,
    Master,
    NoSuchThing,
    NotLoggedIn,
    column,
    connect,
    hparam,
    metric,
)
from trainmaster.client.checkpoint_files import Way
from trainmaster.client.experiment import Experiment

SECRETS = ("DET_MASTER", "DET_MASTER_ADDR", "DET_USER", "DET_PASS", "DET_USER_TOKEN", "DET_MASTER_CERT_FILE")


@pytest.fixture(scope="module")
def process() -> Iterator[MasterProcess]:
    with serving("resource_manager: {type: local, slots: 2, poll_interval: 0.2}\n") as process:
        yield process


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in SECRETS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DET_DEBUG_CONFIG_PATH", str(tmp_path / "kept"))


@pytest.fixture
def master(process: MasterProcess, no_session: None) -> Master:
    return connect(process.url, user="determined", password=process.password)


@pytest.fixture(scope="module")
def finished(process: MasterProcess, tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("code")
    (folder / "train.py").write_text(trainings.COUNTING)
    file = tmp_path_factory.mktemp("config") / "search.yaml"
    file.write_text(trainings.experiment(epochs=3, value=2.0, keys={"name": "counting", "labels": ["a"]}))
    made = process.client().create_experiment(file, folder, includes=[file])
    ended = made.wait(0.2)
    assert ended.state == "COMPLETED", ended.reason
    return ended.id


@pytest.fixture
def experiment(master: Master, finished: int) -> Experiment:
    return master.experiment(finished)


# -- sessions -----------------------------------------------------------------------------------------------------


def test_a_session_is_kept_and_used_again(process: MasterProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotLoggedIn, match="det user login determined"):
        connect(process.url)
    with pytest.raises(APIError, match="password is wrong"):
        connect(process.url, user="determined", password="wrong")
    first = connect(process.url, user="determined", password=process.password)
    monkeypatch.setenv("DET_MASTER", process.url)
    again = connect(user="determined")  # without a password
    assert again.whoami() == first.whoami()
    assert again._http.token == first._http.token
    first.logout()
    with pytest.raises(NotLoggedIn):
        again.experiments()
    monkeypatch.setenv("DET_PASS", process.password)
    assert connect().whoami()["username"] == "determined"


def test_a_token_is_used_as_it_is(process: MasterProcess, master: Master) -> None:
    assert connect(process.url, token=master._http.token).whoami()["username"] == "determined"
    with pytest.raises(NotLoggedIn):
        connect(process.url, token="nonsense").whoami()


# -- experiments --------------------------------------------------------------------------------------------------


def test_configurations_come_as_files_texts_and_mappings(master: Master, tmp_path: Path) -> None:
    config = {"name": "x", "entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}}
    file = tmp_path / "search.yaml"
    file.write_text(json.dumps(config))
    made = [master.create_experiment(one, activate=False) for one in (config, json.dumps(config), file, str(file))]
    assert [one.config["name"] for one in made] == ["x"] * 4
    for one in made:
        one.kill()
    with pytest.raises(FileFault, match=r"nowhere\.yaml cannot be read"):
        master.create_experiment(tmp_path / "nowhere.yaml")
    with pytest.raises(APIError, match="entrypont"):
        master.create_experiment({**config, "entrypont": "x"})


def test_its_code_comes_back(experiment: Experiment) -> None:
    with tarfile.open(fileobj=io.BytesIO(experiment.files())) as archive:
        assert {"train.py", "search.yaml"} <= set(archive.getnames())


def test_trial_gives_its_metrics_logs_and_story(experiment: Experiment) -> None:
    (trial,) = experiment.trials()
    assert trial == experiment.first_trial() == experiment.best_trial() == trial.reload() == trial.wait()
    assert trial.experiment() == experiment
    assert [(r.steps_completed, r.metrics) for r in trial.metrics("training")] == [
        (n, {"loss": 2.0 / n}) for n in (1, 2, 3)
    ]
    assert [r.metrics["epochs"] for r in experiment.metrics("validation")] == [1, 2, 3]
    assert {r.group for r in trial.metrics()} == {"training", "validation"}
    assert list(trial.metrics("none")) == []
    assert any("starting after epoch 0" in line.log for line in trial.logs())
    assert [line.number for line in trial.logs(tail=1)] == [list(trial.logs())[-1].number]
    assert trial.story()[-1].after == "COMPLETED"


def test_a_part_of_a_log(master: Master, experiment: Experiment) -> None:
    trial = experiment.first_trial()
    task = trial.task_id
    log = [line.number for line in trial.logs()]
    end = master.cluster.log_window(task, before=2, bins=4)
    assert [line["id"] for line in end["lines"]] == log[-2:]
    assert (end["total"], end["position"]) == (len(log), len(log) - 2)
    assert end["bins"]
    assert sum(end["bins"]["lines"]) == len(log)
    found = master.cluster.log_window(task, around=log[1], before=1, after=1)
    assert [line["id"] for line in found["lines"]] == log[:2]
    assert master.cluster.log_window(task, find="next", searchText="no such text")["focus"] is None


def test_checkpoints_are_copied_whole(experiment: Experiment, tmp_path: Path) -> None:
    (checkpoint,) = experiment.checkpoints()
    (trial,) = experiment.trials()
    assert checkpoint == experiment.best_checkpoint() == trial.newest_checkpoint() == trial.best_checkpoint()
    assert checkpoint.trial() == trial
    target = checkpoint.download(tmp_path / "best")
    assert json.loads((target / "state.json").read_text()) == {"epochs": 3}
    with pytest.raises(ClientError, match="already exists"):
        checkpoint.download(target)
    through = checkpoint.download(tmp_path / "through", Way.MASTER)
    assert (through / "state.json").read_bytes() == (target / "state.json").read_bytes()
    assert sorted(os.listdir(through)) == sorted(os.listdir(target))
    changed = checkpoint.edit_metadata(quality="good", steps_completed=None)
    assert (changed.metadata["quality"], "steps_completed" in changed.metadata) == ("good", False)
    checkpoint.edit_metadata(quality=None, steps_completed=3)


def test_experiments_are_found(master: Master, experiment: Experiment) -> None:
    number = experiment.id
    for where in (
        column("id") == number,
        (metric("error") < 0.7) & column("tags").contains("a"),
        (column("state") == "ERROR") | (hparam("value") == 2.0),
        metric("loss", group="training", of="max") >= 2.0,
        column("name").contains("count") & column("description").is_empty(),
    ):
        assert [one.id for one in master.search(where)] == [number], where
    for nothing in (metric("error") > 1.0, column("state") != "COMPLETED", column("tags").lacks("a")):
        assert master.search(nothing & (column("id") == number)) == []
    assert [one.id for one in master.experiments(labels=["a"], states=["STATE_COMPLETED"])] == [number]
    with pytest.raises(TypeError, match="is_empty"):
        _ = column("name") == None  # noqa: E711
    with pytest.raises(TypeError, match="Join conditions by &"):
        _ = (column("id") > 1) and (column("id") < 3)


def test_experiments_are_steered_and_edited(master: Master) -> None:
    config = {"name": "long", "entrypoint": "sleep 600", "searcher": {"name": "single", "metric": "loss"}}
    running = master.create_experiment(config)
    running.pause()
    assert running.reload().state == "PAUSED"
    running.activate()
    changed = running.edit(name="longer", notes="noted", labels=["b"])
    assert (changed.name, changed.labels, running.name) == ("longer", ("b",), "long")
    running.kill()
    ended = running.wait(0.1)
    assert ended.state == "CANCELED"
    ended.archive()
    assert ended.reload().archived
    assert ended.id not in [one.id for one in master.search()]
    assert ended.id in [one.id for one in master.search(archived=True)]
    ended.unarchive()
    with pytest.raises(ClientError, match="no checkpoint"):
        ended.best_checkpoint()
    with pytest.raises(ClientError, match="no checkpoint"):
        ended.first_trial().newest_checkpoint()
    ended.delete()


# -- models -------------------------------------------------------------------------------------------------------


def test_a_model_from_its_making_to_its_end(master: Master, experiment: Experiment) -> None:
    name = f"m-{uuid.uuid4().hex[:8]}"
    model = master.create_model(name, labels=["x"], metadata={"k": 1})
    assert "x" in master.registry.labels()
    assert (model.labels, model.metadata, model.owner) == (("x",), {"k": 1}, "determined")
    with pytest.raises(ClientError, match="no version"):
        model.version()
    version = model.register(experiment.best_checkpoint(), name="first", comment="good")
    assert (version.version, version.checkpoint()) == (1, experiment.best_checkpoint())
    assert version.edit(notes="n").notes == "n"
    assert model.versions() == [model.version()] == [model.version(1)]
    assert model.edit(description="d").description == "d"
    assert name in [one.name for one in master.models(name=name)]
    workspace = master.organisation.create_workspace(name)["id"]
    model.move(workspace)
    model.archive()
    assert (model.reload().archived, model.reload().workspace_id) == (True, workspace)
    model.unarchive()
    version.delete()
    model.delete()
    with pytest.raises(NoSuchThing):
        model.reload()


# -- what is sent -------------------------------------------------------------------------------------------------

SEND = """
import sys
from pathlib import Path
from trainmaster.client import connect

def peak():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])

master = connect(sys.argv[1], token=sys.argv[2])
master.whoami()
before = peak()
made = master.create_experiment(Path(sys.argv[3]), sys.argv[4], activate=False)
print(made.id, peak() - before)
"""


def test_a_large_context_is_never_in_memory(process: MasterProcess, master: Master, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    content = os.urandom(2**20) * 20
    (code / "weights.bin").write_bytes(content)
    (code / "empty").touch()
    file = tmp_path / "search.yaml"
    file.write_text('{"entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}}')
    command = [sys.executable, "-c", SEND, process.url, str(master._http.token), str(file), str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    number, grown = map(int, done.stdout.split())
    assert grown < 8 * 1024  # KiB, for 20 MiB of files
    made = master.experiment(number)
    made.kill()
    with tarfile.open(fileobj=io.BytesIO(made.files())) as archive:
        member = archive.extractfile("weights.bin")
        assert member is not None
        assert member.read() == content


def test_a_file_that_changes_while_it_is_sent_is_an_error(master: Master, tmp_path: Path) -> None:
    from trainmaster.client.context import collect

    config = {"entrypoint": "true", "searcher": {"name": "single", "metric": "loss"}}
    file = tmp_path / "log.txt"
    for before, after, what in ((b"long", b"l", "shorter"), (b"l", b"long", "longer")):
        file.write_bytes(before)
        context = collect(tmp_path)
        file.write_bytes(after)
        with pytest.raises(ClientError, match=f"log.txt became {what}"):
            master.create_experiment(config, context)
    assert master.whoami()["username"] == "determined"  # the connection was given up, and a new one is fine
