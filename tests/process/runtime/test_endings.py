"""How the training ends, and how it is asked to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.process.runtime.test_whole_job import archive
from tests.support.runtime.waiting import has_ended, until
from trainmaster.runtime.archive import build_runtime_zip
from trainmaster.runtime.process import descendants

WAITS = """
import os, signal, sys, time
from trainmaster import core

with core.init() as ctx:
    print("ready", flush=True)
    while not ctx.preempt.should_preempt():
        time.sleep(0.01)
    print("saved")
"""


@pytest.fixture
def waiting(stage: Any) -> Any:
    def make(**arguments: Any) -> Any:
        job, master = stage("python3 train.py", context=archive(**{"train.py": WAITS}), **arguments)
        return job, master

    return make


def left_well(job: Any, master: Any, process: Any, reason: Any) -> None:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "saved" in master.lines()
    record = job.exit_record()
    assert record["preempted"] == {"reason": reason}
    assert record["preempt_acked"]
    assert len(master.kinds("ack_preempt")) == 1


def pending(master: Any) -> Any:
    return [r["reason"] for r in master.streams["log-0"] if r.get("kind") == "preempt_pending"]


def test_the_master_asks_through_the_long_poll(waiting: Any) -> None:
    job, master = waiting(heartbeat=600)
    process = job.start()
    master.wait(lambda: "ready" in master.lines())
    master.ask_to_leave("paused by its owner")
    left_well(job, master, process, "paused by its owner")
    assert pending(master) == []
    assert len([request for request in master.requests if "preemption" in request]) <= 12


def test_the_scheduler_asks_with_sigusr2(waiting: Any) -> None:
    job, master = waiting()
    process = job.start()
    master.wait(lambda: "ready" in master.lines())
    process.send_signal(signal.SIGUSR2)
    left_well(job, master, process, "scheduler")
    assert pending(master) == ["scheduler"]


def test_a_warning_sent_to_every_process_of_the_step_kills_none(waiting: Any) -> None:
    job, master = waiting()
    process = job.start()
    master.wait(lambda: "ready" in master.lines())
    for pid in [process.pid, *descendants(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR2)
    left_well(job, master, process, "scheduler")


def test_sigusr2_near_the_end_means_the_walltime(waiting: Any) -> None:
    job, master = waiting(walltime_grace=10)
    process = job.start(TRAINMASTER_END_TIME=str(time.time() + 60))
    master.wait(lambda: "ready" in master.lines())
    process.send_signal(signal.SIGUSR2)
    left_well(job, master, process, "walltime")


def test_the_clock_asks_before_the_walltime_ends(waiting: Any) -> None:
    job, master = waiting(walltime_grace=120)  # it is asked 4 s after its start: it must have begun by then
    process = job.start(TRAINMASTER_END_TIME=str(time.time() + 124))
    left_well(job, master, process, "walltime")
    assert pending(master) == ["walltime"]


def test_sigterm_asks_first_and_then_ends(stage: Any) -> None:
    job, master = stage("trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.05; done")
    process = job.start()
    master.wait(lambda: "ready" in master.lines())
    process.terminate()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 9, output
    assert "told" in master.lines()
    record = job.exit_record()
    assert record["preempted"] == {"reason": "scheduler"}
    assert not record["preempt_acked"]


def test_a_training_that_ignores_sigterm_is_killed(stage: Any) -> None:
    job, master = stage("trap '' TERM; echo ready; while :; do sleep 0.05; done", kill_grace=0.5)
    process = job.start()
    master.wait(lambda: "ready" in master.lines())
    process.terminate()
    assert process.wait(60) == 128 + 9


def test_the_end_needs_nothing_more_of_the_image(stage: Any, tmp_path: Path) -> None:
    """A signal to all processes of a job also ends the one that serves the files of a container's image."""
    home = tmp_path / "python"
    library = Path(sysconfig.get_path("stdlib"))
    (home / "lib").mkdir(parents=True)
    (home / "lib" / library.name).symlink_to(library)
    vanish = f"echo ERROR: vanishing; rm {home}/lib/{library.name}; kill -TERM $$"
    job, master = stage(vanish, heartbeat=600)
    status, output = job.run(python=sys.base_prefix + "/bin/python3", PYTHONHOME=str(home))
    assert status == 143, output
    record = job.exit_record()
    assert (record["exit_code"], record["signal"]) == (143, 15)
    assert "SIGTERM" in record["message"]
    assert "ERROR: vanishing" in master.lines()


