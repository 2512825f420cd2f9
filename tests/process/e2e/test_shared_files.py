"""What the trials of a search have in common stands once, and a job that finds it damaged costs its trial nothing."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import random
from collections.abc import Iterator
from pathlib import Path

from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, wait_for
from trainmaster.client.master import Master

LARGE = 400_000  # bytes that cannot be compressed: more than comes with a lease


@contextlib.contextmanager
def no_job_starts(root: Path) -> Iterator[None]:
    """Jobs are staged and wait: the local queue gives no slots while this holds its lock."""
    with (root / ".queue.lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def create(master: Master) -> int:
    text = trainings.experiment(epochs=2)
    context = files(train__py=trainings.COUNTING)
    data = base64.b64encode(random.Random(1).randbytes(LARGE)).decode()
    context.append({**context[0], "path": "data.bin", "content": data})
    return master.create_experiment(text, context).id


def staged(root: Path) -> Path:
    """The folder of the job that waits."""
    return wait_for(lambda: next((job for job in root.glob("det*") if _waits(job)), None), "a staged job")


def _waits(job: Path) -> bool:
    return (job / ".local/submitted").exists() and not (job / ".local/assignment").exists()


def test_damaged_shared_files_are_restored_without_charge(own_master: MasterProcess) -> None:
    own_master.start()
    master = own_master.client()
    (root,) = {path.parent for path in own_master.data.rglob(".queue.lock")}
    with no_job_starts(root):
        first = create(master)
        folder = staged(root)
        staged_files = [path for path in folder.rglob("*") if not path.is_dir()]
        assert len(staged_files) <= 6
        assert sum(path.lstat().st_size for path in staged_files) <= 20_000
        assert {path.name for path in folder.iterdir() if path.is_symlink()} == {"runtime.zip", "context.tgz"}
        runtime, context = (folder / "runtime.zip").resolve(), (folder / "context.tgz").resolve()
        os.chmod(runtime, 0o600)
        runtime.write_bytes(runtime.read_bytes()[:-1])
        context.unlink()
    ended_as(master, first, "COMPLETED")
    trial = only_trial(master, first)
    assert trial.restarts == 0
    assert "the runtime is not what its name says" in log_text(master, trial.id)
    assert context.stat().st_size >= LARGE, "the second attempt brought it again"
    with no_job_starts(root):
        second = create(master)
        folder = staged(root)
        assert (folder / "runtime.zip").resolve() == runtime
        (folder / "context.tgz").resolve().unlink()
    ended_as(master, second, "COMPLETED")  # the job fetched its files from the master
    assert "runs on" in log_text(master, only_trial(master, second).id)
    assert "Attempt 2" not in log_text(master, only_trial(master, second).id)
