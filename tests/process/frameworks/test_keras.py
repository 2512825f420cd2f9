"""Keras's `fit` with our callback, in real jobs, on each of its backends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.process.frameworks.conftest import EARLIER
from tests.process.launchers.conftest import find_python
from tests.support.runtime.doors import trained
from tests.support.runtime.trials import LEAVE

ROOT = Path(__file__).resolve().parents[3]
PYTHON = find_python("keras", "TRAINMASTER_TORCH_PYTHON", "torch-venv") or ""
# scripts/test makes an environment with the frameworks and names it; plain pytest has none.
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="no Python with keras: set TRAINMASTER_TORCH_PYTHON"),
    pytest.mark.slow,
]

# 40 items in batches of 8: five steps an epoch, 15 in all.
SCRIPT = """
import json, os
import keras
import numpy as np
from trainmaster import core
from trainmaster.keras import TrainmasterCallback
import leave

class Leave(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        leave.at(self.epoch * 5 + batch + 1)
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_test_batch_begin(self, batch, logs=None):
        leave.at(self.epoch * 5 + 5, "evaluation")

keras.utils.set_random_seed(**core.apply_hparams(keras.utils.set_random_seed, seed=7))
hparams = core.apply_hparams({"lr": 0.5})
print("ARGUMENTS", json.dumps(hparams))
x = np.random.default_rng(1).normal(size=(40, 4)).astype("float32")
y = x.sum(axis=1)
model = keras.Sequential([
    keras.Input((4,)), keras.layers.GaussianNoise(0.1), keras.layers.Dense(8), keras.layers.Dropout(0.3),
    keras.layers.BatchNormalization(), keras.layers.Dense(1),
])
schedule = keras.optimizers.schedules.CosineDecay(float(hparams["lr"]), 15)
model.compile(keras.optimizers.Adam(schedule), "mse", metrics=["mae"])
options = {"epochs": 3, "batch_size": 8, **json.loads(os.environ.get("OPTIONS", "{}"))}
saved = options.pop("save_freq", None)
model.fit(x, y, validation_data=(x[:8], y[:8]), verbose=0, **options,
          callbacks=[Leave(), TrainmasterCallback(save_freq=saved, report_every=2)])
leave.digest(keras.ops.convert_to_numpy(each) for each in model.weights)
"""
HPARAMS = {"lr": "1e-2", "unknown": 1}
SEARCHER = {"name": "single", "metric": "val_loss"}


@pytest.fixture
def fit(trial: Any) -> Any:
    """`fit(backend, options of fit(), **more)`: a trial of SCRIPT."""

    def make(backend: str, options: Any = None, environment: Any = None, script: str = SCRIPT, **more: Any) -> Any:
        environment = {
            "OPTIONS": json.dumps(options or {}),
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            **(environment or {}),
        }
        return trial(
            script, **{"python": PYTHON, "hparams": HPARAMS, "environment": environment, "searcher": SEARCHER, **more}
        )

    return make


def test_a_trial_that_was_cut_in_four_ends_with_the_same_weights(fit: Any) -> None:
    whole, cut = fit("jax", {"save_freq": 4}), fit("jax", {"save_freq": 4})
    alone = whole.through()
    # In the middle of an epoch; in the validation at the end of one; killed.
    last = cut.through("ask step 3", "ask evaluation 10", "kill step 15")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert [json.loads(line) for line in alone.printed("ARGUMENTS")] == [{"lr": 0.01, "unknown": 1}]
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert [step for step, _ in whole.metrics("validation")] == [5, 10, 15]
    assert whole.metrics("validation")[0][1].items() >= {"batches": 5, "epochs": 1}.items()
    assert set(whole.metrics("training")[0][1]) == {"loss", "mae"}
    assert [record["progress"] for record in alone.master.kinds("progress")][-1] == 1.0
    # Each fourth step, and the step after which it left.
    steps = [[made["steps_completed"] for made in each.checkpoints] for each in cut.attempts]
    assert steps == [[3], [7, 10], [14], [15]]
    (stored, *_) = cut.attempts[0].checkpoints
    assert {"model.weights.h5", "variables.npz", "training.json", "random.json"} <= set(stored["resources"])
    trained(cut, "trainmaster.keras", "keras", "jax")


@pytest.mark.parametrize("backend", ["tensorflow", "torch"])
def test_the_other_backends_end_with_the_same_weights(fit: Any, backend: str) -> None:
    whole, cut = fit(backend), fit(backend)
    alone, last = whole.through(), cut.through("ask step 8")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    assert dict(cut.metrics("training")) == dict(whole.metrics("training"))
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    trained(cut, "trainmaster.keras", "keras", {"tensorflow": "tensorflow-cpu"}.get(backend, backend))


@pytest.mark.skipif(not os.path.isdir(EARLIER), reason="no earlier releases: set TRAINMASTER_EARLIER_FRAMEWORKS")
def test_the_release_before_ends_with_the_same_weights(fit: Any) -> None:
    environment = {"PYTHONPATH": EARLIER}
    whole, cut = fit("jax", environment=environment), fit("jax", environment=environment)
    alone, last = whole.through(), cut.through("ask step 8")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []
    trained(cut, "trainmaster.keras", "keras", "jax")


def test_a_run_that_ends_at_the_step_at_which_it_is_asked_to_leave_is_complete(fit: Any) -> None:
    attempt = fit("jax").run("ask step 15")
    assert attempt.status == 0, attempt.output
    assert attempt.printed("WEIGHTS")
    assert not attempt.left


def test_several_steps_in_one_execution(fit: Any) -> None:
    script = SCRIPT.replace('metrics=["mae"])', 'metrics=["mae"], steps_per_execution=2)')
    whole, cut = fit("jax", script=script), fit("jax", script=script)
    alone, last = whole.through(), cut.through("ask step 8")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS") != []


# Each process brings its own half of the data.
DISTRIBUTED = """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
keras.distribution.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], size, rank)
devices = keras.distribution.list_devices()
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
"""


def test_two_nodes_go_on_with_the_same_weights(fit: Any) -> None:
    """On JAX: of Keras 3's backends the one on which `fit` trains on several nodes."""
    script = SCRIPT.replace("keras.utils", DISTRIBUTED + "keras.utils", 1).replace("y = x", "x = x[rank::size]\ny = x")
    entrypoint = [PYTHON, "-m", "trainmaster.launchers.script", PYTHON, "train.py"]
    whole, cut = (fit("jax", {"batch_size": 4}, nodes=2, script=script, entrypoint=entrypoint) for _ in range(2))
    alone, last = whole.through(), cut.through("ask step 8")
    assert last.printed("WEIGHTS") == alone.printed("WEIGHTS")
    assert len(set(last.printed("WEIGHTS"))) == 1
    trained(cut, "trainmaster.keras", "keras", "jax")
    assert dict(cut.metrics("validation")) == dict(whole.metrics("validation"))
    assert [step for step, _ in cut.metrics("validation")] == [5, 10, 15]  # one report each


