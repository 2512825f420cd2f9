"""The training of the chaos ring, whose every report can be foretold.

A trial counts steps and carries a number from one to the next: what it reports at a step follows from its seed and from
every step before it. A training that goes on from a wrong checkpoint, or skips or repeats a step, reports another
number.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

NAME = "chaos"
SAVE_EVERY = 3  # steps


def after(number: int, step: int) -> int:
    """The number after a step, from the one before it."""
    return (number * 48271 + step * 16807 + 11) % 2147483647


def expected(seed: int, steps: int) -> dict[int, int]:
    """Step -> number, of a whole trial."""
    numbers: dict[int, int] = {}
    number = seed
    for step in range(1, steps + 1):
        numbers[step] = number = after(number, step)
    return numbers


# A full or read-only disk is no reason to give up for this training: it saves again until it works.
TRAINING = f"""
import json, os, sys, time
from trainmaster import core


{inspect.getsource(after)}

info = core.get_cluster_info()
hparams = info.trial.hparams
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    done, number = 0, hparams["seed"]
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            saved = json.loads((path / "state.json").read_text())
            done, number = saved["done"], saved["number"]
    first = done
    print(f"attempt {{info.allocation_id}} goes on after step {{done}}", flush=True)

    def save():
        while True:
            try:
                with context.checkpoint.store_path({{"steps_completed": done}}) as (path, _):
                    (path / "state.json").write_text(json.dumps({{"done": done, "number": number}}))
                return
            except (OSError, core.CheckpointError) as error:
                print(f"cannot save after step {{done}}: {{error}}", flush=True)
                time.sleep(0.5)

    while done < hparams["steps"]:
        time.sleep(hparams["pause"])
        done += 1
        number = after(number, done)
        context.train.report_training_metrics(done, {{"number": number}})
        context.train.report_validation_metrics(done, {{"error": number / 2**31, "number": number, "after": first}})
        leaving = context.preempt.should_preempt()
        if leaving or done % {SAVE_EVERY} == 0 or done == hparams["steps"]:
            save()
        if leaving:
            print(f"leaving after step {{done}}", flush=True)
            sys.exit(0)
"""


def experiment(trials: int, at_once: int, *, steps: int, pause: float, seed: int, keys: Mapping[str, Any]) -> str:
    """A search's configuration. `pause`: seconds that a step takes; `keys`: what its cluster wants beside."""
    config = {
        "name": NAME,
        "entrypoint": "python3 train.py",
        "hyperparameters": {
            "seed": {"type": "int", "minval": 1, "maxval": 2**30},
            "steps": steps,
            "pause": pause,
        },
        "searcher": {"name": "random", "metric": "error", "max_trials": trials, "max_concurrent_trials": at_once},
        "max_restarts": 5,
        "reproducibility": {"experiment_seed": seed},
        **keys,
    }
    return json.dumps(config, indent=1)
