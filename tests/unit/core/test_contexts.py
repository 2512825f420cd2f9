"""Core outside of a job, and its contexts one by one."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from trainmaster import core
from trainmaster.core.distributed import single
from trainmaster.core.info import read_cluster_info
from trainmaster.core.preempt import PreemptContext
from trainmaster.core.profiler import mean, rates, read_counters
from trainmaster.core.searcher import SearcherContext
from trainmaster.core.tensorboard import TensorboardFiles
from trainmaster.core.values import Unstorable, storable, storable_metrics


def test_a_script_runs_unmodified_on_a_laptop(tmp_path: Path) -> None:
    assert core.get_cluster_info() is None
    with core.init(checkpoint_storage=str(tmp_path)) as ctx:
        assert ctx.info is None
        for op in ctx.searcher.operations():
            assert op.length == 1
            ctx.train.report_training_metrics(1, {"loss": 0.5})
            ctx.train.report_validation_metrics(1, {"loss": 0.5})
            op.report_progress(1)
            assert not ctx.preempt.should_preempt()
            op.report_completed(0.5)
        (tmp_path / "model").mkdir()
        uuid = ctx.checkpoint.upload(tmp_path / "model", {})
        assert ctx.checkpoint.get_metadata(uuid) == {}
        assert ctx.train.get_experiment_best_validation() is None
        ctx.train.upload_tensorboard_files()
        ctx.profiler.on()
        ctx.alert("title", "text")


def test_a_foreign_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["MASTER", "CLUSTER_ID", "AGENT_ID", "TASK_ID", "ALLOCATION_ID", "SESSION_TOKEN", "TASK_TYPE"]
    for name in names:
        monkeypatch.setenv("DET_" + name, "x")
    monkeypatch.setenv("DET_SLOT_IDS", "[0, 3]")
    monkeypatch.setenv("DET_RUN_DIR", "/nonexistent")
    info = core.get_cluster_info()
    assert info is not None
    assert info.slot_ids == [0, 3]
    with pytest.raises(RuntimeError, match="no trial"):
        _ = info.trial
    with pytest.raises(RuntimeError, match="was not started by trainmaster"):
        core.init()


def test_cluster_info_needs_all_variables() -> None:
    assert read_cluster_info({"DET_MASTER": "http://m"}) is None


class Tensor:
    def __init__(self, value: Any, shape: Any = ()) -> None:
        self.value, self.shape = value, shape

    def item(self) -> Any:
        if self.shape:
            raise ValueError("only one element tensors can be converted")
        return self.value

    def tolist(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (1, 1),
        (True, True),
        (None, None),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (Tensor(2.0), 2.0),
        (Tensor(math.nan), "NaN"),
        (Tensor([1, math.inf], shape=(2,)), [1, "Infinity"]),
        ({"a": (1, [2.5])}, {"a": [1, [2.5]]}),
        ({1: 2}, {"1": 2}),
    ],
)
def test_values_become_json(value: Any, stored: Any) -> None:
    assert storable(value) == stored


def test_values_that_cannot_be_stored_are_dropped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert storable_metrics({"a": 1, "b": object(), "c": cycle}) == {"a": 1}
    assert [record.args[0] for record in caplog.records] == ["b", "c"]  # type: ignore[index]
    with pytest.raises(Unstorable):
        storable({1, 2})
    for bad in ({"": 1}, {1: 1}, [1]):
        with pytest.raises(ValueError, match="metric"):
            storable_metrics(bad)  # type: ignore[arg-type]


def test_wrong_reports_are_refused() -> None:
    with core.init() as ctx:
        for call, words in [
            (lambda: ctx.train.report_metrics("a.b", 1, {}), "without dots"),
            (lambda: ctx.train.report_metrics("", 1, {}), "without dots"),
            (lambda: ctx.train.report_training_metrics(-1, {}), "from 0"),
            (lambda: ctx.train.report_validation_metrics(2**63, {}), "2\\*\\*63 - 1, it is 9223372036854775808"),
            (lambda: ctx.train.report_training_metrics(1, {"epoch": "two"}), "'epoch' must be a number"),
            (lambda: ctx.train.report_progress(1.5), "between 0 and 1"),
            (lambda: ctx.train.report_progress(math.nan), "between 0 and 1"),
            (lambda: ctx.train.report_early_exit("BORED"), "BORED"),  # type: ignore[arg-type]
            (lambda: ctx.alert("x", level="loud"), "level"),
        ]:
            with pytest.raises(ValueError, match=words):
                call()  # type: ignore[no-untyped-call]


class Records(list[Any]):
    def add(self, kind: Any, **fields: Any) -> None:
        self.append((kind, fields))

    def wait_for_decision(self) -> None:
        self.append(("settle", {}))


def test_the_flag_is_seen_and_acknowledged_once(tmp_path: Path) -> None:
    records = Records()
    preempt = PreemptContext(single(), core.PreemptMode.WorkersAskChief, tmp_path, records)  # type: ignore[arg-type]
    assert not preempt.should_preempt()
    (tmp_path / "preempt").write_text('{"reason": "x"}')
    assert preempt.should_preempt(auto_ack=False)
    assert not (tmp_path / "preempt_acked").exists()
    assert preempt.should_preempt()
    assert preempt.should_preempt()
    assert (tmp_path / "preempt_acked").exists()
    assert [kind for kind, _ in records if kind != "settle"] == ["ack_preempt"]


class Worker:
    rank = 1

    def __init__(self, chiefs_word: Any) -> None:
        self.chiefs_word = chiefs_word

    def broadcast(self, stuff: Any) -> Any:
        return self.chiefs_word


def test_workers_by_mode(tmp_path: Path) -> None:
    (tmp_path / "preempt").write_text("{}")
    assert not PreemptContext(Worker(False), core.PreemptMode.WorkersAskChief, tmp_path).should_preempt()  # type: ignore[arg-type]
    assert PreemptContext(Worker(False), core.PreemptMode.WorkersAskMaster, tmp_path).should_preempt()  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="ChiefOnly"):
        PreemptContext(Worker(False), core.PreemptMode.ChiefOnly, tmp_path).should_preempt()  # type: ignore[arg-type]


def searcher(config: Any, run_dir: Any = None, records: Any = None, distributed: Any = None) -> Any:
    distributed = distributed or single()
    preempt = PreemptContext(distributed, core.PreemptMode.WorkersAskChief, run_dir, records)
    return SearcherContext(config, distributed, preempt, records)


def test_the_length_of_the_operation() -> None:
    for config, length, unit in [
        ({"max_length": 7}, 7, None),
        ({"max_length": {"batches": 100}}, 100, core.Unit.BATCHES),
        ({"max_time": 16, "time_metric": "epochs"}, 16, core.Unit.EPOCHS),
        ({"max_time": 16, "time_metric": "steps"}, 16, None),
    ]:
        context = searcher(config)
        for op in context.operations():
            assert op.length == length
            op.report_completed(1)
        assert context.get_configured_units() is unit
    with pytest.raises(ValueError, match="neither max_length nor max_time"):
        next(searcher({}).operations())


def test_operations_are_checked(tmp_path: Path) -> None:
    records = Records()
    operations = searcher({"max_length": 4}, tmp_path, records).operations()
    op = next(operations)
    op.report_progress(2)
    assert ("progress", {"progress": 0.5}) in records
    with pytest.raises(RuntimeError, match="report_completed\\(\\) was not called"):
        next(operations)
    for bad in ("high", {"loss": 1}, None):
        with pytest.raises(ValueError, match="metric"):
            op.report_completed(bad)
    op.report_completed(Tensor(0.5).item())
    with pytest.raises(RuntimeError, match="twice"):
        op.report_completed(1)
    with pytest.raises(RuntimeError, match="after report_completed"):
        op.report_progress(1)


def test_operations_of_a_training_that_must_leave(tmp_path: Path) -> None:
    (tmp_path / "preempt").write_text("{}")
    records = Records()
    assert list(searcher({"max_length": 4}, tmp_path, records).operations()) == []
    assert ("ack_preempt", {}) in records
    assert list(searcher({"max_length": 4}, distributed=Worker(True)).operations()) == []
    worker = searcher({"max_length": 4}, distributed=Worker(False))
    (op,) = list(worker.operations())
    with pytest.raises(RuntimeError, match="chief only"):
        op.report_completed(1)
    with pytest.raises(RuntimeError, match="ChiefOnly"):
        next(worker.operations(core.SearcherMode.ChiefOnly))


def test_tensorboard_files_are_copied_when_they_change(tmp_path: Path) -> None:
    files = TensorboardFiles(tmp_path / "local", tmp_path / "target", rank=2)
    files.upload()
    (tmp_path / "local" / "sub").mkdir(parents=True)
    event = tmp_path / "local" / "sub" / "events.1"
    event.write_text("one")
    (tmp_path / "local" / "notes").write_text("n")
    files.upload(lambda path: path.name != "notes", lambda path, rank: path.with_name(f"{path.name}-{rank}"))
    copied = tmp_path / "target" / "sub" / "events.1-2"
    assert copied.read_text() == "one"
    assert [path.name for path in (tmp_path / "target").rglob("*") if path.is_file()] == ["events.1-2"]
    event.write_text("one two")
    files.upload()
    assert (tmp_path / "target" / "sub" / "events.1").read_text() == "one two"


def test_folders_of_event_files_let_other_accounts_make_theirs(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    shared = [tmp_path, tmp_path / "cluster", tmp_path / "cluster" / "tensorboard"]
    target = shared[-1] / "1" / "trial" / "2"
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "events").write_text("one")
    before = os.umask(0o022)
    try:
        TensorboardFiles(tmp_path / "local", target, 0, shared).upload()
    finally:
        os.umask(before)
    assert (target / "events").read_text() == "one"
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in shared] == [0o1777] * 3
    assert stat.S_IMODE((shared[-1] / "1").stat().st_mode) == 0o700
    if os.geteuid() == 0:
        os.chown(shared[-1] / "1", 4711, 4711)
        with pytest.raises(PermissionError, match="belongs to another account"):
            TensorboardFiles(tmp_path / "local", target, 0, shared).upload()


def test_the_profiler_reads_this_machine() -> None:
    before = read_counters()
    after = read_counters()
    measured = rates(before, {**after, "time": before["time"] + 1.0})
    assert 0 <= measured["cpu"]["cpu_util_simple"] <= 100
    assert measured["memory"]["memory_free"] > 0
    assert measured["network"].keys() == {"net_throughput_sent", "net_throughput_recv"}
    assert mean([{"g": {"m": 1.0}}, {"g": {"m": 3.0}, "h": {"n": 1.0}}]) == {"g": {"m": 2.0}, "h": {"n": 1.0}}


def test_the_profiler_reports_means(tmp_path: Path) -> None:
    records = Records()
    profiler = core.ProfilerContext("n0", records)  # type: ignore[arg-type]
    profiler.on(sampling_interval=0.1, samples_per_report=1)
    from tests.support.runtime.waiting import until

    until(lambda: len(records) >= 6)
    profiler.off()
    groups = [fields["group"] for _, fields in records]
    assert {"cpu", "memory", "network"} <= set(groups)
    assert all(set(fields["metrics"]) == {"n0"} for _, fields in records)
    with pytest.raises(ValueError, match="sampling_interval"):
        profiler.on(sampling_interval=0)
