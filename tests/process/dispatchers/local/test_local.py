"""The local queue: order, slots, and jobs that outlive their master."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dispatcher_site import Bench, wait
from tests.support.runtime.waiting import has_ended
from trainmaster.dispatchers.base import JobRef, JobState, Rejected, Setup, Signal, SlotType, Transient
from trainmaster.dispatchers.conformance import programs
from trainmaster.dispatchers.local import LocalDispatcher
from trainmaster.dispatchers.local.local_job import LocalJob, LocalJobStatus
from trainmaster.dispatchers.local.processes import Process, boot_id

LEAVES_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "300"], start_new_session=True)
open(sys.argv[1] + "/child", "w").write(str(child.pid))
os._exit(0)
"""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(name="here", prefix="t-", job_root=tmp_path / "jobs", options={"slots": 2, "cancel_grace": 0.5})


@pytest.fixture
def bench(setup: Setup) -> Iterator[Bench]:
    dispatcher = LocalDispatcher(setup)
    bench = Bench(dispatcher, setup, pool="default", slot_type=SlotType.CPU)
    yield bench
    bench.clean()
    dispatcher.close()


@contextmanager
def master(root: Path, slots: int, *jobs: str) -> Iterator[subprocess.Popen[str]]:
    """Another process with a local dispatcher on `root`."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parents[3] / "support" / "local_master.py"), str(root), str(slots), *jobs],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "submitted\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def running(bench: Bench) -> list[str]:
    return [job.token for job in bench.dispatcher.observe().jobs if job.state is JobState.RUNNING]


def test_slots_are_given_once_each(bench: Bench) -> None:
    first = [bench.submit(programs.WAITS) for _ in range(2)]
    for ref in first:
        bench.ready(ref)
    third = bench.submit(programs.TELLS)
    assert bench.state(third) is JobState.QUEUED
    assert "free slots" in bench.seen(third.token)[0].explanation
    pool = bench.dispatcher.pools()[0]
    assert (pool.slots_total, pool.slots_used) == (2, 2)
    given = [LocalJob(bench.folder(ref)).slot_ids or () for ref in first]
    assert sorted(given) == [(0,), (1,)]
    bench.dispatcher.signal([first[0]], Signal.PREEMPT)
    assert bench.ended(third).state is JobState.COMPLETED
    environment = json.loads(bench.dispatcher.collect(third.token).exits[0])["environment"]
    assert json.loads(environment["TRAINMASTER_SLOT_IDS"]) == list(given[0])
    assert environment["TRAINMASTER_JOB_ID"] == third.job_id
    assert environment["TRAINMASTER_NUM_NODES"] == "1"
    assert environment["TRAINMASTER_NODE_RANK"] == "0"
    assert environment["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_a_folder_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    job = LocalJob(tmp_path / "t-kept")
    job.folder.mkdir()
    job.submit(1)
    assert job.files() is not job.files()  # it changed a moment ago, and may change again within the clock's grain
    os.utime(job.folder / ".local", (1_000_000_000, 1_000_000_000))
    kept = job.files()
    assert job.files() is kept
    assert kept.submitted is not None
    job.request_cancel()
    assert job.files().cancel_requested_at is not None
    job.withdraw()
    assert job.files().submitted is None


def test_small_job_does_not_overtake_large_waiting_job(bench: Bench) -> None:
    blocker = bench.submit(programs.WAITS)
    bench.ready(blocker)
    large = bench.submit(programs.WAITS, slots=2)
    small = bench.submit(programs.WAITS, slots=1)
    without = bench.submit(programs.ENDS_WELL, slots=0)
    assert bench.ended(without).state is JobState.COMPLETED
    assert running(bench) == [blocker.token]
    bench.dispatcher.signal([blocker], Signal.PREEMPT)
    bench.ready(large)
    assert bench.state(small) is JobState.QUEUED


def test_a_waiting_job_is_cancelled_without_ever_running(bench: Bench) -> None:
    blocker = bench.submit(programs.WAITS, slots=2)
    bench.ready(blocker)
    waiting = bench.submit(programs.TELLS)
    bench.dispatcher.cancel([waiting])
    end = bench.ended(waiting)
    assert end.state is JobState.CANCELLED
    assert end.explanation == "The job was cancelled before it started."
    bench.dispatcher.signal([blocker], Signal.PREEMPT)
    bench.ended(blocker)
    assert bench.dispatcher.collect(waiting.token).exits == {}


def test_a_job_that_was_seen_to_be_cancelled_does_not_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled in the very moment in which it is given its slots."""
    assign, seen, threads = LocalJob.assign, [], []

    def assign_late(job: LocalJob, slots: Sequence[int]) -> None:
        refs = [JobRef(job.token, "")]
        threads.append(threading.Thread(target=bench.dispatcher.cancel, args=(refs,)))
        threads[-1].start()
        threads[-1].join(0.5)
        seen.append(bench.state(refs[0]))
        assign(job, slots)

    monkeypatch.setattr(LocalJob, "assign", assign_late)
    ref = bench.submit(programs.WAITS)
    assert bench.ended(ref).state is JobState.CANCELLED
    for thread in threads:
        thread.join()
    assert seen == [JobState.QUEUED]