def test_the_search_stops_a_trial_after_its_validation(fit: Any) -> None:
    def decide(master: Any, stream: str, record: Any) -> None:
        if record.get("kind") == "metrics" and record["group"] == "validation" and record["steps_completed"] == 10:
            master.preempt = "early stop"

    attempt = fit("jax").run(decide=decide)
    assert attempt.status == 0, attempt.output
    assert attempt.left
    assert [made["steps_completed"] for made in attempt.checkpoints] == [10]


def test_what_goes_wrong_is_said_in_a_sentence(fit: Any, trial: Any) -> None:
    attempt = fit("jax", searcher={"name": "random", "metric": "accuracy"}).run()
    assert attempt.status == 1
    (sentence,) = [line for line in attempt.lines if line.startswith("ValueError: ")]
    assert "the searcher waits for the metric 'accuracy', which keras does not report" in sentence
    assert "val_loss" in sentence

    cut = fit("jax", script=SCRIPT.replace("Dense(8)", 'Dense(int(os.environ.get("WIDTH", "8")))'))
    cut.run("ask step 2")
    attempt = cut.run(WIDTH="9")
    assert attempt.status == 1
    (sentence,) = [line for line in attempt.lines if "CheckpointError: " in line]
    assert "does not fit the model 'sequential' of this script" in sentence


def test_outside_of_a_job_the_same_script_trains_and_reports_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "leave.py").write_text(LEAVE)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "jax"}
    ran = subprocess.run(
        [PYTHON, "train.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert 'ARGUMENTS {"lr": 0.5}' in ran.stdout
    assert "WEIGHTS" in ran.stdout


def test_determineds_own_callback_reports_leaves_and_goes_on(fit: Any) -> None:
    """`determined.keras.DeterminedCallback`, as scripts of Determined's users have it."""
    script = SCRIPT.replace(
        "from trainmaster.keras import TrainmasterCallback",
        "import determined as det\nfrom determined.keras import DeterminedCallback",
    )
    start = script.index("model.fit(")
    script = script[:start] + (
        """
info = det.get_cluster_info()
with det.core.init() as core_context:
    callback = DeterminedCallback(
        core_context, checkpoint=info.latest_checkpoint, continue_id=info.trial.trial_id, train_metrics_report_period=2
    )
    history = model.fit(x, y, validation_data=(x[:8], y[:8]), verbose=0, epochs=3, batch_size=8,
                        callbacks=[Leave(), callback])
print("EPOCHS", history.epoch)
"""
    )
    cut = fit("jax", script=script, searcher={"name": "single", "metric": "loss"})
    first = cut.run("ask step 3")
    assert (first.status, first.left) == (0, True), first.output
    last = cut.run()
    assert last.status == 0, last.output
    assert [each.printed("EPOCHS") for each in (first, last)] == [["[0]"], ["[1, 2]"]]
    assert [step for step, _ in cut.metrics("training")] == [2, 4, 6, 8, 10, 12, 14]
    assert [step for step, _ in cut.metrics("validation")] == [5, 10, 15]
    assert set(cut.metrics("validation")[0][1]) == {"loss", "mae", "batches", "epochs"}
    assert [[made["steps_completed"] for made in each.checkpoints] for each in cut.attempts] == [[5], [10, 15]]
    refused = fit("jax", script="from determined.keras import TFKerasTrial").run()
    assert "determined.keras.TFKerasTrial is not part of trainmaster: it trains Keras 2" in refused.output
