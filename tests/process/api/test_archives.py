"""Users' files that are larger than what the database is told at once."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import config, jobs_of
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.services.files.archives import PIECE

MEGABYTE = 2**20


def file(content: bytes) -> dict[str, Any]:
    return {"path": "data.bin", "type": 48, "content": base64.b64encode(content).decode(), "mode": 0o644}


def inside(b64_tgz: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(b64_tgz))) as tar:
        found = tar.extractfile("data.bin")
        assert found is not None
        return found.read()


@pytest.mark.parametrize("size", [0, PIECE, 2 * PIECE + 1])
def test_an_experiments_files_reach_its_jobs_and_its_forks(
    master: MasterProcess, user: Api, experiment: Callable[..., int], size: int
) -> None:
    content = os.urandom(size)
    number = experiment(modelDefinition=[file(content)])
    fork = experiment(parentId=number)
    unmanaged = experiment(config(), modelDefinition=[file(content)], unmanaged=True)
    for each in (number, fork, unmanaged):
        shown = user.get(f"/api/v1/experiments/{each}").json["experiment"]["modelDefinitionSize"]
        packed = user.get(f"/api/v1/experiments/{each}/model_def").json["b64Tgz"]
        assert (inside(packed), shown) == (content, len(base64.b64decode(packed)))
    (job,) = jobs_of(master, user, fork)
    assert job.context().content == base64.b64decode(packed)
    work = job.lease(fetches_context=True).json
    assert (work["context_size"], "context" in work) == (shown, False)
    assert [base64.b64decode(entry["content"]) for entry in work["files"] or ()] == ([content] if size == 0 else [])
    assert job.lease().json["context"] == packed  # a runtime that an older master staged
    other = jobs_of(master, user, number)[0]
    assert job.api.get(f"/api/x1/allocations/{other.allocation_id}/context").status == 403
    (top,) = user.get(f"/api/v1/experiments/{fork}/file_tree").json["files"]
    assert (top["path"], top["contentLength"]) == ("data.bin", size)


def test_a_tasks_files_reach_its_job_and_its_relatives(user: Api) -> None:
    content = os.urandom(2 * PIECE + 1)
    order = {"config": "{entrypoint: sha256sum data.bin, resources: {slots: 0}}", "contextDirectory": [file(content)]}
    first = user.post("/api/v1/generic-tasks", order).json["taskId"]
    fork = user.post("/api/v1/generic-tasks", {"config": "", "forkedFrom": first}).json["taskId"]
    for each in (first, fork):
        wait_for(lambda each=each: user.get(f"/api/v1/tasks/{each}").json["task"].get("endTime"), "the task's end")  # type: ignore[misc]
        said = "".join(line["log"] for line in user.lines(f"/api/v1/tasks/{each}/logs"))
        assert hashlib.sha256(content).hexdigest() in said
        assert inside(user.get(f"/api/v1/tasks/{each}/context_directory").json["b64Tgz"]) == content


def test_simultaneous_context_fetches_use_little_memory(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    size = 24 * MEGABYTE
    number = experiment(modelDefinition=[file(os.urandom(size))])
    (job,) = jobs_of(master, user, number)

    def fetch(_: int) -> int:
        return len(job.context().content)

    fetch(0)
    Path(f"/proc/{master.pid}/clear_refs").write_text("5")  # the highest becomes what it is now (proc(5))
    before = memory(master.pid, "VmRSS")
    with ThreadPoolExecutor(6) as threads:
        assert min(threads.map(fetch, range(12))) > size
    # It was 1.6 times the size of one; 24 times, when each was held whole and in hexadecimal.
    assert memory(master.pid, "VmHWM") - before < 6 * size


def memory(pid: int, which: str) -> int:
    """Bytes, now (VmRSS) or at most (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{which}:"))) * 1024
