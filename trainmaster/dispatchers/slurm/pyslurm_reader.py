"""Lists all jobs through pyslurm, for sites with a pyslurm that matches their Slurm.

pyslurm is a binding to libslurm (https://github.com/PySlurm/pyslurm, GPL-2.0): the import of a wrong one, or a bug in
its C code, ends the process, and its calls have no deadline. So it runs in a process of its own, which answers each
line that it reads with one line of JSON. This module is both ends, and only that process imports pyslurm. After any
failure, `squeue` is used instead.

Debian has no pyslurm, and PyPI none for its releases of Slurm, so the tests use a module in its place that has the
attributes of pyslurm's class `Job` from 22.5 to 25.11, and use a real one where one is found. pyslurm 22.5.3 and the
squeue of Slurm 22.05.8 agree, except on waiting jobs that request a total of GPUs (`--gpus`): before 25.11 pyslurm
does not report how many. It is not faster than squeue, which is why `reader: commands` is the default.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from trainmaster.dispatchers.slurm.outcomes import SlurmExit
from trainmaster.dispatchers.slurm.parse import ABSENT, QueueLine, expand_hosts

START_DEADLINE = 20.0  # seconds for the first answer of the process: imports from a shared file system are slow


class NoReader(Exception):
    """pyslurm cannot be used; the message says why."""


class PyslurmReader:
    """One process with pyslurm in it. Safe to use from several threads, one after the other."""

    def __init__(self, environment: Mapping[str, str], *, python: str = sys.executable) -> None:
        """`environment`: what Slurm's commands get too, SLURM_CONF above all."""
        self._environment = {**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._python = python
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self.version = ""

    def start(self, slurm_version: str) -> None:
        """Start it, and check that it was built for the cluster's release. Raises NoReader."""
        with self._lock:
            argv = [self._python, "-m", __name__]
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=self._environment,
                )
            except OSError as error:
                raise NoReader(f"{self._python} cannot be started: {error}") from None
            hello = self._read(START_DEADLINE)
            self.version = str(hello.get("version", ""))
            if not self.version or release(self.version) != release(slurm_version):
                self._end()
                raise NoReader(f"pyslurm {self.version} does not fit Slurm {slurm_version}")

    def jobs(self, *, deadline: float, user: int | None = None) -> list[QueueLine]:
        """List all jobs, or those of one uid, as `squeue` does. Raises NoReader, and then the process has ended."""
        with self._lock:
            if self._process is None or self._process.stdin is None:
                raise NoReader("its process has ended")
            try:
                self._process.stdin.write(b"jobs\n")
                self._process.stdin.flush()
            except OSError as error:
                self._end()
                raise NoReader(f"its process has ended: {error}") from None
            answer = self._read(deadline)
            try:
                return [line(job) for job in answer["jobs"] if user is None or job["user_id"] == user]
            except (KeyError, TypeError, ValueError) as error:
                self._end()
                raise NoReader(f"its answer cannot be parsed: {error!r}") from None

    def close(self) -> None:
        with self._lock:
            self._end()

    def _read(self, deadline: float) -> dict[str, Any]:
        """Read the next line of JSON. Raises NoReader, and ends the process, when there is none in time."""
        process, until = self._process, time.monotonic() + deadline
        assert process is not None
        assert process.stdout is not None
        poll = select.poll()  # not select(), which supports no descriptor above 1023
        poll.register(process.stdout, select.POLLIN)
        while b"\n" not in self._pending:
            ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
            chunk = os.read(process.stdout.fileno(), 1 << 20) if ready else b""
            if not chunk:
                why = "its process has ended" if ready else f"no answer in {deadline:.0f} s"
                self._end()
                raise NoReader(why)
            self._pending += chunk
        text, _, self._pending = self._pending.partition(b"\n")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"error": f"it printed {text[:100]!r}"}
        if not isinstance(answer, dict) or "error" in answer:
            self._end()
            raise NoReader(str(answer.get("error") if isinstance(answer, dict) else answer))
        return answer

    def _end(self) -> None:
        process, self._process, self._pending = self._process, None, b""
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def release(version: str) -> str:
    """Return the part of a version that says which libslurm fits: "22.05" of "slurm-wlm 22.05.8", and of "22.5.1", as
    Python's packages spell it. Empty when there is none."""
    match = re.search(r"(\d+)\.(\d+)", version)
    return f"{match[1]}.{int(match[2]):02d}" if match else ""


def line(job: Mapping[str, Any]) -> QueueLine:
    """One job of the process' answer as the value that parse.queue makes of squeue's."""
    reason = job["state_reason"] or ""
    return QueueLine(
        job_id=str(job["id"]),
        state=job["state"],
        reason="" if reason in ABSENT else reason,
        exit=_exit(job["exit_code"], job["exit_code_signal"]),
        derived=_exit(job["derived_exit_code"], job["derived_exit_code_signal"]),
        submitted_at=_time(job["submit_time"]),
        started_at=_time(job["start_time"]),
        ends_at=_time(job["end_time"]),
        preempted_at=_time(job["preempt_time"]),
        restarts=job["requeue_count"] or 0,
        nodes=expand_hosts(job["allocated_nodes"] or ""),
        cluster=job["cluster"] or "",
        name=job["name"] or "",
        user=job["user_name"] or "",
        partition=job["partition"] or "",
        num_nodes=job["num_nodes"] or 0,
        cpus=job["cpus"] or 0,
        gpus=job["gpus"] or 0,
    )


def _exit(code: int | None, number: int | None) -> SlurmExit | None:
    if number:
        return SlurmExit(signal=number)
    return SlurmExit(code=code) if code is not None else None


def _time(value: int | None) -> float | None:
    return float(value) if value else None


# -- the other end ------------------------------------------------------------------------------------------

FIELDS = (
    "id", "name", "state", "state_reason", "exit_code", "exit_code_signal", "derived_exit_code",
    "derived_exit_code_signal", "submit_time", "start_time", "end_time", "preempt_time", "requeue_count",
    "allocated_nodes", "cluster", "user_id", "user_name", "partition", "num_nodes", "cpus",
)  # fmt: skip


def serve() -> None:
    """Answer until standard input ends."""
    pyslurm = importlib.import_module("pyslurm")
    print(json.dumps({"version": pyslurm.__version__}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(_load(pyslurm)), flush=True)


def _load(pyslurm: Any) -> dict[str, Any]:
    try:
        jobs = pyslurm.Jobs.load(preload_passwd_info=True)
        listed = [{field: getattr(job, field) for field in FIELDS} | {"gpus": _gpus(job)} for job in jobs.values()]
        return {"jobs": listed}
    except Exception as error:  # every kind of RPCError, and an attribute that this pyslurm lacks
        return {"error": f"{type(error).__name__}: {error}"}


def _gpus(job: Any) -> int:
    """GPUs of a job on all its nodes. From 25.11 on pyslurm reports the total; `gres_per_node` goes after it."""
    if found := getattr(job, "gpus", None):
        return sum(gpu.count for gpu in found.values())
    if each := getattr(job, "gres_per_node", None):
        return (job.num_nodes or 0) * _counted(each)
    layout = job.get_resource_layout_per_node() if job.state == "RUNNING" else {}
    return sum(_counted({name: gres["count"] for name, gres in node["gres"].items()}) for node in layout.values())


def _counted(gres: Mapping[str, Any]) -> int:
    """GPUs of `{"gpu:a100": 2, "nvme": 1}`."""
    return sum(int(count) for name, count in gres.items() if name.partition(":")[0] == "gpu")


if __name__ == "__main__":
    serve()
