"""`Session`: what the doors for frameworks do in a job, one call at a time."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.runtime.cluster_info import job
from trainmaster.core import CheckpointError
from trainmaster.core.info import RendezvousInfo, RuntimeInfo
from trainmaster.core.session import Session


class Job:
    """A job of one rank, with its storage and its spool below one folder."""

    def __init__(self, folder: Path, latest: str | None, config: Any) -> None:
        self.run_dir, self.store, self.spool = folder / "run", folder / "store", folder / "spool"
        for each in (self.run_dir, self.store, self.spool):
            each.mkdir()
        runtime = RuntimeInfo(
            run_dir=self.run_dir,
            spool=self.spool,
            checkpoint_storage={"type": "shared_fs", "host_path": str(self.store)},
            torch_port=1,
            distributed_port=2,
            slot_type="cpu",
        )
        rendezvous = RendezvousInfo(container_addrs=["127.0.0.1"], container_rank=0, container_slot_counts=[1])
        self.info = job(lr=1).replaced(latest_checkpoint=latest, runtime_info=runtime, rendezvous_info=rendezvous)
        self.info.trial._config.update(config)

    def reports(self, kind: str) -> list[Any]:
        records = [json.loads(line) for path in self.spool.glob("core*") for line in path.read_text().splitlines()]
        return [record for record in records if record["kind"] == kind]


@pytest.fixture
def in_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`in_job(latest checkpoint, searcher={...})`: this process is in a job."""

    def make(latest: str | None = None, **config: Any) -> Job:
        made = Job(tmp_path, latest, config)
        for module in ("context", "session"):
            monkeypatch.setattr(f"trainmaster.core.{module}.get_cluster_info", lambda: made.info)
        return made

    return make


