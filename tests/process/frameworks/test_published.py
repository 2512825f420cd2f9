"""The same trial scripts by the published package and by ours: same metrics, batches and order, and each reads the
other's checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.frameworks.test_trial import HPARAMS, MODEL, PYTHON
from tests.support.master import ended_as, files, log_text, only_trial, serving
from tests.support.reference import reference
from tests.support.runtime.trials import LEAVE
from trainmaster.client.master import Master

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with torch: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

CONFIG = "resource_manager: {type: local, slots: 4, poll_interval: 0.3}\n"
SCRIPT = """
import sys
import determined as det
from determined import pytorch
from model_def import Trial
import leave

print("PACKAGE", "ours" if "trainmaster.pytorch" in sys.modules else "published")
info = det.get_cluster_info()
with pytorch.init(hparams=info.trial.hparams, exp_conf=info.trial._config) as context:
    trial = Trial(context)
    trainer = pytorch.Trainer(trial, context)
    trainer.fit(
        max_length=pytorch.Epoch(3), validation_period=pytorch.Batch(7), reporting_period=pytorch.Batch(3),
        checkpoint_policy="all", latest_checkpoint=info.latest_checkpoint,
    )
    leave.digest(p.detach().numpy() for p in trial.model.parameters())
"""
LAUNCHED = "python3 -m determined.launch.torch_distributed python3 train.py"


@pytest.fixture(scope="module")
def published() -> Path:
    try:
        return reference.training_environment(Path(PYTHON))
    except reference.NoReference as reason:
        pytest.skip(f"no published harness: {reason}")


@pytest.fixture(scope="module")
def master() -> Iterator[Master]:
    with serving(CONFIG) as process:
        yield process.client()


class Comparison:
    """One experiment by each package, begun together."""

    def __init__(self, master: Master, published: Path, entrypoint: str, slots: int = 1, **keys: Any) -> None:
        self._master = master
        self._entrypoint, self._slots, self._keys = entrypoint, slots, keys
        self._paths = {"published": published / "bin", "ours": Path(PYTHON).parent}

    def begin(self, package: str, model: str = MODEL, script: str = SCRIPT, ours: bool = False, **keys: Any) -> int:
        variables = [
            f"PATH={self._paths[package]}:/usr/bin:/bin",
            "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1",  # which the published package needs since torch 2.6
            "OMP_NUM_THREADS=1",
            "CUDA_VISIBLE_DEVICES=",
            "QUIET=1",
            "PRINT=1",
            *(["TRAINMASTER_DETERMINED=ours"] if ours else []),
        ]
        config = {
            "name": f"by {package}",
            "entrypoint": self._entrypoint,
            "hyperparameters": HPARAMS,
            "searcher": {"name": "single", "metric": "val_loss"},
            "resources": {"slots_per_trial": self._slots},
            "environment": {"environment_variables": variables},
            "max_restarts": 0,
            "reproducibility": {"experiment_seed": 11},
            **self._keys,
            **keys,
        }
        sent = files(train__py=script, model_def__py=model, leave__py=LEAVE)
        return self._master.create_experiment(json.dumps(config), sent).id

    def both(self) -> dict[str, dict[str, Any]]:
        begun = {package: self.begin(package) for package in self._paths}
        return {package: self.result(number) for package, number in begun.items()}

    def result(self, number: int) -> dict[str, Any]:
        ended_as(self._master, number, "COMPLETED", 120)
        trial = only_trial(self._master, number)
        lines = log_text(self._master, trial.id).splitlines()
        patterns = {
            "PACKAGE": r"PACKAGE (\w+)",
            "ITEM": r"ITEM (\d+)",
            "WEIGHTS": r"WEIGHTS (\w{64})",
            "EPOCHS": r"EPOCHS (.+)",
        }
        said = {word: re.findall(pattern, "\n".join(lines)) for word, pattern in patterns.items()}
        return {
            "package": set(said["PACKAGE"]),
            "weights": set(said["WEIGHTS"]),
            "items": said["ITEM"],
            "epochs": said["EPOCHS"],
            "training": metrics(self._master, trial.id, "training"),
            "validation": metrics(self._master, trial.id, "validation"),
            "saved": sorted(each.steps_completed for each in self._master.checkpoints(number)),
        }


def metrics(master: Master, trial_id: int, group: str) -> list[Any]:
    """Steps and metrics of each report."""
    return [(report.steps_completed, report.metrics) for report in master.metrics([trial_id], group)]


def test_one_process_trains_the_same_batches_in_the_same_order(master: Master, published: Path) -> None:
    found = Comparison(master, published, "python3 train.py").both()
    theirs, ours = found["published"], found["ours"]
    assert (theirs.pop("package"), ours.pop("package")) == ({"published"}, {"ours"})
    assert ours == theirs


def test_the_environment_says_which_of_the_two_trains(master: Master, published: Path) -> None:
    comparison = Comparison(master, published, "python3 train.py")
    script = SCRIPT.split("info =")[0]
    theirs, ours = comparison.begin("published", script=script), comparison.begin("published", script=script, ours=True)
    said = []
    for number in (theirs, ours):
        ended_as(master, number, "COMPLETED", 60)
        text = log_text(master, only_trial(master, number).id)
        said.append((re.findall(r"PACKAGE (\w+)", text), "is this image's own package, release 0.38.1" in text))
    assert said == [(["published"], True), (["ours"], False)]


def test_two_processes_train_the_same_batches_in_the_same_order(master: Master, published: Path) -> None:
    found = Comparison(master, published, LAUNCHED, slots=2).both()
    theirs, ours = found["published"], found["ours"]
    assert (theirs.pop("package"), ours.pop("package")) == ({"published"}, {"ours"})
    # Lines of two processes come in any order.
    assert sorted(ours.pop("items")) == sorted(theirs.pop("items"))
    assert ours == theirs


def test_a_trial_class_as_the_entrypoint_trains_the_same(master: Master, published: Path) -> None:
    keys: dict[str, Any] = {
        "min_validation_period": {"epochs": 1},
        "min_checkpoint_period": {"batches": 8},
        "scheduling_unit": 5,
        "optimizations": {"aggregation_frequency": 2},
        "searcher": {"name": "single", "metric": "val_loss", "max_length": {"batches": 27}},
    }
    found = Comparison(master, published, "model_def:Trial", **keys).both()
    theirs, ours = found["published"], found["ours"]
    assert ours == theirs
    assert ours["saved"] == [8, 10, 16, 20, 24, 27]


def test_each_continues_from_the_others_checkpoint(master: Master, published: Path) -> None:
    """A trial that continues another one's begins with its weights, at step 0."""
    comparison = Comparison(master, published, "python3 train.py")
    first = {package: comparison.begin(package) for package in ("published", "ours")}
    for number in first.values():
        ended_as(master, number, "COMPLETED", 120)
    begun = {}
    for package, other in (("published", "ours"), ("ours", "published")):
        uuid = max(master.checkpoints(first[other]), key=lambda each: each.steps_completed).uuid
        searcher = {"name": "single", "metric": "val_loss", "source_checkpoint_uuid": uuid}
        begun[package] = comparison.begin(package, searcher=searcher)
    theirs, ours = comparison.result(begun["published"]), comparison.result(begun["ours"])
    assert ours["training"] == theirs["training"]
    assert ours["validation"] == theirs["validation"]
    assert ours["weights"] == theirs["weights"]
