"""What trainings report, print and save arrives whole, or they and their users learn why not: on real jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, validations, wait_ended, wait_for
from trainmaster.client.artifacts import Checkpoint
from trainmaster.client.checkpoint_files import Way
from trainmaster.client.master import Master


def run(master: Master, script: str, searcher: str = "{name: single, metric: loss}", **keys: object) -> int:
    """The experiment's number, once it has ended."""
    rest = "".join(f"{key}: {json.dumps(value)}\n" for key, value in {"max_restarts": 0, **keys}.items())
    text = f"name: kept\nentrypoint: python3 train.py\nsearcher: {searcher}\n{rest}"
    number = master.create_experiment(text, files(train__py=script)).id
    wait_ended(master, number)
    return number


# -- steps --------------------------------------------------------------------------------------------------------

TOKENS = """
from trainmaster import core
with core.init() as context:
    for n in range(1, 5):
        tokens = n * 1_000_000_000
        context.train.report_validation_metrics(tokens, {"loss": 1 / n, "tokens": tokens})
        if context.preempt.should_preempt():
            break
"""


def test_a_search_counts_tokens_beyond_32_bits(local: MasterProcess) -> None:
    master = local.client()
    halving = "{name: async_halving, metric: loss, max_trials: 1, num_rungs: 2, divisor: 2, time_metric: tokens, "
    number = run(master, TOKENS, halving + "max_time: 4000000000}")
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert trial.batches == 4_000_000_000
    assert validations(master, [trial.id])[trial.id] == [n * 1_000_000_000 for n in range(1, 5)]


UNKEPT = """
from trainmaster import core
with core.init() as context:
    for call in (
        lambda: context.train.report_training_metrics(2**63, {"loss": 1}),
        lambda: context.train.report_training_metrics(1, {"n" * 1001: 1}),
        lambda: context.train.report_training_metrics(1, {"loss": list(range(100_001))}),
        lambda: context.checkpoint.upload(".", {"steps_completed": 2**63}),
    ):
        try:
            call()
        except ValueError as error:
            print("REFUSED", error)
    context.train.report_validation_metrics(2**63 - 1, {"loss": 1})
"""


def test_unstorable_values_are_refused_in_training(local: MasterProcess) -> None:
    master = local.client()
    number = run(master, UNKEPT)
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    log = log_text(master, trial.id)
    assert log.count("REFUSED") == 4, log
    assert trial.batches == 2**63 - 1
    assert "refused for good" not in log


# -- metrics that are awaited -------------------------------------------------------------------------------------

TYPO = """
from trainmaster import core
with core.init() as context:
    for step in (1, 2, 3):
        context.train.report_validation_metrics(step, {"val_loss": 1 / step})
"""
HYPERPARAMETERS = {"lr": {"type": "double", "minval": 0, "maxval": 1, "count": 1}}
SEARCHERS = [
    "{name: single, metric: loss}",
    "{name: random, metric: loss, max_trials: 1}",
    "{name: grid, metric: loss}",
    "{name: async_halving, metric: loss, max_trials: 1, num_rungs: 1, time_metric: epochs, max_time: 3}",
    "{name: adaptive_asha, metric: loss, max_trials: 1, time_metric: epochs, max_time: 3}",
]


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_every_searcher_logs_that_its_metric_is_missing(local: MasterProcess, searcher: str) -> None:
    master = local.client()
    log = log_text(master, only_trial(master, run(master, TYPO, searcher, hyperparameters=HYPERPARAMETERS)).id)
    assert "The validation has no metric loss (its metrics: val_loss)" in log
    assert ("searcher.time_metric names" in log) == ("time_metric" in searcher)
    assert "The trial never reported the validation metric loss" in log


def test_a_trial_without_validations_logs_that_too(local: MasterProcess) -> None:
    master = local.client()
    log = log_text(master, only_trial(master, run(master, "print('done')")).id)
    assert "which the search waits for (it reported no validation)" in log


# -- checkpoints --------------------------------------------------------------------------------------------------

LINKED = """
import os
from trainmaster import core
with core.init() as context:
    os.makedirs("out/global_step10/empty")
    open("out/global_step10/model.bin", "w").write("weights")
    os.symlink("global_step10", "out/latest")
    os.link("out/global_step10/model.bin", "out/hard.bin")
    os.symlink("hard.bin", "out/last.ckpt")
    os.symlink(".", "out/loop")
    uuid = context.checkpoint.upload("out", {"steps_completed": 1})
    context.train.report_validation_metrics(1, {"loss": 1})
    with context.checkpoint.restore_path(uuid) as path:
        print("SEEN", open(os.path.join(path, "latest/model.bin")).read(), os.readlink(os.path.join(path, "latest")))
"""
RESOURCES = {
    "global_step10/": 0,
    "global_step10/empty/": 0,
    "global_step10/model.bin": 7,
    "latest/": 0,
    "latest/empty/": 0,
    "latest/model.bin": 7,
    "hard.bin": 7,
    "last.ckpt": 7,
}


def test_checkpoint_with_links_is_listed_downloaded_and_thinned(local: MasterProcess, tmp_path: Path) -> None:
    master = local.client()
    number = run(master, LINKED)
    assert "SEEN weights global_step10" in log_text(master, only_trial(master, number).id)
    (checkpoint,) = master.checkpoints(number)
    assert {k: v for k, v in checkpoint.resources.items() if k != "metadata.json"} == RESOURCES
    for way in (Way.DIRECT, Way.MASTER):
        folder = checkpoint.download(tmp_path / way.value, way)
        links = {name: os.readlink(folder / name) for name in ("latest", "last.ckpt", "loop")}
        assert links == {"latest": "global_step10", "last.ckpt": "hard.bin", "loop": "."}
        assert (folder / "latest" / "model.bin").read_text() == (folder / "last.ckpt").read_text() == "weights"
        assert (folder / "global_step10" / "empty").is_dir()
    master.edits.remove_checkpoint_files([checkpoint.uuid], ["hard.bin", "global_step10/empty"])
    left = wait_for(lambda: _thinned(checkpoint), "its files to be removed")
    assert left.keys() == {
        *("global_step10/", "global_step10/model.bin", "latest/", "latest/model.bin"),
        *("last.ckpt", "loop", "metadata.json"),
    }


def _thinned(checkpoint: Checkpoint) -> dict[str, int] | None:
    found = checkpoint.reload()
    return dict(found.resources) if "hard.bin" not in found.resources else None


# -- text ---------------------------------------------------------------------------------------------------------

PRINTED = "import sys; sys.stdout.buffer.write('好'.encode() * 30000 + b'\\n')"


def test_every_character_of_a_long_line_is_in_the_log(local: MasterProcess) -> None:
    master = local.client()
    assert log_text(master, only_trial(master, run(master, PRINTED)).id).count("好") == 30_000
