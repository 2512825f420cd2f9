"""`apply_hparams()`: hyperparameters reach a script's own arguments, whatever holds them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.runtime.cluster_info import job
from trainmaster.core import apply_hparams


@pytest.fixture
def in_job(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**hparams: Any) -> None:
        monkeypatch.setattr("trainmaster.core.hparams.get_cluster_info", lambda: job(**hparams))

    return make


@dataclass
class Arguments:
    learning_rate: float = 0.5
    batch_size: int = 8
    schedule: str = "linear"
    seed: int = 1
    steps: int = field(init=False)  # derived from another

    def __post_init__(self) -> None:
        self.steps = 1000 // self.batch_size


def test_a_dict_gets_all_hyperparameters_and_nested_ones_are_merged(in_job: Any) -> None:
    in_job(lr="1e-3", optimizer={"momentum": 1}, new=[1, 2])
    mine = {"lr": 0.5, "optimizer": {"momentum": 0.9, "nesterov": True}, "seed": 0}
    assert apply_hparams(mine) == {
        "lr": 0.001,
        "optimizer": {"momentum": 1.0, "nesterov": True},
        "seed": 42,
        "new": [1, 2],
    }
    assert mine["lr"] == 0.5


def test_a_namespace_and_a_dataclass_get_those_that_they_have(in_job: Any) -> None:
    in_job(learning_rate="1e-3", batch_size=32.0, schedule="cosine", unknown=1)
    changed = apply_hparams(Namespace(learning_rate=0.5, batch_size=8, other="x"))
    assert changed == Namespace(learning_rate=0.001, batch_size=32, other="x")
    assert isinstance(changed.batch_size, int)
    mine = Arguments()
    assert apply_hparams(mine) == Arguments(0.001, 32, "cosine", seed=42)
    assert apply_hparams(mine).steps == 31
    assert mine == Arguments()


def test_a_call_gets_what_it_takes(in_job: Any) -> None:
    class Module:
        def __init__(self, width: int, lr: float = 0.5, *, depth: int = 2) -> None: ...

    in_job(width=64.0, lr=1, unknown=1)
    assert apply_hparams(Module, width=8, depth=3) == {"width": 64, "lr": 1.0, "depth": 3}

    def seed_everything(seed: int | None = None) -> None: ...

    assert apply_hparams(seed_everything, seed=7) == {"seed": 42}
    assert apply_hparams(lambda **anything: None, other=1) == {"other": 1}


def test_an_experiments_own_seed_wins_over_the_trials(in_job: Any) -> None:
    in_job(seed=5)
    assert apply_hparams(Arguments()).seed == 5
    assert apply_hparams({"seed": 0}) == {"seed": 5}


def test_values_that_are_no_numbers_stay_as_they_are(in_job: Any) -> None:
    in_job(batch_size="auto", learning_rate="fast", schedule=3, bias=True)
    changed = apply_hparams({"batch_size": 8, "learning_rate": 0.1, "schedule": "linear", "bias": 1})
    assert changed == {"batch_size": "auto", "learning_rate": "fast", "schedule": 3, "bias": True}
    in_job(batch_size=0.5)
    assert apply_hparams({"batch_size": 8}) == {"batch_size": 0.5}


def test_outside_of_a_job_nothing_changes() -> None:
    arguments = Arguments()
    assert apply_hparams(arguments) is arguments
    assert apply_hparams({"lr": 1}) == {"lr": 1}
    assert apply_hparams(Namespace(lr=1)) == Namespace(lr=1)
    assert apply_hparams(Arguments, batch_size=2) == {"batch_size": 2}


def test_what_cannot_take_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match=r"takes a dict, a Namespace of argparse, a dataclass, .*, not a int"):
        apply_hparams(3)
    with pytest.raises(TypeError, match="keyword arguments only for a class or function"):
        apply_hparams({"lr": 1}, lr=2)
