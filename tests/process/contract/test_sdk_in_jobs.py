"""`determined.experimental.client` in jobs: one script with the published package and with ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.contract.conftest import Reference
from tests.support.master import ended_as, files, log_text, only_trial
from trainmaster.client.master import Master

# What it prints is the same, but for numbers and uuids, which it prints as what they stand for.
SCRIPT = """
import json, os, pathlib, sys, warnings
warnings.simplefilter("ignore")
import determined as det
from determined import core
from determined.experimental import Checkpoint, client

mine = det.get_cluster_info().trial
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    saved = []
    for step, loss in ((1, 0.5), (2, 0.25), (3, 0.75)):
        context.train.report_training_metrics(step, {"loss": loss * 2})
        context.train.report_validation_metrics(step, {"loss": loss})
        with context.checkpoint.store_path({"steps_completed": step, "note": "kept"}) as (path, uuid):
            (path / "sub").mkdir()
            (path / "sub" / "weights").write_text(str(step))
        saved.append(uuid)
    context.preempt.should_preempt()
    import time
    for _ in range(100):
        if len(client.get_trial(mine.trial_id).list_checkpoints()) == 3:
            break
        time.sleep(0.1)

    def say(**values):
        print("SAID", json.dumps(values, default=str, sort_keys=True), flush=True)
    def number(checkpoint):
        return saved.index(checkpoint.uuid) + 1

    trial = client.get_trial(mine.trial_id)
    experiment = client.get_experiment(mine.experiment_id)
    say(trial=trial.id == mine.trial_id, hparams=trial.hparams, experiment=trial.get_experiment().id == experiment.id,
        user=client.get_session_username(), name=experiment.name, labels=sorted(experiment.labels or []),
        state=experiment.state in (client.ExperimentState.ACTIVE, client.ExperimentState.RUNNING))
    say(best=number(trial.top_checkpoint()), latest=number(trial.select_checkpoint(latest=True)),
        worst=number(trial.top_checkpoint(sort_by="loss", smaller_is_better=False)),
        order=[number(each) for each in trial.list_checkpoints()],
        of_experiment=[number(each) for each in experiment.top_n_checkpoints(2)],
        by_step=[number(each) for each in trial.list_checkpoints(
            sort_by=client.CheckpointSortBy.BATCH_NUMBER, order_by=client.OrderBy.DESC)])
    best = trial.top_checkpoint()
    assert isinstance(best, Checkpoint)
    say(state=best.state.name, metadata=best.metadata, resources=sorted(best.resources),
        trial=best.training.trial_id == trial.id, hparams=best.training.hparams)
    for mode in client.DownloadMode:
        folder = best.download(path="down-" + mode.value, mode=mode)
        say(mode=mode.value, folder=folder, files=sorted(
            each.relative_to(folder).as_posix() for each in pathlib.Path(folder).rglob("*") if each.is_file()),
            weights=pathlib.Path(folder, "sub", "weights").read_text(),
            metadata=json.loads(pathlib.Path(folder, "metadata.json").read_text()))
    say(default=best.download() == "checkpoints/" + best.uuid)
    best.add_metadata({"more": [1, {"deep": None}]})
    best.remove_metadata(["note"])
    again = client.get_checkpoint(best.uuid)
    say(metadata=again.metadata)

    for group in ("training", "validation"):
        say(reports=[
            (each.group, each.steps_completed, each.metrics, each.trial_id == trial.id, each.end_time.year > 2000)
            for each in trial.iter_metrics(group)])

    name = "readers " + os.environ["SUFFIX"]
    model = client.create_model(name, description="of digits", metadata={"a": 1})
    model.register_version(best.uuid)
    second = model.register_version(saved[0])
    second.set_name("first steps")
    second.set_notes("of the page")
    model.add_metadata({"b": 2})
    model.remove_metadata(["a"])
    model.set_labels(["y", "z"])
    model.set_description("changed")
    found = client.get_model(name)
    say(found=[found.name == name, found.description, found.metadata, sorted(found.labels), found.username],
        by_id=client.get_model_by_id(found.model_id).name == name,
        versions=[(each.model_version, number(each.checkpoint), each.name) for each in found.list_versions()],
        newest=found.get_version().model_version, first=number(found.get_version(1).checkpoint),
        notes=found.get_version(2).notes, listed=name in [each.name for each in client.list_models(name="readers")])
    found.archive()
    say(archived=client.get_model(name).archived)
    found.unarchive()

    experiment.set_name("renamed")
    experiment.set_description("by its own job")
    experiment.add_label("first")
    experiment.add_label("second")
    experiment.remove_label("first")
    experiment.reload()
    say(name=experiment.name, description=experiment.description, labels=sorted(experiment.labels))

    pathlib.Path("other").mkdir()
    pathlib.Path("other", "train.py").write_text("print('OTHER')")
    other = client.create_experiment(
        {"name": "other", "entrypoint": "python3 train.py", "searcher": {"name": "single", "metric": "loss"},
         "resources": {"slots_per_trial": 0}, "max_restarts": 0}, "other")
    say(state=other.wait(interval=0.2).name, trials=len(other.list_trials()),
        first=other.await_first_trial().state.name,
        code=pathlib.Path(other.download_code("code")).name == "exp-%d_model_def.tar.gz" % other.id,
        lines=[line for line in other.list_trials()[0].iter_logs() if "OTHER" in line][0].strip().endswith("OTHER"))
    other.archive()
    other.reload()
    say(archived=other.archived)

    for what in (
        lambda: client.get_checkpoint("6f0f2d9e-4b3e-4b43-9a25-1b3c7f2d9f00"), lambda: client.get_trial(999999),
        lambda: client.get_model("none of this name"), lambda: model.register_version("nothing"),
    ):
        try:
            what()
            say(refused=False)
        except Exception as error:
            say(refused=True)
