"""The published `core_v2` in a program that runs elsewhere: begun, gone, begun again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.process.contract.conftest import Reference
from trainmaster.client.master import Master

TRAIN = """
from determined import core
from determined.experimental import core_v2
with core_v2.init_context(
    config=core_v2.Config(
        name="elsewhere",
        hparams={"lr": 0.1},
        external_experiment_id=sys.argv[1],
        external_trial_id="trial-1",
        checkpoint_storage=sys.argv[2],
        searcher={"name": "single", "metric": "loss", "max_length": 4},
    ),
    tensorboard_mode=core.TensorboardMode.MANUAL,  # writing events would need PyTorch or TensorFlow
) as context:
    latest = context.info.latest_checkpoint
    begin = 0
    if latest is not None:
        with context.checkpoint.restore_path(latest) as path:
            begin = int((path / "steps").read_text())
        print("goes on from", begin)
    for step in range(begin + 1, begin + 3):
        context.train.report_training_metrics(steps_completed=step, metrics={"loss": 1 / step})
    context.train.report_validation_metrics(steps_completed=step, metrics={"loss": 1 / step})
    context.train.report_progress(step / 4)
    context.train.set_metadata({"runs": context.info.trial._trial_run_id})
    with context.checkpoint.store_path({"steps_completed": step}) as (path, key):
        (path / "steps").write_text(str(step))
answer([context.info.trial.experiment_id, context.info.trial.trial_id, begin, key])
"""


def test_a_program_elsewhere(client: Reference, truth: Master, tmp_path: Path) -> None:
    storage = tmp_path / "checkpoints"
    storage.mkdir()
    experiment, trial, begin, first = client.run(TRAIN, "paper-1", str(storage))
    assert begin == 0
    shown = truth.experiment(experiment)
    assert (shown.state, shown.name) == ("COMPLETED", "elsewhere")
    again, same, begin, second = client.run(TRAIN, "paper-1", str(storage))
    assert (again, same, begin) == (experiment, trial, 2)
    found = truth.trial(trial)
    assert (found.state, found.batches, found.hparams) == ("COMPLETED", 4, {"lr": 0.1})
    assert {checkpoint.uuid for checkpoint in truth.checkpoints(experiment)} == {first, second}
    text = client.det("trial", "logs", str(trial))
    assert "goes on from 2" in text
    rows: list[Any] = client.run(
        "t = client.get_trial(int(sys.argv[1]))\n"
        "answer([[m.steps_completed, m.metrics['loss']] for m in t.iter_metrics('training')])",
        str(trial),
    )
    assert rows == [[1, 1.0], [2, 0.5], [3, 1 / 3], [4, 0.25]]
