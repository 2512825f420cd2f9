"""The rest of the published SDK; with the other tests here nothing of it is left out."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support import trainings
from tests.support.master import MasterProcess, files, only_trial, wait_ended, wait_for
from tests.support.reference import methods
from trainmaster.client.errors import NoSuchThing
from trainmaster.client.master import Master

READING = """
client.login()
experiment = client.get_experiment(int(sys.argv[1]))
(trial,) = experiment.get_trials(sort_by=client.TrialSortBy.START_TIME, order_by=client.OrderBy.DESC)
trial.reload()
steps = lambda found: [c.metadata["steps_completed"] for c in found]
rows = lambda found: [[m.trial_id, m.steps_completed, m.group] for m in found]
by_steps = dict(sort_by=client.CheckpointSortBy.BATCH_NUMBER, order_by=client.OrderBy.ASC)
first, last = trial.list_checkpoints(**by_steps)
last.reload()
path = first.download(sys.argv[2])
first.write_metadata_file(sys.argv[2] + "/again.json")
answer({
    "experiment": trial.get_experiment().id,
    "trials": [t.id for t in experiment.iter_trials(limit=1)],
    "whole_log": [line for line in trial.iter_logs(follow=True)],
    "head": list(trial.iter_logs(head=2)),
    "tail": list(trial.iter_logs(tail=1)),
    "stdout": list(trial.iter_logs(stdtypes=["stdout"])),
    "metrics": rows(trial.stream_metrics("training")),
    "training": rows(trial.stream_training_metrics()),
    "validation": rows(trial.stream_validation_metrics()),
    "all": [rows(client.iter_trials_metrics([trial.id], "training")),
            rows(client.stream_trials_metrics([trial.id], "training")),
            rows(client.stream_trials_training_metrics([trial.id]))],
    "all_validation": rows(client.stream_trials_validation_metrics([trial.id])),
    "by_metric": steps(trial.get_checkpoints(sort_by="error", order_by=client.OrderBy.ASC)),
    "by_steps": steps(trial.list_checkpoints(max_results=1, **by_steps)),
    "selected": steps([trial.select_checkpoint(latest=True), trial.select_checkpoint(best=True),
                       trial.select_checkpoint(uuid=first.uuid), trial.top_checkpoint(),
                       trial.top_checkpoint(sort_by="error", smaller_is_better=False)]),
    "top": [steps(experiment.top_n_checkpoints(2)),
            steps(experiment.top_n_checkpoints(1, sort_by="error", smaller_is_better=False))],
    "saved": [path, json.load(open(path + "/state.json")), json.load(open(sys.argv[2] + "/again.json"))],
    "training_of": [last.training.trial_id, last.training.experiment_id, last.training.hparams["epochs"]],
    "pachyderm": [experiment.get_pachyderm_config()["dataset"]["repo"], first.get_pachyderm_commit()],
    "me": client.get_session_username(),
    "found": [[e.id for e in client.list_experiments(**wanted)] for wanted in (
        dict(experiment_ids=[experiment.id]),
        dict(experiment_ids=[experiment.id], users=["admin"]),
        dict(experiment_ids=[experiment.id], states=[client.ExperimentState.COMPLETED], name="test"),
        dict(experiment_ids=[experiment.id], labels=["nowhere"]),
        dict(project_id=1, experiment_ids=[experiment.id], sort_by=client.ExperimentSortBy.ID,
             order_by=client.OrderBy.ASC),
    )],
})
"""

CHANGING = """
from determined.common.api import bindings
client.login()
name, gone, cancelled, killed = sys.argv[1], *map(int, sys.argv[2:])
workspace = client.create_workspace(name)
project = workspace.create_project("there")
done = client.get_experiment(gone)
done.move_to_project(name, "there")
project.reload(); workspace.reload()
moved = [e.id for e in project.list_experiments()]
model = client.create_model(name)
version = model.register_version(done.top_checkpoint().uuid)
(user,) = done.list_trials()
source = bindings.v1TrialSourceInfo(
    checkpointUuid=done.top_checkpoint().uuid, trialId=user.id, modelId=model.model_id, modelVersion=1,
    trialSourceInfoType=bindings.v1TrialSourceInfoType.INFERENCE,
)
bindings.post_ReportTrialSourceInfo(
    client._determined._session, body=bindings.v1ReportTrialSourceInfoRequest(trialSourceInfo=source)
)
model.move_to_workspace(name)
model.reload(); version.reload()
of_version = [[m.steps_completed, m.group] for m in version.get_metrics()]
of_checkpoint = list(done.top_checkpoint().get_metrics("validation"))
of_checkpoint = [[m.steps_completed, m.group] for m in of_checkpoint]
versions = [v.model_version for v in model.get_versions()]
models = [m.name for m in client.get_models(name=name, sort_by=client.ModelSortBy.CREATION_TIME)]
version.delete(); model.delete()
me = client.whoami(); me.reload()
client.get_experiment(cancelled).cancel()
(trial,) = client.get_experiment(killed).list_trials()
trial.kill()
ended = [client.get_experiment(number).wait(interval=0.2).value for number in (cancelled, killed)]
done.delete()
answer({"moved": moved, "counts": [project.n_experiments, workspace.name], "of_version": of_version,
        "of_checkpoint": of_checkpoint, "versions": versions, "models": models, "me": me.username, "ended": ended})