"""


def begin(master: Master, path: str, suffix: str) -> int:
    config = {
        "name": "looks",
        "labels": ["label"],
        "entrypoint": "python3 train.py",
        "hyperparameters": {"lr": 0.5},
        "searcher": {"name": "single", "metric": "loss"},
        "resources": {"slots_per_trial": 0},
        "max_restarts": 0,
        "environment": {"environment_variables": [f"PATH={path}", f"SUFFIX={suffix}"]},
    }
    return master.create_experiment(json.dumps(config), files(train__py=SCRIPT)).id


def said(master: Master, number: int) -> list[Any]:
    ended_as(master, number, "COMPLETED", 90)
    lines = log_text(master, only_trial(master, number).id).splitlines()
    return [json.loads(line.partition("SAID ")[2]) for line in lines if "SAID " in line]


def test_one_script_finds_the_same_with_both(client: Reference) -> None:
    master = client.master.client()
    plain = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
    numbers = [
        begin(master, f"{client.environment / 'bin'}:/usr/bin:/bin", "published"),
        begin(master, plain, "ours"),
    ]
    theirs, ours = (said(master, number) for number in numbers)
    assert len(ours) == 19
    for one, other in zip(theirs, ours, strict=True):
        assert other == one


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("client.list_users()", "determined.experimental.client.list_users is not part of trainmaster's SDK in jobs"),
        ("client.get_trial(1)", "which works in jobs: elsewhere install the package determined"),
        ("import determined; determined.EnvContext", "determined.EnvContext is not part of trainmaster"),
    ],
)
def test_what_is_not_there_says_so(line: str, sentence: str) -> None:
    root = Path(__file__).resolve().parents[3]
    ran = subprocess.run(
        [sys.executable, "-S", "-c", f"from determined.experimental import client\n{line}"],
        env={"PYTHONPATH": f"{root}:{root / 'trainmaster' / 'determined_alias'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert sentence in ran.stderr.splitlines()[-1]