def test_sigterm_while_waiting_for_the_lease(stage: Any) -> None:
    job, master = stage("echo never")
    master.vanish()
    with socket.create_server(("127.0.0.1", master.port)) as silent:
        process = job.start()
        silent.settimeout(60)
        asking, _ = silent.accept()  # it is asking for the lease now, and hears nothing
        asking.close()
    process.terminate()
    assert process.wait(60) == 128 + 15
    assert job.exit_record()["preempted"] == {"reason": "scheduler"}


@pytest.mark.parametrize(
    ("entrypoint", "status", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        (["sh", "-c", "kill -9 $$"], 137, 9),
        (["sh", "-c", "kill -SEGV $$"], 139, 11),
        (["no-such-program"], 127, None),
        (["/etc/passwd"], 126, None),
    ],
)
def test_the_status_is_the_trainings(stage: Any, entrypoint: Any, status: int, number: int | None) -> None:
    job, master = stage(entrypoint)
    assert job.run()[0] == status
    record = job.exit_record()
    assert (record["exit_code"], record["signal"], record["oom"]) == (status, number, False)
    assert master.exits[0] == record


def test_nothing_of_the_training_is_left_behind(stage: Any, tmp_path: Path) -> None:
    script = f"""
(setsid sh -c 'trap "" TERM; echo $$ > {tmp_path}/daemon; while :; do sleep 0.05; done' >/dev/null 2>&1 &)
while [ ! -s {tmp_path}/daemon ]; do sleep 0.01; done
"""
    job, master = stage(script, kill_grace=0.5)
    status, output = job.run()
    assert status == 0, output
    assert has_ended(int((tmp_path / "daemon").read_text()))
    assert any("left behind" in line for line in master.lines(source="runtime"))