def test_a_job_is_not_seen_while_it_is_removed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    ref = bench.submit(programs.ENDS_WELL)
    bench.ended(ref)
    status = LocalJob.status

    def status_too_late(job: LocalJob) -> LocalJobStatus:
        monkeypatch.setattr(LocalJob, "status", status)
        bench.dispatcher.forget(job.token)
        return status(job)

    monkeypatch.setattr(LocalJob, "status", status_too_late)
    assert bench.seen(ref.token) == []


def test_vanished_job_folder_does_not_stop_other_cancels(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, other = bench.submit(programs.WAITS), bench.submit(programs.WAITS)
    bench.ready(gone)
    bench.ready(other)
    ask = LocalJob.request_cancel

    def ask_too_late(job: LocalJob) -> None:
        if job.token == gone.token:
            (bench.folder(gone) / ".local").rename(bench.folder(gone) / ".elsewhere")
        ask(job)

    monkeypatch.setattr(LocalJob, "request_cancel", ask_too_late)
    bench.dispatcher.cancel([gone, other])
    assert bench.ended(other).state is JobState.CANCELLED
    (bench.folder(gone) / ".elsewhere").rename(bench.folder(gone) / ".local")


def test_cancel_without_queue_lock_fails_and_can_be_retried(bench: Bench) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    lock = bench.setup.job_root / ".queue.lock"
    lock.rename(lock.with_suffix(".aside"))
    lock.mkdir()  # as little of a lock as on a file system that became read-only
    with pytest.raises(Transient, match=r"Jobs below .* cannot be cancelled now: Is a directory\."):
        bench.dispatcher.cancel([ref])
    lock.rmdir()
    bench.dispatcher.cancel([ref])
    assert bench.ended(ref).state is JobState.CANCELLED


def test_a_job_survives_its_master_and_the_next_one_adopts_it(setup: Setup) -> None:
    jobs = ["t-runs:1:WAITS", "t-waits:2:ENDS_WELL"]
    with master(setup.job_root, 2, *jobs) as first:
        wait((setup.job_root / "t-runs/ready").exists, "the start of the job")
        first.send_signal(signal.SIGKILL)
        first.wait()
    process = LocalJob(setup.job_root / "t-runs").process
    assert process is not None
    assert process.alive
    dispatcher = LocalDispatcher(setup)
    bench = Bench(dispatcher, setup, pool="default", slot_type=SlotType.CPU)
    seen = {job.token: job for job in dispatcher.observe().jobs}
    assert seen["t-runs"].state is JobState.RUNNING
    assert seen["t-waits"].state is JobState.QUEUED
    runs, waits = (JobRef(token, seen[token].job_id) for token in ("t-runs", "t-waits"))
    dispatcher.signal([runs], Signal.PREEMPT)
    # The waiting job is started by the new master, without another submit.
    assert bench.ended(runs).state is JobState.COMPLETED
    assert bench.ended(waits).state is JobState.COMPLETED
    dispatcher.close()


def test_a_job_that_ended_while_no_master_lived_is_known(setup: Setup) -> None:
    with master(setup.job_root, 1, "t-runs:1:WAITS") as first:
        wait((setup.job_root / "t-runs/ready").exists, "the start of the job")
        first.kill()
        first.wait()
    process = LocalJob(setup.job_root / "t-runs").process
    assert process is not None
    process.send(signal.SIGUSR2)
    wait(lambda: not process.alive, "the end of the job")
    dispatcher = LocalDispatcher(setup)
    (seen,) = dispatcher.observe().jobs
    assert (seen.state, seen.exit_code) == (JobState.COMPLETED, 0)
    dispatcher.close()


def test_two_masters_on_one_folder_start_each_job_once(setup: Setup) -> None:
    jobs = [f"t-{number}:1:ALONE" for number in range(4)]
    with master(setup.job_root, 2, *jobs), master(setup.job_root, 2, *jobs), master(setup.job_root, 2, *jobs):
        dispatcher = LocalDispatcher(setup)
        most = 0

        def all_ended() -> bool:
            nonlocal most
            seen = dispatcher.observe().jobs
            most = max(most, sum(job.state in (JobState.RUNNING, JobState.STARTING) for job in seen))
            return len(seen) == 4 and all(job.state.terminal for job in seen)

        wait(all_ended, "the end of all jobs")
        dispatcher.close()
    assert most <= 2
    for number in range(4):
        assert (setup.job_root / f"t-{number}" / "runs").read_text() == "x"
        assert not (setup.job_root / f"t-{number}" / "overlap").exists()


def test_a_script_that_is_being_read_is_not_written_over(setup: Setup, tmp_path: Path) -> None:
    """A shell reads its script piece by piece: shortened under it, the job ended without having run."""
    shell = tmp_path / "bash"
    shell.write_text('#!/bin/sh\necho x >>starts\nwhile [ ! -e go ]; do sleep 0.02; done\nexec bash "$@"\n')
    shell.chmod(0o755)
    setup = replace(setup, options={**setup.options, "bash": str(shell)})
    first, second = LocalDispatcher(setup), LocalDispatcher(setup)
    bench = Bench(first, setup, pool="default", slot_type=SlotType.CPU)
    ref = bench.submit(programs.ENDS_WELL)
    starts = bench.folder(ref) / "starts"
    wait(starts.exists, "the first start")
    try:
        with (bench.folder(ref) / "local_job.sh").open() as read:
            wait(lambda: second.observe() and starts.read_text() == "x\nx\n", "a start by another master")
            assert os.fstat(read.fileno()).st_nlink == 0, "it was written over"
    finally:
        (bench.folder(ref) / "go").touch()
    assert bench.ended(ref).state is JobState.COMPLETED
    second.close()
    first.close()


def test_a_second_start_of_a_job_leaves_at_once(bench: Bench) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    again = subprocess.run(
        ["bash", "local_job.sh"], cwd=bench.folder(ref), capture_output=True, text=True, timeout=60, check=True
    )
    assert again.stdout + again.stderr == ""
    assert bench.state(ref) is JobState.RUNNING


def test_a_job_killed_from_outside_is_infrastructure(bench: Bench) -> None:
    ref = bench.submit(programs.STUBBORN)
    bench.ready(ref)
    process = LocalJob(bench.folder(ref)).process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    end = bench.ended(ref)
    assert end.state is JobState.INFRASTRUCTURE
    assert "killed from outside" in end.explanation
    # What the script had started is ended before its slot is given to another job.
    assert bench.ended(bench.submit(programs.ENDS_WELL, slots=2)).state is JobState.COMPLETED


def test_machine_restart_is_reported_as_infrastructure(bench: Bench) -> None:
    ref = bench.submit(programs.STUBBORN)
    bench.ready(ref)
    state = bench.folder(ref) / ".local" / "started"
    process = LocalJob(bench.folder(ref)).process
    assert process is not None
    state.write_text(f"{process.pid} {process.start} 00000000-0000-0000-0000-000000000000\n")
    end = bench.ended(ref)
    assert end.state is JobState.INFRASTRUCTURE
    assert end.explanation == "This machine was restarted while the job ran."
    wait(lambda: not process.alive, "the end of what runs all the same")


def test_leftover_child_process_of_job_is_ended(bench: Bench) -> None:
    ref = bench.submit(LEAVES_A_CHILD)
    assert bench.ended(ref).state is JobState.COMPLETED
    pid = int((bench.folder(ref) / "child").read_text())
    wait(lambda: has_ended(pid), "its child's end")


@pytest.fixture
def scratch(setup: Setup, tmp_path: Path) -> Iterator[tuple[Bench, Path]]:
    """Jobs with their temporary files in a folder of their own."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    made = replace(setup, options={**setup.options, "scratch": [str(folder)]})
    dispatcher = LocalDispatcher(made)
    bench = Bench(dispatcher, made, pool="default", slot_type=SlotType.CPU)
    yield bench, folder
    bench.clean()
    dispatcher.close()


def test_a_killed_job_leaves_no_temporary_files(scratch: tuple[Bench, Path]) -> None:
    bench, folder = scratch
    ref = bench.submit(programs.STUBBORN)
    bench.ready(ref)
    (private,) = folder.iterdir()
    (private / "tmp" / "left").write_text("x")
    bench.dispatcher.cancel([ref])
    assert bench.ended(ref).state is JobState.CANCELLED
    wait(lambda: list(folder.iterdir()) == [], "the removal of its folder")


def test_next_job_removes_only_folders_of_killed_jobs(scratch: tuple[Bench, Path]) -> None:
    bench, folder = scratch
    boot = boot_id().partition("-")[0]
    dead = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()
    left, alive, of_another_node, other = (
        folder / name for name in (f"tm.{dead}.{boot}.1", f"tm.{os.getpid()}.{boot}.2", f"tm.{dead}.0000.3", "mine")
    )
    for each in (left, alive, of_another_node, other):
        (each / "tmp").mkdir(parents=True)
    (folder / f"tm.{dead}.{boot}.4").symlink_to(other)
    assert bench.ended(bench.submit(programs.ENDS_WELL)).state is JobState.COMPLETED
    wait(lambda: not left.exists(), "the removal of the folder")
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [alive.name, of_another_node.name, other.name, f"tm.{dead}.{boot}.4"]
    )
    assert (other / "tmp").exists()


def test_a_job_killed_by_a_signal_says_which(bench: Bench) -> None:
    end = bench.ended(bench.submit("import os; os.kill(os.getpid(), 9)"))
    assert (end.state, end.exit_signal, end.exit_code) == (JobState.FAILED, 9, None)
    assert "memory" in end.explanation


def test_start_failure_is_read_from_job_output(setup: Setup) -> None:
    options = {**setup.options, "python": "/nowhere/python"}
    dispatcher = LocalDispatcher(replace(setup, options=options))
    bench = Bench(dispatcher, setup, pool="default", slot_type=SlotType.CPU)
    try:
        ref = bench.submit(programs.TELLS)
        bench.ended(ref)
        found = dispatcher.collect(ref.token).not_started
        assert found is not None
        assert found.text.startswith("The node has no working Python; a job needs Python 3.8 or newer: ")
        assert "/nowhere/python" in found.text
        assert not found.final
    finally:
        bench.clean()
        dispatcher.close()


def test_more_slots_than_there_are_is_refused(bench: Bench) -> None:
    spec = bench.spec(slots=3)
    assert "has 2" in bench.dispatcher.check(spec)[0]
    with pytest.raises(Rejected, match="has 2"):
        bench.dispatcher.submit(spec)


def test_a_folder_in_use_is_not_forgotten(bench: Bench) -> None:
    ref = bench.submit(programs.WAITS)
    bench.ready(ref)
    with pytest.raises(Transient, match="has not ended"):
        bench.dispatcher.forget(ref.token)
    assert bench.folder(ref).exists()


def test_a_reused_pid_is_not_mistaken() -> None:
    ours = Process.parse(f"{os.getpid()} 1 {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}")
    assert ours is not None
    assert not ours.alive
    assert not ours.send(signal.SIGKILL)
    assert Process.parse("") is None
    assert Process.parse("nonsense") is None


@pytest.mark.parametrize(
    ("options", "words"),
    [({"slots": 0}, "slots"), ({"container_run_type": "rkt"}, "rkt"), ({"poll_interval": "often"}, "poll_interval")],
)
def test_a_wrong_configuration_is_refused_in_words(tmp_path: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(Rejected, match=words):
        LocalDispatcher(Setup(name="x", prefix="t-", job_root=tmp_path, options=options))
