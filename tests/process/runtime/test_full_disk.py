"""A job folder that takes no more bytes must not hurt the training."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.runtime.test_whole_job import archive
from tests.support.runtime.waiting import until
from trainmaster.runtime.archive import build_runtime_zip

CHATTY = """
import os, time
from trainmaster import core

with core.init() as ctx:
    for step in range(1, 201):
        ctx.train.report_training_metrics(step, {"loss": step, "text": "x" * 500})
        print("line", step, "y" * 500)
    while os.path.exists(os.environ["TEST_HOLD"]):
        time.sleep(0.01)
    ctx.train.report_training_metrics(201, {"loss": 201})
print("done")
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Any]:
    mount = tmp_path / "small"
    mount.mkdir()
    # Room for the job's code, and for all that it reports: when the ballast is gone, the spool must fit.
    size = len(build_runtime_zip()) + 400_000
    tried = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)], stderr=subprocess.PIPE, text=True
    )
    if tried.returncode != 0:
        pytest.skip("no tmpfs can be mounted here (not root): " + tried.stderr.strip())
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def fill(mount: Any, leave: Any) -> None:
    """Leave about `leave` bytes."""
    stat = os.statvfs(mount)
    with open(mount / "ballast", "wb") as file:
        file.write(b"\0" * max(0, stat.f_bavail * stat.f_frsize - leave))


def test_reports_reach_the_master_although_the_disk_takes_none(stage: Any, small_disk: Any, tmp_path: Path) -> None:
    job, master = stage("python3 train.py", context=archive(**{"train.py": CHATTY}), folder=small_disk / "job")
    fill(small_disk, 40_000)
    hold = tmp_path / "hold"
    hold.touch()
    process = job.start(TEST_HOLD=str(hold), PYTHONDONTWRITEBYTECODE="1", TMPDIR=str(tmp_path))
    master.wait(lambda: len(master.kinds("metrics")) == 200)
    hold.unlink()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert [record["steps_completed"] for record in master.kinds("metrics")] == list(range(1, 202))
    lines = master.lines()
    assert [int(line.split()[1]) for line in lines if line.startswith("line")] == list(range(1, 201))
    assert lines[-1] == "done"
    assert any("takes no more reports" in line for line in master.lines(source="runtime"))
    assert any("they go through the runtime" in line for line in lines)
    assert master.exits[0]["exit_code"] == 0


def test_when_there_is_room_again_the_spool_is_made_whole(stage: Any, small_disk: Any, tmp_path: Path) -> None:
    chatty = archive(**{"train.py": CHATTY})
    job, master = stage("python3 train.py", context=chatty, folder=small_disk / "job", final_patience=1.5)
    fill(small_disk, 40_000)
    hold = tmp_path / "hold"
    hold.touch()
    process = job.start(TEST_HOLD=str(hold), TMPDIR=str(tmp_path))
    master.wait(lambda: len(master.kinds("metrics")) == 200)
    master.vanish()
    (small_disk / "ballast").unlink()
    hold.unlink()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    spool = job.spool("core")
    assert job.exit_record()["spool"]["core"] == len(spool) == 201
    assert spool[200]["steps_completed"] == 201
    # Those that the master had meanwhile are only counted.
    assert {} in spool
    until(lambda: not list(job.folder.glob("exit/*.new")))


@pytest.mark.parametrize("leave", [0, 40_000])
def test_exit_record_names_full_node_disk(stage: Any, small_disk: Any, leave: int) -> None:
    job, master = stage("echo never")
    fill(small_disk, leave)
    with tempfile.TemporaryDirectory() as short:  # a longer name would be passed over
        (Path(short) / "disk").symlink_to(small_disk)
        status, output = job.run(TMPDIR=f"{short}/disk")
    assert (status, "Traceback" in output) == (70, False), output
    record = job.exit_record()
    assert record["message"] == "this node cannot do the work: [Errno 28] No space left on device"
    assert (record["began"], master.lines()) == (False, [])
