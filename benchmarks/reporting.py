"""Measures what a report costs the training loop in a real job: with the master, without it, and with a disk that is
full or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measure import Deadline, Sample, Unavailable, say
from tests.support.runtime.jobs import StagedJob, make_work
from tests.support.runtime.master import FakeMaster
from trainmaster.runtime.archive import build_runtime_zip

REPORTS = 2000
HANGS = 2.0  # seconds
PAUSE = 0.001  # seconds between two reports: a training does something else meanwhile
TAILS = (0.95, 0.99, 1.0)
# Measures each call in the training's own process, and a bare append of the same line to a file beside it.
MEASURE = f"""
import json, os, time
from trainmaster import core

def timed(work):
    took = []
    for step in range(1, {REPORTS} + 1):
        began = time.perf_counter()
        work(step)
        took.append((time.perf_counter() - began) * 1e6)
        time.sleep({PAUSE})
    return took

with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context:
    context.train.report_training_metrics(0, {{"loss": 0.0}})
    open(os.environ["BENCH_READY"], "w").close()
    while not os.path.exists(os.environ["BENCH_GO"]):
        time.sleep(0.05)
    ours = timed(lambda step: context.train.report_training_metrics(step, {{"loss": 1.0 / step, "accuracy": 0.5}}))
    with open(os.environ["BENCH_PEER"], "a", buffering=1) as file:
        line = lambda step: file.write(json.dumps({{"step": step, "loss": 1.0 / step, "accuracy": 0.5}}) + "\\n")
        peer = timed(line)
with open(os.environ["BENCH_RESULT"], "w") as file:
    json.dump([ours, peer], file)
"""


def run(deadline: Deadline) -> None:
    """One line for each state of the world; the peer is a line of JSON appended to a file by the same process."""
    for state in ("the master there", "the master away", "the disk full", f"the disk hanging for {HANGS:.0f} s"):
        if deadline.left <= 0:
            return
        try:
            ours, peer = _measured(state)
        except Unavailable as reason:
            say("start", f"a report with {state}", "not measured", reason)
            continue
        say("start", f"a report, {state}", f"ours {ours}", f"a bare line into a file {peer}")


def _measured(state: str) -> tuple[Sample, Sample]:
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-bench-", dir="/var/tmp")))
        folder = own / "job"
        if state == "the disk full":
            folder = stack.enter_context(_small_disk(own)) / "job"
        if state.startswith("the disk hanging"):
            folder = stack.enter_context(_disk_of_its_own(own)) / "job"
        master = FakeMaster(make_work(["python3", "-c", MEASURE]))
        stack.callback(master.close)
        job = StagedJob(folder, master, final_patience=1)
        stack.callback(job.clean_up)
        names = {name: str(own / name.lower()) for name in ("BENCH_READY", "BENCH_GO", "BENCH_RESULT", "BENCH_PEER")}
        process = job.start(**names, TMPDIR=str(own))
        master.wait(lambda: master.kinds("metrics"))
        if state == "the master away":
            master.vanish()
        if state == "the disk full":
            _fill(folder.parent)
        Path(names["BENCH_GO"]).touch()
        if state.startswith("the disk hanging"):
            _run("fsfreeze", "--freeze", str(folder.parent))
            time.sleep(HANGS)
            _run("fsfreeze", "--unfreeze", str(folder.parent))
        output, _ = process.communicate(timeout=180)
        if process.returncode != 0:
            raise Unavailable(output[-300:])
        ours, peer = json.loads(Path(names["BENCH_RESULT"]).read_text())
    return Sample(ours, "us", TAILS), Sample(peer, "us", TAILS)


@contextmanager
def _small_disk(below: Path) -> Iterator[Path]:
    """A file system with little room. Needs root."""
    mount = below / "small"
    mount.mkdir()
    size = len(build_runtime_zip()) + 400_000
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount))
    try:
        yield mount
    finally:
        _run("umount", "-l", str(mount))


@contextmanager
def _disk_of_its_own(below: Path) -> Iterator[Path]:
    """A file system in a file, which can be made to hang. Needs root and a loop device."""
    mount, content = below / "disk", below / "disk.img"
    mount.mkdir()
    with content.open("wb") as file:
        file.truncate(64 << 20)
    _run("mkfs.ext4", "-q", str(content))
    _run("mount", "-o", "loop", str(content), str(mount))
    try:
        yield mount
    finally:
        _run("umount", "-l", str(mount))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{command[0]}: {done.stderr.strip()}")


def _fill(mount: Path) -> None:
    found = os.statvfs(mount)
    with contextlib.suppress(OSError), (mount / "ballast").open("wb") as file:  # others write as well
        file.write(bytes(found.f_bavail * found.f_frsize))
