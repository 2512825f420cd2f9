"""Files of a job folder with arbitrary content: the master reads them in pieces, in turns, and to their end."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import trainings
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    serving,
    wait_ended,
    wait_for,
)
from trainmaster.dispatchers.base import StreamPosition
from trainmaster.dispatchers.cluster.folder import JobFolder
from trainmaster.dispatchers.cluster.jobfolder import job_files

LOCAL = "resource_manager: {type: local, slots: 4, poll_interval: 0.2}\n"
LIMITS = "limits: {spool: 8, spool_unreadable: 200}\n"
# Finds its job folder by the command line of its runtime, as anybody can, floods it, and takes the runtime down.
FLOODING = """
import os, signal, sys

def runtime(pid):
    words = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    if any(word.endswith("runtime.zip") for word in words):
        return pid, words[[word.endswith("runtime.zip") for word in words].index(True)].rpartition("/")[0]
    return runtime(int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1]))

pid, folder = runtime(os.getppid())
for stream in ("evil", "core", "log-0", "log-7"):
    with open(f"{folder}/spool/{stream}.jsonl", "ab") as file:
        for _ in range(64):
            file.write(CONTENT)
print("flooded", flush=True)
os.kill(pid, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def bounded() -> Iterator[MasterProcess]:
    with serving(LOCAL + LIMITS) as process:
        yield process


def most_memory(master: MasterProcess) -> int:
    """The most that the process has held so far, in MB."""
    status = Path(f"/proc/{master.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def nobody_runs(folder: Path) -> bool:
    """Whether no process has the folder in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes():
                return False
    return True


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ("b'\\n' * 2**20", "limits.spool_unreadable"),
        ("b'x' * 2**20", "limits.spool"),
        ("b'{\"t\": 1, \"line\": \"[' + b'[],' * 300_000 + b'\"}\\n'", "limits.spool"),
        ('b\'{"t": 1, "kind": "status", "state": [\' + b\'[],\' * 300_000 + b\'1]}\\n\'', "limits.spool"),
    ],
    ids=["line ends", "one line", "log lines", "brackets"],
)
def test_flooded_spool_ends_its_trial_and_harms_no_other(bounded: MasterProcess, content: str, limit: str) -> None:
    master = bounded.client()
    before = most_memory(bounded)
    script = FLOODING.replace("CONTENT", content)
    # A setback would be tried again and again; what is charged ends the trial at once, with no restarts left.
    flooding = master.create_experiment(trainings.experiment(), files(train__py=script)).id
    others = [
        master.create_experiment(trainings.experiment(epochs=1), files(train__py=trainings.COUNTING)).id
        for _ in range(2)
    ]
    for number in others:
        ended_as(master, number, "COMPLETED", 60)
    ended = wait_ended(master, flooding, 90)
    assert ended.state == "ERROR"
    trial = only_trial(master, flooding)
    assert limit in log_text(master, trial.id)
    assert most_memory(bounded) - before < 150


def test_streams_of_no_node_of_the_job_are_not_read(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, "det-1")
    folder.stage({})
    for name in ("evil.jsonl", "log-x.jsonl", "log-0.jsonl", "core.jsonl", "log-12345678.jsonl"):
        (folder.path / "spool" / name).write_text("{}\n")
    assert set(folder.collect({}).streams) == {"core", "log-0"}


def test_a_stream_is_read_in_pieces_from_any_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_files, "PIECE", 1000)
    monkeypatch.setattr(job_files, "BLOCK", 64)
    lines = [b'{"n": %d}\n' % n for n in range(500)]
    lines[200] = b"x" * 5000 + b"\n"  # too long: its number stays
    folder = JobFolder(tmp_path, "det-1")
    folder.stage({})
    path = folder.path / "spool" / "core.jsonl"
    path.write_bytes(b"".join(lines) + b'{"half')
    wanted = b"".join([*lines[:200], b"\n", *lines[201:]])
    found, place, more = b"", StreamPosition(), True
    while more:
        piece = folder.collect({"core": place}).streams["core"]
        assert len(piece.content) <= 1000
        # Whoever forgot where line number N ends finds it again.
        again = folder.collect({"core": StreamPosition(place.line, -1)}).streams["core"]
        assert again == piece
        found, place, more = found + piece.content, piece.end, piece.more
    assert found == wanted
    assert place.line == 500
    assert folder.collect({"core": StreamPosition(600, -1)}).streams["core"].content == b""
    cut = folder.collect({"core": place}, most=path.stat().st_size - 5).streams["core"]
    assert (cut.more, cut.cut) == (False, True)


def test_long_spool_is_replayed_in_order_through_restarts() -> None:
    """A job that ended while the master was away left far more than one pass reads; the master is killed in between."""
    count = 12_000
    root = make_folder()
    own = MasterProcess(root, LOCAL)
    try:
        own.start()
        master = own.client()
        gate = own.folder / "gate"
        training = trainings.experiment(epochs=3, wait_at=2, wait_for=str(gate))
        number = master.create_experiment(training, files(train__py=trainings.COUNTING)).id
        wait_for(lambda: any(t.batches >= 2 for t in master.trials(number)), "the trial to report")
        trial = only_trial(master, number)
        own.kill()
        gate.touch()
        (record,) = wait_for(lambda: list((own.data / "jobs").glob("**/exit/0.json")), "the job's end", 90)
        wait_for(lambda: nobody_runs(record.parent.parent), "the job's last process to go", 90)
        spool = record.parent.parent / "spool" / "core.jsonl"
        told = json.loads(record.read_text())
        with spool.open("a") as file:
            for step in range(10, 10 + count):
                metrics = {"t": time.time(), "kind": "metrics", "group": "training", "steps_completed": step}
                file.write(json.dumps({**metrics, "metrics": {"loss": step / 7}}) + "\n")
            file.write(json.dumps({**metrics, "steps_completed": 10**6, "metrics": {"loss": 0}}) + "\n")
        told["spool"]["core"] += count  # one less than there are: the last one was never counted
        record.write_text(json.dumps(told))
        own.start()
        wait_for(lambda: only_trial(own.client(), number).batches > 10, "the replay to have begun", every=0.02)
        own.kill()
        own.start()
        master = own.client()
        ended_as(master, number, "COMPLETED")
        steps = [
            report.steps_completed for report in master.metrics([trial.id], "training") if report.steps_completed >= 10
        ]
        assert steps == list(range(10, 10 + count))
    finally:
        own.clean_up()
        remove_folder(root)
