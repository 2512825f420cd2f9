"""A search starts from what the experiment configuration makes of a file."""

from __future__ import annotations

import pytest

from trainmaster.config.experiment import parse_experiment
from trainmaster.master.search import Create, Search, simulate

SPACE = """
hyperparameters:
  lr: {type: log, base: 10, minval: -4, maxval: 0, count: 3}
  net: {width: {type: int, minval: 1, maxval: 8, count: 2}, act: {type: categorical, vals: [relu, [1, 2]]}}
  batch: 64
entrypoint: python3 train.py
checkpoint_storage: {type: shared_fs, host_path: /ckpt}
"""


@pytest.mark.parametrize(
    ("searcher", "first", "preview"),
    [
        ("{name: single, metric: m}", 1, [(1, None)]),
        ("{name: random, metric: m, max_trials: 9, max_concurrent_trials: 4}", 4, [(9, None)]),
        ("{name: grid, metric: m, max_concurrent_trials: 0}", 12, [(12, None)]),
        (
            "{name: adaptive_asha, metric: m, max_trials: 16, max_time: 16, time_metric: epochs}",
            12,  # eight places a bracket, and the second has four trials
            [(9, 1), (5, 4), (2, 16)],
        ),
        (
            "{name: async_halving, metric: m, max_trials: 16, max_time: 16, time_metric: epochs, num_rungs: 2}",
            16,
            [(12, 4), (4, 16)],
        ),
    ],
)
def test_every_searcher(searcher: str, first: int, preview: list[tuple[int, int | None]]) -> None:
    config = parse_experiment(SPACE + f"searcher: {searcher}\n").to_json()
    _, actions = Search.start(config["searcher"], config["hyperparameters"], 5)
    assert len(actions) == first
    for action in actions:
        assert isinstance(action, Create)
        assert set(action.hparams) == {"lr", "net", "batch"}
        assert set(action.hparams["net"]) == {"width", "act"}
        assert action.hparams["batch"] == 64
    assert simulate(config["searcher"], config["hyperparameters"]) == preview
