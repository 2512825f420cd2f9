"""Starts masters and `det` from a process that has read their modules already: reading them is most of what a start
costs.

It is the fork server of `multiprocessing`, one for each process of the test run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from trainmaster.cli.det import NOUNS

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("tests.support.forked", "trainmaster.cli.admin", "trainmaster.master.main", "trainmaster.client.master"),
        *("trainmaster.cli.session", "trainmaster.cli.render", *(module for _, module, _ in NOUNS.values())),
    ]
)


class ForkedAdmin:
    """A `trainmaster` command in a process of its own, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], cwd: str, log: Path) -> None:
        """`log`: the file that its standard error is appended to."""
        reads, writes = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run,
            args=(tuple(arguments), dict(environment), cwd, _umask(), str(log), writes),
            daemon=True,  # ended with the test run if a test leaves it behind
        )
        self._process.start()
        writes.close()
        self.stdout: IO[str] = os.fdopen(os.dup(reads.fileno()))
        reads.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("trainmaster", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run_det(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: str, deadline: float
) -> tuple[int, str, str]:
    """`det` without a terminal: its status, and what it wrote to standard output and error."""
    with tempfile.TemporaryDirectory(prefix="tm-det-") as folder:
        streams = Path(folder, "out"), Path(folder, "err")
        process = _CONTEXT.Process(
            target=_run_det, args=(tuple(arguments), dict(environment), cwd, _umask(), *map(str, streams)), daemon=True
        )
        process.start()
        process.join(deadline)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired("det", deadline)
        out, err = (path.read_text() if path.exists() else "" for path in streams)
        return process.exitcode, out, err


def _run(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: str, umask: int, log: str, output: Connection
) -> None:
    os.dup2(output.fileno(), 1)
    output.close()
    _write_to(log, 2)
    from trainmaster.cli import admin

    _become(admin.main, arguments, environment, cwd, umask)


def _run_det(
    arguments: Sequence[str], environment: Mapping[str, str], cwd: str, umask: int, out: str, err: str
) -> None:
    _write_to(out, 1)
    _write_to(err, 2)
    from trainmaster.cli import det

    _become(det.main, arguments, environment, cwd, umask)


def _umask() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()  # os.umask() would have to change it for a moment
    return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)


def _write_to(path: str, stream: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, stream)
    os.close(file)


def _become(
    main: Callable[[Sequence[str]], int], arguments: Sequence[str], environment: Mapping[str, str], cwd: str, umask: int
) -> None:
    """Run the program in this process, to its end."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    os.umask(umask)  # the fork server has that of the first test that needed it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    try:
        status = main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
