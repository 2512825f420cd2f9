"""The example plugin of docs/plugin-example: it keeps the contract, and a master runs a trial with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, make_folder, only_trial, remove_folder
from trainmaster.dispatchers.base import Dispatcher, Setup
from trainmaster.dispatchers.conformance import DispatcherConformance

EXAMPLE = Path(__file__).resolve().parent.parent.parent.parent / "docs" / "plugin-example"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the plugin into, as an administrator would into the master's environment."""
    target = tmp_path_factory.mktemp("plugin")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--target", str(target), str(EXAMPLE)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


class TestContract(DispatcherConformance):
    pool = "nohup"

    @pytest.fixture
    def setup(self, tmp_path: Path) -> Setup:
        return Setup(name="here", prefix="det-example-", job_root=tmp_path / "jobs", options={"slots": 8})

    @pytest.fixture
    def dispatcher(self, setup: Setup, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatcher]:
        monkeypatch.syspath_prepend(str(installed))
        from trainmaster_nohup import NohupDispatcher  # type: ignore[import-not-found]

        dispatcher = NohupDispatcher(setup)
        yield dispatcher
        dispatcher.close()


def test_a_master_runs_a_trial_with_it(installed: Path) -> None:
    folder = make_folder()
    environment = {"PYTHONPATH": str(installed)}
    process = MasterProcess(folder, "resource_manager: {type: nohup, slots: 2}\n", environment=environment)
    try:
        process.start()
        master = process.client()
        number = master.create_experiment(trainings.experiment(epochs=2), files(train__py=trainings.COUNTING)).id
        ended_as(master, number, "COMPLETED")
        assert only_trial(master, number).batches == 2
        assert process.errors() == []
    finally:
        process.clean_up()
        remove_folder(folder)
