"""A dispatcher of another package: found by its entry point, with options, refusals and traits of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, make_folder, only_trial, remove_folder
from tests.support.visible_plugins import visible
from trainmaster.client.errors import APIError
from trainmaster.config.master import parse_master
from trainmaster.config.messages import ConfigError
from trainmaster.dispatchers.base import Dispatcher, Setup
from trainmaster.dispatchers.conformance import WORD, DispatcherConformance, Faults

PACKAGE = Path(__file__).resolve().parent / "lsf"


class TestContract(DispatcherConformance):
    pool = "normal"

    @pytest.fixture
    def setup(self, tmp_path: Path) -> Setup:
        (tmp_path / "spool").mkdir()
        options = {"bin": str(PACKAGE / "bin"), "envdir": str(tmp_path / "spool"), "queues": {"normal": 8}}
        return Setup(name="here", prefix="det-lsf-", job_root=tmp_path / "job root", options=options)

    @pytest.fixture
    def dispatcher(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatcher]:
        monkeypatch.syspath_prepend(str(PACKAGE))
        from trainmaster_lsf import LsfDispatcher  # type: ignore[import-not-found]

        dispatcher = LsfDispatcher(setup)
        yield dispatcher
        dispatcher.close()

    @pytest.fixture
    def faults(self, tmp_path: Path) -> Faults:
        spool = tmp_path / "spool"

        @contextmanager
        def day(what: str) -> Iterator[None]:
            (spool / what).write_text(WORD)
            yield
            (spool / what).unlink()

        return Faults(
            away=lambda: day("away"),
            unanswered=lambda: day("unanswered"),
            purge=lambda ref: (spool / ref.job_id / "purged").touch(),
            strange=lambda: day("strange"),
            noisy=lambda: day("noisy"),
        )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    made = make_folder()
    (made / "spool").mkdir()
    yield made
    remove_folder(made)


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[MasterProcess]:
    config = f"""
resource_manager:
  type: lsf
  bin: {PACKAGE / "bin"}
  envdir: {folder / "spool"}
  queues: {{normal: 2, long: 4}}
  poll_interval: 0.5
task_container_defaults: {{lsf: {{bsub_args: [-W 30]}}}}
"""
    process = MasterProcess(folder, config, environment={"PYTHONPATH": str(PACKAGE)})
    try:
        process.start()
        yield process
        assert process.errors() == []
    finally:
        process.clean_up()


def asked(folder: Path) -> list[list[str]]:
    """The words of each bsub."""
    return [json.loads(facts.read_text())["argv"] for facts in sorted((folder / "spool").glob("*/facts"))]


def test_an_experiment_speaks_to_it_in_its_own_words(process: MasterProcess, folder: Path) -> None:
    master = process.client()
    text = trainings.experiment(epochs=2, keys={"lsf": {"bsub_args": ["-R mem=100"], "project": "vision"}})
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    ended_as(master, number, "COMPLETED")
    assert only_trial(master, number).batches == 2
    (words,) = asked(folder)
    # The site's options come first, the user's behind them.
    assert words[words.index("-W") :] == ["-W", "30", "-R", "mem=100", "-P", "vision"]
    assert [pool["name"] for pool in master.pools()] == ["normal", "long"]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"bsub_arg": []}, "lsf.bsub_arg: unknown key; did you mean bsub_args?"),
        ({"bsub_args": "-W 5"}, "lsf.bsub_args: a list is wanted, found the text '-W 5'"),
        ({"bsub_args": ["-K"]}, "lsf.bsub_args may hold -W MINUTES and -R REQUIREMENT, not '-K'."),
        ({"project": "v" * 60}, "LSF takes project names of 59 characters"),
        ({"project": "a;b"}, "LSF does not take ';' in 'a;b'."),
    ],
)
def test_invalid_job_options_are_refused_in_dispatchers_words(
    process: MasterProcess, section: dict[str, object], says: str
) -> None:
    with pytest.raises(APIError) as refused:
        process.client().create_experiment(trainings.experiment(keys={"lsf": section}), files(train__py="pass"))
    assert says in str(refused.value)


def test_dispatcher_section_is_checked_by_its_own_model() -> None:
    text = "resource_manager:\n  type: lsf\n  bin: /opt/lsf/bin\n  envdr: /etc\n  queues: {normal: 0}\n"
    with visible(PACKAGE), pytest.raises(ConfigError) as refused:
        parse_master(text, source="m.yaml")
    assert [str(complaint) for complaint in refused.value.complaints] == [
        "m.yaml:1: resource_manager.envdir: is required",
        "m.yaml:4: resource_manager.envdr: unknown key; did you mean envdir?",
        "m.yaml:5: resource_manager.queues.normal: must be at least 1, found 0",
    ]
