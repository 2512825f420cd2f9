"""One master for all tests of `det`, with one finished search for the verbs that only read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.det_shell import Shell
from tests.support.master import MasterProcess, files, serving, wait_ended
from trainmaster.client.master import Master
from trainmaster.client.models import Trial

CONFIG = "resource_manager: {type: local, slots: 4, poll_interval: 0.3}\n"


@pytest.fixture(scope="package")
def process() -> Iterator[MasterProcess]:
    with serving(CONFIG) as process:
        yield process


@pytest.fixture(scope="package")
def rbac_master() -> Iterator[MasterProcess]:
    """A master with roles (`authz: rbac`)."""
    with serving(f"security: {{authz: {{type: rbac}}}}\n{CONFIG}") as process:
        yield process


@pytest.fixture(scope="package")
def api(process: MasterProcess) -> Master:
    """A client to check what `det` did."""
    return process.client()


@pytest.fixture
def shell(process: MasterProcess, tmp_path: Path) -> Shell:
    """Logged in through the environment; its folder is empty."""
    home, cwd = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    cwd.mkdir()
    return Shell(home, cwd, DET_MASTER=process.url, DET_USER="determined", DET_PASS=process.password)


@dataclass(frozen=True)
class Finished:
    """A search of two trials that has ended, its name in two scripts."""

    id: int
    name: str
    trials: list[Trial]


@pytest.fixture(scope="package")
def finished(api: Master) -> Finished:
    searcher = {"name": "random", "metric": "error", "max_trials": 2}
    value = {"type": "double", "minval": 1.0, "maxval": 2.0}
    name = "Ziffern 数字"
    text = trainings.experiment(searcher, value=value, epochs=4, keys={"name": name, "labels": ["a", "b"]})
    number = api.create_experiment(text, files(train__py=trainings.COUNTING)).id
    assert wait_ended(api, number).state == "COMPLETED"
    return Finished(number, name, api.trials(number))  # type: ignore[arg-type]


@pytest.fixture
def long_config(shell: Shell) -> Path:
    """`long.yaml` and `train.py` in the shell's folder: a trial of ten minutes unless it is asked to leave."""
    (shell.cwd / "train.py").write_text(trainings.COUNTING)
    path = shell.cwd / "long.yaml"
    path.write_text(trainings.experiment(epochs=6000, pause=0.1))
    return path
