"""Starts masters from a process that has read their modules already: reading them is most of what a start costs.

It is the fork server of `multiprocessing`, one for each process of the test run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.support.forked", "trainmaster.cli.admin", "trainmaster.master.main"])


class ForkedAdmin:
    """A `trainmaster` command in a process of its own, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], cwd: str, log: Path) -> None:
        """`log`: the file that its standard error is appended to."""
        reads, writes = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run,
            args=(tuple(arguments), dict(environment), cwd, str(log), writes),
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


def _run(arguments: Sequence[str], environment: Mapping[str, str], cwd: str, log: str, output: Connection) -> None:
    os.dup2(output.fileno(), 1)
    output.close()
    error = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(error, 2)
    os.close(error)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the fork server ignores it
    from trainmaster.cli import admin

    try:
        status = admin.main(arguments)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
