"""User code that reports through core, in real jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.process.runtime.test_whole_job import archive

TRAIN = """
import math, pathlib
import determined as det
from trainmaster import core

class Scalar:
    shape = ()
    def item(self):
        return 2.5

info = core.get_cluster_info()
assert info.trial.hparams == {"lr": 0.1, "layers": [1, 2]}
assert info.container_addrs == ["127.0.0.1"] and info.container_rank == 0
assert info.slot_ids == [0, 1] and info.container_slot_counts == [2]
assert det.get_cluster_info() == info and det.core.init is core.init
assert "tok-" not in repr(info)
with det.core.init() as ctx:
    ctx.train.set_status("warming up")
    for step in (1, 2, 3):
        ctx.train.report_training_metrics(step, {"loss": 1.0 / step, "bad": math.nan, "scalar": Scalar()})
        ctx.train.report_validation_metrics(step, {"accuracy": step / 10, "odd": object()})
        ctx.train.report_progress(step / 3)
    with ctx.checkpoint.store_path({"steps_completed": 3}) as (path, uuid):
        (path / "weights").mkdir()
        (path / "weights" / "w.bin").write_bytes(b"12345")
    assert ctx.checkpoint.get_metadata(uuid) == {"steps_completed": 3}
    with ctx.checkpoint.restore_path(uuid) as path:
        assert (path / "weights" / "w.bin").read_bytes() == b"12345"
    print("uuid", uuid)
    assert not ctx.preempt.should_preempt()
"""


def test_reports_reach_the_master_in_order_with_their_values(stage: Any, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    storage = {"type": "shared_fs", "host_path": str(store), "storage_path": "a/b"}
    job, master = stage(
        "python3 train.py",
        context=archive(**{"train.py": TRAIN}),
        work={"checkpoint_storage": storage},
    )
    status, output = job.run()
    assert status == 0, output + "\n".join(master.lines())
    metrics = master.kinds("metrics")
    assert [(m["group"], m["steps_completed"]) for m in metrics] == [
        (group, step) for step in (1, 2, 3) for group in ("training", "validation")
    ]
    assert metrics[0]["metrics"] == {"loss": 1.0, "bad": "NaN", "scalar": 2.5}
    assert metrics[1]["metrics"] == {"accuracy": 0.1}
    assert any("'odd' is not reported" in line for line in master.lines())
    assert [record["progress"] for record in master.kinds("progress")] == [1 / 3, 2 / 3, 1.0]
    assert master.kinds("status")[0]["state"] == "warming up"
    (checkpoint,) = master.kinds("checkpoint")
    assert checkpoint["resources"].items() >= {"weights/": 0, "weights/w.bin": 5}.items()
    assert checkpoint["storage"] == storage
    folder = store / "a" / "b" / checkpoint["uuid"]
    assert json.loads((folder / "metadata.json").read_text()) == {"steps_completed": 3}
    assert checkpoint["resources"]["metadata.json"] == (folder / "metadata.json").stat().st_size
    assert job.exit_record()["spool"]["core"] == len(master.streams["core"])


SEARCH = """
from trainmaster import core

with core.init() as ctx:
    for op in ctx.searcher.operations():
        for epoch in range(1, op.length + 1):
            ctx.train.report_validation_metrics(epoch, {"accuracy": 0.1})
            op.report_progress(epoch)
            if ctx.preempt.should_preempt():
                print("left after", epoch)
                raise SystemExit(0)
        op.report_completed(0.1)
"""


def stop_at(step: Any) -> Any:
    def decide(master: Any, stream: Any, record: Any) -> None:
        if record.get("kind") == "metrics" and record["steps_completed"] == step:
            master.preempt = "early stop"

    return decide


def test_a_searchers_decision_is_seen_by_the_very_next_look(stage: Any) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": SEARCH}))
    master.decide = stop_at(3)
    status, output = job.run()
    assert status == 0, output
    assert "left after 3" in master.lines()
    assert [m["steps_completed"] for m in master.kinds("metrics")] == [1, 2, 3]
    assert len(master.kinds("ack_preempt")) == 1
    record = job.exit_record()
    assert record["preempted"] == {"reason": "early stop"}
    assert record["preempt_acked"]


def test_the_decision_is_seen_even_when_the_master_is_slow(stage: Any) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": SEARCH}))
    master.decide = stop_at(2)
    master.delay = 0.4
    status, _ = job.run()
    assert status == 0
    assert "left after 2" in master.lines()


def test_operations_run_to_max_length_without_preemption(stage: Any) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": SEARCH}))
    status, _ = job.run()
    assert status == 0
    assert len(master.kinds("metrics")) == 10
    assert master.kinds("progress")[-1]["progress"] == 1.0
    assert job.exit_record()["preempted"] is None


def test_training_does_not_begin_when_already_preempted(stage: Any) -> None:
    job, master = stage("echo began", work={"preempt": {"reason": "paused"}})
    status, _ = job.run()
    assert status == 0
    assert "began" not in master.lines()
    assert job.exit_record()["preempted"] == {"reason": "paused"}
    assert job.exit_record()["preempt_acked"]