"""

REFUSED = """
client.login()
said = []
for refused in (lambda: client.list_oauth_clients(), lambda: client.add_oauth_client("https://x.example", "x"),
                lambda: client.remove_oauth_client("7")):
    try:
        refused()
    except Exception as error:
        said.append(str(error))
client.logout()
try:
    client._determined._session.get("/api/v1/me")
    said.append("still there")
except AttributeError:
    said.append("nobody")
answer(said)
"""

PACHYDERM = {
    "pachd": {"host": "pachd.example", "port": 30650},
    "proxy": {"scheme": "http", "host": "pachd.example", "port": 80},
    "dataset": {"project": "p", "repo": "pictures", "commit": "c0ffee", "branch": "main", "token": "t"},
}


@pytest.fixture(scope="module")
def ended(running: MasterProcess, truth: Master) -> int:
    """An experiment with two checkpoints."""
    storage = {"type": "shared_fs", "host_path": str(running.folder / "sdk"), "save_trial_latest": 2}
    (running.folder / "sdk").mkdir()
    keys = {"checkpoint_storage": storage, "integrations": {"pachyderm": PACHYDERM}}
    text = trainings.experiment(epochs=3, pause=0.01, save_at=1, keys=keys)
    number = truth.create_experiment(text, files(train__py=trainings.COUNTING)).id
    assert wait_ended(truth, number).state == "COMPLETED"
    return number


def test_reading(client: Reference, truth: Master, ended: int, tmp_path: Path) -> None:
    trial = only_trial(truth, ended).id
    found = client.run(READING, str(ended), str(tmp_path / "saved"))
    assert (found["experiment"], found["trials"], found["me"]) == (ended, [trial], "determined")
    log = [line.message for line in truth.logs(trial)]
    assert (found["whole_log"], found["head"], found["tail"]) == (log, log[:2], log[-1:])
    assert found["stdout"] == [line for line in log if "starting after" in line]
    reports = {group: [[trial, step, group] for step in (1, 2, 3)] for group in ("training", "validation")}
    assert found["metrics"] == found["training"] == reports["training"]
    assert found["validation"] == found["all_validation"] == reports["validation"]
    assert found["all"] == [reports["training"]] * 3
    assert (found["by_metric"], found["by_steps"]) == ([3, 1], [1])
    assert found["selected"] == [3, 3, 1, 3, 1]
    assert found["top"] == [[3], [1]], "the best of each trial"
    assert found["saved"][1:] == [{"epochs": 1}, {"steps_completed": 1}]
    assert found["training_of"] == [trial, ended, 3]
    assert found["pachyderm"] == ["pictures", "c0ffee"]
    assert found["found"] == [[ended], [ended], [ended], [], [ended]]


def test_changing(client: Reference, truth: Master) -> None:
    done, cancelled, killed = (
        truth.create_experiment(trainings.experiment(epochs=epochs, pause=0.02), files(train__py=trainings.COUNTING)).id
        for epochs in (1, 5000, 5000)
    )
    wait_ended(truth, done)
    for number in (cancelled, killed):
        wait_for(lambda number=number: any(t.batches for t in truth.trials(number)), "its first report")  # type: ignore[misc]
    name = f"sdk-{uuid.uuid4().hex[:8]}"
    found = replace(client, user="admin").run(CHANGING, name, *map(str, (done, cancelled, killed)))
    assert (found["moved"], found["counts"]) == ([done], [1, name])
    assert sorted(found["of_version"]) == [[1, "training"], [1, "validation"]]
    assert found["of_checkpoint"] == [[1, "validation"]]
    assert (found["versions"], found["models"], found["me"]) == ([1], [name], "admin")
    assert found["ended"] == ["STATE_CANCELED", "STATE_CANCELED"]
    assert len(truth.checkpoints(cancelled)) == 1
    wait_for(lambda: is_gone(truth, done), "the experiment to be deleted")


def is_gone(truth: Master, number: int) -> bool:
    try:
        truth.experiment(number)
    except NoSuchThing:
        return True
    return False


def test_refused_calls_say_why(client: Reference) -> None:
    *said, after = client.run(REFUSED)
    assert len(said) == 3
    assert all("has no single sign-on" in sentence for sentence in said)
    assert after == "nobody"


def test_every_method_is_called_by_a_test(installed: Path, request: pytest.FixtureRequest) -> None:
    here = Path(__file__).parent
    chosen = {item.path for item in request.session.items}
    if not chosen >= set(here.glob("test_*.py")):
        pytest.skip("only some of the tests that call the SDK were asked for")
    everything = methods.published(installed)
    assert len(everything) > 120
    assert everything - methods.called == set()
