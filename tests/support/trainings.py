"""Training scripts and experiment files for end-to-end tests: real code in real jobs, small and fast."""

from __future__ import annotations

import json
from typing import Any

# Counts epochs, keeps them in its checkpoint, reports a metric that depends on the hyperparameter only.
COUNTING = """
import json, os, sys, time
from trainmaster import core

info = core.get_cluster_info()
hparams = info.trial.hparams
epochs = int(hparams.get("epochs", 8))
pause = float(hparams.get("pause", 0.05))
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    done = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            done = json.loads((path / "state.json").read_text())["epochs"]
    print(f"starting after epoch {done}", flush=True)

    def save():
        with context.checkpoint.store_path({"steps_completed": done}) as (path, _):
            (path / "state.json").write_text(json.dumps({"epochs": done}))

    while done < epochs:
        time.sleep(pause)
        done += 1
        value = hparams.get("value", 1.0) / done if hparams.get("value", 1.0) == hparams.get("value", 1.0) else 0.0
        if hparams.get("nan"):
            value = float("nan")
        context.train.report_training_metrics(done, {"loss": value})
        context.train.report_validation_metrics(done, {"error": value, "epochs": done})
        context.train.report_progress(done / epochs)
        if done == hparams.get("save_at"):
            save()
        while done == hparams.get("wait_at") and not os.path.exists(hparams["wait_for"]):
            time.sleep(0.05)
        # Until it is told to leave, or is killed when it is deaf: nobody knows how long that takes.
        while done == hparams.get("stay_at") and info.trial.trial_run_id == 1 and (
            hparams.get("deaf") or not context.preempt.should_preempt()
        ):
            time.sleep(0.05)
        if done == hparams.get("fail_at") and info.trial.trial_run_id <= hparams.get("fail_times", 1):
            print("about to fail", flush=True)
            sys.exit(int(hparams.get("fail_with", 3)))
        if done == hparams.get("die_at") and info.trial.trial_run_id == 1:
            os.kill(os.getpid(), 9)
        if not hparams.get("deaf") and context.preempt.should_preempt():
            save()
            print(f"leaving after epoch {done}", flush=True)
            sys.exit(0)
    save()
"""

INVALID = """
from trainmaster import core
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    if core.get_cluster_info().trial.hparams["x"] < 5:
        context.train.report_early_exit(core.EarlyExitReason.INVALID_HP)
        raise SystemExit(1)
    context.train.report_validation_metrics(1, {"error": 1.0, "epochs": 1})
"""


def experiment(searcher: dict[str, Any] | None = None, **hparams: Any) -> str:
    """YAML (JSON is YAML) of an experiment that runs `train.py`; keys that are no hyperparameters go by `keys`."""
    keys = hparams.pop("keys", {})
    config = {
        "name": "test",
        "entrypoint": "python3 train.py",
        "hyperparameters": hparams,
        "searcher": searcher or {"name": "single", "metric": "error"},
        "max_restarts": 0,
        "reproducibility": {"experiment_seed": 11},
        **keys,
    }
    return json.dumps(config, indent=1)


def asha(trials: int, longest: int, **more: Any) -> dict[str, Any]:
    return {
        "name": "async_halving",
        "metric": "error",
        "max_trials": trials,
        "num_rungs": 3,
        "divisor": 2,
        "time_metric": "epochs",
        "max_time": longest,
        "max_concurrent_trials": 4,
        **more,
    }
