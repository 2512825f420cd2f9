"""The master vanishes, comes back, moves, refuses."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.process.runtime.test_whole_job import archive
from tests.support.runtime.master import FakeMaster
from tests.support.runtime.waiting import until
from trainmaster.runtime import reporting

STEPS = """
import os, time
from trainmaster import core

folder = os.environ["TEST_FOLDER"]
with core.init() as ctx:
    for step in range(1, 31):
        ctx.train.report_training_metrics(step, {"loss": step})
        print("step", step)
        if step == 10:
            open(folder + "/ten", "w").close()
            while not os.path.exists(folder + "/go"):
                time.sleep(0.01)
        assert not ctx.preempt.should_preempt()
"""


def test_reports_are_replayed_once_in_order_after_outage(stage: Any, tmp_path: Path) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": STEPS}))
    process = job.start(TEST_FOLDER=str(tmp_path))
    master.wait(lambda: len(master.kinds("metrics")) == 10)
    master.vanish()
    until(lambda: any("reports wait on disk" in record.get("line", "") for record in job.spool("log-0")))
    (tmp_path / "go").touch()
    until(lambda: len(job.spool("core")) == 30)
    assert len(master.kinds("metrics")) == 10
    master.come()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert [m["steps_completed"] for m in master.kinds("metrics")] == list(range(1, 31))
    assert [line for line in master.lines() if line.startswith("step")] == [f"step {n}" for n in range(1, 31)]
    assert master.exits[0] == job.exit_record()
    assert any("reports wait on disk" in line for line in master.lines(source="runtime"))


def test_an_answer_that_got_lost_does_not_double_a_record(stage: Any, tmp_path: Path) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": STEPS}))

    vanished = threading.Event()

    def cut(the_master: Any, stream: Any, record: Any) -> None:
        # The record is kept, but the runtime never hears so.
        if stream == "core" and record.get("steps_completed") == 10 and the_master._server is not None:
            the_master.vanish()
            vanished.set()
            raise ConnectionAbortedError

    master.decide = cut
    process = job.start(TEST_FOLDER=str(tmp_path))
    until((tmp_path / "ten").exists)
    assert vanished.wait(60)
    master.decide = lambda *_: None
    master.come()
    (tmp_path / "go").touch()
    assert process.wait(60) == 0
    assert [m["steps_completed"] for m in master.kinds("metrics")] == list(range(1, 31))


def test_a_master_that_asks_to_wait_is_not_called_before(stage: Any, tmp_path: Path) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": STEPS}))
    calls = []

    def answer(verb: Any, path: Any, headers: Any, body: Any) -> Any:
        if path.endswith("/reports") and body["stream"] == "core":
            calls.append(time.monotonic())
        return FakeMaster._answer(master, verb, path, headers, body)

    master._answer = answer
    master.answer_status["reports"], master.retry_after = 503, 2
    process = job.start(TEST_FOLDER=str(tmp_path))
    until(lambda: len(calls) >= 3)
    master.answer_status.clear()
    (tmp_path / "go").touch()
    assert process.wait(60) == 0
    assert calls[1] - calls[0] >= 2
    assert calls[2] - calls[1] >= 2
    assert [m["steps_completed"] for m in master.kinds("metrics")] == list(range(1, 31))


def test_spool_and_exit_record_remain_while_master_unreachable(stage: Any, tmp_path: Path) -> None:
    job, master = stage("python3 train.py; exit 3", context=archive(**{"train.py": STEPS}), final_patience=1.5)
    process = job.start(TEST_FOLDER=str(tmp_path))
    master.wait(lambda: len(master.kinds("metrics")) == 10)
    master.vanish()
    (tmp_path / "go").touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "the exit record and the reports stay in the job folder" in output
    record = job.exit_record()
    assert record["exit_code"] == 3
    assert [line["steps_completed"] for line in job.spool("core")] == list(range(1, 31))
    assert record["spool"] == {"core": 30, "log-0": len(job.spool("log-0"))}
    assert json.loads((job.folder / "spool" / "core.acked").read_text()) == 10


def test_a_master_that_moved_is_found_through_the_url_file(stage: Any, tmp_path: Path) -> None:
    url_file = tmp_path / "url"
    job, master = stage("echo moved", master_url_file=str(url_file))
    url_file.write_text("http://127.0.0.1:9\n")
    process = job.start()
    fresh = tmp_path / "url.new"
    fresh.write_text(master.url + "\n")
    until(lambda: os.path.exists(f"/proc/{process.pid}/fd"))
    fresh.replace(url_file)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "moved" in master.lines()


def test_without_a_lease_in_time_it_leaves_with_a_record(stage: Any) -> None:
    job, master = stage("echo never", lease_patience=0.5)
    master.vanish()
    status, output = job.run()
    assert status == 75
    assert "no lease within" in output
    assert job.exit_record()["exit_code"] == 75
    assert not (job.folder / "spool").exists()


def test_a_second_job_leaves_without_a_trace(stage: Any) -> None:
    job, master = stage("echo mine")
    master.holder = "100"
    status, output = job.run(job_id="101")
    assert (status, output) == (0, "")
    assert sorted(path.name for path in job.folder.iterdir()) == ["job.json", "runtime.zip", "secrets"]


def test_a_refused_token_ends_the_job_with_77(stage: Any) -> None:
    job, _ = stage("echo never")
    (job.folder / "secrets" / "token").write_text("another\n")
    status, output = job.run()
    assert status == 77
    assert "refused" in output


def test_proxies_of_the_site_are_not_used_for_the_master(stage: Any) -> None:
    job, master = stage("echo direct; echo $no_proxy")
    status, _ = job.run(http_proxy="http://127.0.0.1:9", https_proxy="http://127.0.0.1:9")
    assert status == 0
    assert master.lines()[:2] == ["direct", "127.0.0.1"]


def test_a_record_that_the_master_cannot_store_holds_up_nothing(stage: Any, tmp_path: Path) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": STEPS}))
    master.refuse_record = lambda record: record.get("steps_completed") == 5
    (tmp_path / "go").touch()
    status, _ = job.run(TEST_FOLDER=str(tmp_path))
    assert status == 0
    kept = master.streams["core"]
    assert [record.get("steps_completed") for record in kept] == [*range(1, 5), None, *range(6, 31)]
    assert kept[4]["kind"] == "unreadable"
    assert "a record cannot be stored" in kept[4]["why"]


def test_unstorable_log_line_holds_up_neither_others_nor_exit(stage: Any) -> None:
    job, master = stage("echo first; echo second; echo third")
    master.refuse_record = lambda record: record.get("line") == "second"
    status, _ = job.run()
    assert status == 0
    assert master.exits[0]["exit_code"] == 0
    assert master.exits[0]["spool"]["log-0"] == len(master.streams["log-0"])
    assert [line for line in master.lines() if line in ("first", "second", "third")] == ["first", "third"]
    assert [record["kind"] for record in master.streams["log-0"] if "kind" in record] == ["unreadable"]


def test_an_allocation_that_is_gone_ends_the_training(stage: Any) -> None:
    job, master = stage("sleep 600")
    process = job.start()
    master.wait(lambda: master.heartbeats)
    master.gone = True
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + 15, output
    assert "the master has ended this allocation" in output


def test_heartbeats_come_while_nothing_is_said(stage: Any) -> None:
    job, master = stage("sleep 600", heartbeat=0.1)
    process = job.start()
    master.wait(lambda: len(master.heartbeats) >= 5)
    process.terminate()
    process.communicate(timeout=60)


def test_a_master_that_hangs_is_not_waited_for(stage: Any, tmp_path: Path) -> None:
    """It takes every call and answers none, as one that is stopped or out of memory does."""
    job, master = stage("python3 train.py", context=archive(**{"train.py": STEPS}), final_patience=1)
    process = job.start(TEST_FOLDER=str(tmp_path))
    master.wait(lambda: len(master.kinds("metrics")) == 10)
    master.awake.clear()
    (tmp_path / "go").touch()
    until(lambda: (job.folder / "exit" / "0.json").exists(), 60)
    began = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 50  # seconds; a call that is not answered is otherwise given 60, each
    assert process.returncode == 0, output
    assert "the exit record and the reports stay in the job folder" in output
    assert job.exit_record()["spool"]["core"] == 30
    assert len(job.spool("core")) == 30


def test_a_master_that_hangs_at_the_last_call_is_asked_once(stage: Any, tmp_path: Path) -> None:
    waits = 'while [ ! -e "$TEST_FOLDER/go" ]; do sleep 0.05; done'
    job, master = stage("echo begun; " + waits, final_patience=1, heartbeat=60)
    process = job.start(TEST_FOLDER=str(tmp_path))
    master.wait(lambda: "begun" in master.lines())
    master.awake.clear()
    (tmp_path / "go").touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "the exit record and the reports stay in the job folder" in output
    assert job.exit_record()["exit_code"] == 0
    master.awake.set()
    master.wait(lambda: [call for call in master.requests if call.endswith("/exit")])
    assert len([call for call in master.requests if call.endswith("/exit")]) == 1


def test_job_without_master_ends_after_timeout(stage: Any) -> None:
    job, master = stage("echo began; exec sleep 600", orphaned_after=1.0)
    process = job.start()
    until(lambda: "began" in master.lines())
    master.vanish()
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "the master has given no sign for" in output


def test_job_with_removed_folder_ends_if_master_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reports would be read by nobody. A file system that is away for a moment ends nothing."""
    clock, ended = [1000.0], []
    monkeypatch.setattr(reporting.time, "monotonic", lambda: clock[0])  # type: ignore[attr-defined]
    one = reporting.Reporting.__new__(reporting.Reporting)
    one._folder, one._orphaned_after, one._orphaned, one._folder_gone_at = str(tmp_path / "job"), 0.0, False, None
    one._on_gone, one.log = lambda: ended.append(clock[0]), lambda text: None  # type: ignore[assignment, method-assign, misc]
    (tmp_path / "job").mkdir()
    for step in range(10):
        clock[0] += 20.0
        if step in (3, 5):
            (tmp_path / "job").rmdir()
        elif step == 4:
            (tmp_path / "job").mkdir()
        one._handle_silence(20.0 * step)
    assert ended == [1000.0 + 10 * 20.0]