def test_training_may_save_after_signal_ends_its_shell(stage: Any) -> None:
    """Slurm signals every process of a job: the runtime, the shell of the entrypoint, and the training."""
    script = """
import os, signal, time
from trainmaster import core

signal.signal(signal.SIGTERM, lambda *_: None)
with core.init() as ctx:
    print("ready", os.getppid(), flush=True)
    while not ctx.preempt.should_preempt():
        time.sleep(0.01)
    time.sleep(3)
    print("saved")
"""
    job, master = stage("python3 train.py; true", context=archive(**{"train.py": script}), kill_grace=30.0)
    process = job.start()
    until(lambda: any(line.startswith("ready") for line in master.lines()))
    shell = int(next(line for line in master.lines() if line.startswith("ready")).split()[1])
    os.kill(shell, signal.SIGTERM)
    until(lambda: has_ended(shell))
    os.kill(process.pid, signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, output
    assert "saved" in master.lines()


def test_the_training_dies_with_its_runtime(stage: Any, tmp_path: Path) -> None:
    job, _ = stage(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600"])
    process = job.start()
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    process.kill()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: has_ended(pid))


def memory_group() -> Path | None:
    """A folder for control groups with a memory limit, if this machine lets us make one."""
    for parent in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
        group = parent / f"tm-test-{os.getpid()}"
        limit = "memory.limit_in_bytes" if parent.name == "memory" else "memory.max"
        try:
            group.mkdir()
        except OSError:
            continue
        if (group / limit).exists():
            (group / limit).write_text(str(80 * 1024 * 1024))
            return group
        group.rmdir()
    return None


def test_training_killed_for_lack_of_memory_is_reported(stage: Any) -> None:
    group = memory_group()
    if group is None:
        pytest.skip("no memory control group can be made here (not root, or no memory controller)")
    try:
        job, master = stage(["python3", "-c", "x = b'x' * (400 << 20)"])
        process = job.start(control_group=group)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 137, output
        assert job.exit_record()["oom"]
        assert "want of memory" in master.exits[0]["message"]
    finally:
        until(lambda: removed(group))


def removed(group: Path) -> bool:
    """A group that still holds a process, or the last of one, cannot be removed."""
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def test_the_token_is_in_no_argument_and_no_log(stage: Any, tmp_path: Path) -> None:
    from tests.support.runtime.master import TOKEN

    job, master = stage(
        "env; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '; echo; echo ready; cat " + str(tmp_path / "pipe")
    )
    os.mkfifo(tmp_path / "pipe")
    process = job.start()
    master.wait(lambda: "ready" in master.lines())
    seen = subprocess.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert str(job.folder).encode() in seen.stdout
    assert TOKEN.encode() not in seen.stdout
    (tmp_path / "pipe").write_text("")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert TOKEN not in output
    assert "DET_SESSION_TOKEN=[session token]" in master.lines()
    holders = [path for path in job.folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holders == [job.folder / "secrets" / "token"]


def test_the_training_inherits_nothing_but_its_streams(stage: Any) -> None:
    """Neither what was left open for the runtime, nor what Python has its own process ignore."""
    sees = "echo $(ls /proc/self/fd); grep SigIgn /proc/self/status; ps -o sid= -p $$; echo $$; pwd"
    job, master = stage(sees)
    left_open = os.open(os.devnull, os.O_RDONLY)
    try:
        process = job.start(pass_fds=[left_open])
        process.communicate(timeout=60)
    finally:
        os.close(left_open)
    assert process.returncode == 0
    opened, ignored, session, own, folder = master.lines()
    assert opened == "0 1 2 3"  # the last one is the folder that ls reads
    ours = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGUSR1, signal.SIGUSR2)  # others are as for the tests themselves
    mask = int(ignored.split()[1], 16)
    assert [number for number in ours if mask >> (number - 1) & 1] == [signal.SIGUSR2]
    assert session.strip() == own
    assert folder.endswith("/workdir")


@pytest.mark.parametrize(
    ("entrypoint", "status", "words"),
    [
        (["no-such-program", "x"], 127, "there is no program 'no-such-program'"),
        (["./missing"], 127, "there is no program './missing'"),
        (["./text"], 126, "'./text' cannot be run: Permission denied"),
        (["/"], 126, "'/' cannot be run"),
    ],
)
def test_unrunnable_entrypoint_gets_status_of_shell(stage: Any, entrypoint: Any, status: int, words: str) -> None:
    job, master = stage(entrypoint, context=archive(text="no program"))
    assert job.run()[0] == status
    assert words in master.exits[0]["message"]
    assert master.exits[0]["signal"] is None


CANNOT_FORK = """
import os, resource, sys
sys.path[0] = sys.argv[1]
from trainmaster.runtime.process import start
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
if os.geteuid() == 0:  # for which the limit does not hold
    os.setuid(65534)
try:
    start("true", {}, "/", 1, 2)
except BlockingIOError as error:
    print(error)
"""


def test_error_at_process_limit_names_program() -> None:
    package = Path(tempfile.mkdtemp(prefix="tm-")) / "runtime.zip"  # where any account may read
    try:
        package.parent.chmod(0o755)
        package.write_bytes(build_runtime_zip())
        done = subprocess.run([sys.executable, "-c", CANNOT_FORK, str(package)], capture_output=True, text=True)
    finally:
        shutil.rmtree(package.parent)
    assert "unavailable: 'sh'" in done.stdout, done.stderr