@pytest.fixture
def begin() -> Iterator[Callable[[], Session]]:
    """`begin()`: a session of Keras, which is closed at the end."""
    made: list[Session] = []

    def make() -> Session:
        made.append(Session("keras", "3.15"))
        return made[-1]

    yield make
    for each in made:
        each.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged; no runtime runs beside these tests."""
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if "runtime of this node does not answer" not in message]


def test_everything_is_inert_outside_of_a_job(begin: Any, tmp_path: Path) -> None:
    session = begin()
    session.open()
    session.report_training(1, {"loss": 1.0})
    session.report_validation(1, {"loss": 1.0})
    session.check_searcher_metric()
    session.report_progress(1, 2)
    assert not session.active
    assert not session.asked_to_leave()
    assert session.save(tmp_path, 1) is None
    assert session.checkpoint() is None
    assert (session.latest, session.run_dir, session.seed) == (None, None, None)
    session.close()


def test_a_release_that_is_too_old_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match=r"trainmaster.keras works with keras 3.4 or newer, and this is 2.15.0: train"
    ):
        Session("keras", "2.15.0", lowest=(3, 4))
    for version in ("3.4", "3.4.0.dev1", "3.10.1", "4rc1"):
        Session("keras", version, lowest=(3, 4))


def test_reports_have_steps_groups_and_each_percent_once(begin: Any, in_job: Any) -> None:
    made = in_job()
    session = begin()
    session.report_training(2, {"loss": 0.5})
    session.report_training(2, {"speed": 3}, "summary")
    session.report_training(3, {})
    session.report_validation(3, {"val_loss": 0.25})
    for step in range(1001):
        session.report_progress(step, 1000)
    session.report_progress(1, 0)
    session.close()
    assert [(r["group"], r["steps_completed"], r["metrics"]) for r in made.reports("metrics")] == [
        ("training", 2, {"loss": 0.5}),
        ("summary", 2, {"speed": 3}),
        ("validation", 3, {"val_loss": 0.25}),
    ]
    assert [record["progress"] for record in made.reports("progress")] == [percent / 100 for percent in range(101)]


def test_numbers_that_are_none_are_said_once_and_reported(
    begin: Any, in_job: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made = in_job()
    session = begin()
    with caplog.at_level(logging.WARNING, "trainmaster.core"):
        for step in (1, 2):
            session.report_training(step, {"loss": float("nan"), "lr": 0.1})
    assert said(caplog) == ["metric 'loss' is NaN at step 1"]
    assert [record["metrics"]["loss"] for record in made.reports("metrics")] == ["NaN", "NaN"]


@pytest.mark.parametrize("name", ["adaptive_asha", "single"])
def test_a_metric_that_the_search_waits_for_in_vain(
    begin: Any, in_job: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    in_job(searcher={"name": name, "metric": "accuracy", "time_metric": "batches"})
    session = begin()
    session.check_searcher_metric()  # before any validation there is nothing to say
    session.report_validation(1, {"val_loss": 0.5, "batches": 1})
    sentence = (
        "the searcher waits for the metric 'accuracy', which keras does not report in a validation; it reports: "
        "batches, val_loss"
    )
    if name == "single":
        for _ in range(2):
            session.check_searcher_metric()
        assert said(caplog) == [sentence]
    else:
        with pytest.raises(ValueError, match=sentence):
            session.check_searcher_metric()


def test_a_metric_that_came_is_not_missed(begin: Any, in_job: Any) -> None:
    in_job(searcher={"name": "random", "metric": "val_loss"})
    session = begin()
    session.report_validation(1, {"val_loss": 0.5})
    session.check_searcher_metric()


def test_a_request_is_asked_for_and_the_process_ends_well(begin: Any, in_job: Any) -> None:
    made = in_job()
    session = begin()
    assert not session.asked_to_leave()
    (made.run_dir / "preempt").touch()
    assert session.asked_to_leave()
    assert session.asked_to_leave()
    assert len(made.reports("ack_preempt")) == 1
    with pytest.raises(SystemExit) as ended:
        session.leave()
    assert ended.value.code == 0


def test_a_checkpoint_says_who_wrote_it(begin: Any, in_job: Any, tmp_path: Path) -> None:
    made = in_job()
    (tmp_path / "checkpoint-5" / "inner").mkdir(parents=True)
    (tmp_path / "checkpoint-5" / "inner" / "weights").write_text("w")
    session = begin()
    uuid = session.save(tmp_path / "checkpoint-5", 5, {"best": "x"})
    assert uuid is not None
    (tmp_path / "last.ckpt").write_text("l")
    (tmp_path / "other.ckpt").write_text("not this one")
    single = session.save(tmp_path / "last.ckpt", 6)
    with session.store(7) as folder:
        (folder / "written").write_text("")
    first, second, third = made.reports("checkpoint")
    assert (first["uuid"], first["steps_completed"], second["uuid"]) == (uuid, 5, single)
    assert set(first["resources"]) == {"inner/", "inner/weights", "metadata.json"}
    assert set(second["resources"]) == {"last.ckpt", "metadata.json"}
    assert set(third["resources"]) == {"written", "metadata.json"}
    expected = {"best": "x", "steps_completed": 5, "framework": "keras", "framework_version": "3.15"}
    assert session.metadata_of(uuid) == expected
    assert session.folder_of(uuid) == made.store / uuid
    assert session.folder_of("gone") is None


def test_a_trial_continues_from_its_own_frameworks_checkpoint_only(
    begin: Any, in_job: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = in_job("first")
    session = begin()
    with pytest.raises(CheckpointError, match="checkpoint first, from which this trial continues, is gone"):
        session.checkpoint()
    (made.store / "first").mkdir()
    with pytest.raises(CheckpointError, match="checkpoint first was written by another program; keras cannot"):
        session.checkpoint()
    metadata = made.store / "first" / "metadata.json"
    metadata.write_text(json.dumps({"framework": "lightning", "framework_version": "2.6"}))
    with pytest.raises(CheckpointError, match="checkpoint first was written by lightning; keras cannot continue"):
        session.checkpoint()
    metadata.write_text(json.dumps({"framework": "keras", "framework_version": "3.14"}))
    assert session.checkpoint() == made.store / "first"
    assert said(caplog) == ["checkpoint first was written by keras 3.14; this is 3.15"]
