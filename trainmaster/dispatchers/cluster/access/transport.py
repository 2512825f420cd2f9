"""Starts programs as another account or on another machine and exchanges bytes with them, with a deadline on each step.

TransportError
|-- ProgramNotStarted  the program was certainly not started, or no request was sent yet
`-- ConnectionLost     the connection was lost, or fell silent, after that
"""

from __future__ import annotations

import os
import select
import signal
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE
from typing import Protocol

import plumbum
from plumbum.commands.processes import CommandNotFound

from trainmaster.inherited import with_own_limits

CHUNK = 64 * 1024  # bytes read or written at once
COMPLAINT = 64 * 1024  # bytes of standard error that are kept
GOES_ON = 2.0  # seconds to wait for an ended program to exit


class TransportError(Exception):
    """Base of errors in reaching a program; the message is a sentence for the administrator."""


class ProgramNotStarted(TransportError):
    pass


class ConnectionLost(TransportError):
    pass


class Channel(Protocol):
    """One running program. Used by one thread."""

    def send(self, data: bytes, until: float) -> None:
        """Write to its standard input; `until` is on time.monotonic's clock. Raises TimeoutError, OSError."""

    def receive(self, until: float) -> bytes:
        """Return the next bytes of its standard output; empty at the end. Raises TimeoutError, OSError."""

    def close(self) -> str:
        """Close the channel, end the program where possible, and return what it wrote to standard error."""


class ProgramTransport(Protocol):
    """Starts programs on one machine as one account. Used by several threads at once."""

    place: str  # for messages: "" for this machine, else " on HOST"

    def start(self, argv: Sequence[str], until: float) -> Channel:
        """Start `argv`, before `until` by the monotonic clock. Raises ProgramNotStarted."""

    def invalidate(self) -> None:
        """Discard the connection, because a command timed out; the next command opens a new one."""

    def close(self) -> None:
        """Close the connection. Programs that run are interrupted."""


class ProcessChannel:
    """A program that is a child process of this one, such as sudo or ssh."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `argv` as a child process. Raises ProgramNotStarted."""
        # A file, because an ssh connection that stays open for later commands keeps standard error open.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        words = ("-i", *(f"{name}={value}" for name, value in environment.items()), *with_own_limits(argv))
        try:
            self._process = plumbum.local["/usr/bin/env"][words].popen(
                stdin=PIPE, stdout=PIPE, stderr=self._errors, new_session=True, cwd="/"
            )
        except (CommandNotFound, OSError) as error:
            self._errors.close()
            raise ProgramNotStarted(f"{argv[0]} cannot be started: {error}.") from None
        assert self._process.pid is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._pid, self._in, self._out = self._process.pid, self._process.stdin, self._process.stdout
        os.set_blocking(self._in.fileno(), False)

    def send(self, data: bytes, until: float) -> None:
        view = memoryview(data)
        while view:
            _wait(self._in.fileno(), select.POLLOUT, until)
            with suppress(BlockingIOError):
                view = view[os.write(self._in.fileno(), view[:CHUNK]) :]

    def receive(self, until: float) -> bytes:
        _wait(self._out.fileno(), select.POLLIN, until)
        return os.read(self._out.fileno(), CHUNK)

    def close(self) -> str:
        self._in.close()
        self._out.close()
        until = time.monotonic() + GOES_ON
        while self._process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        if self._process.poll() is None:
            # sudo runs as root, so we may not kill it; it ends when the program below it meets its own deadline.
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
            threading.Thread(target=self._process.wait, daemon=True).start()
        with self._errors as file:
            file.seek(0)
            return file.read(COMPLAINT).decode(errors="replace").rstrip("\ufffd")


def _wait(descriptor: int, event: int, until: float) -> None:
    """Wait for an event. Raises TimeoutError. Not select(), which supports no descriptor above 1023."""
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
        raise TimeoutError


class LocalTransport:
    """This machine, through sudo or nothing at all."""

    place = ""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def start(self, argv: Sequence[str], until: float) -> Channel:  # noqa: ARG002 a process starts at once
        return ProcessChannel(argv, self._environment)

    def invalidate(self) -> None:
        """Do nothing: programs share no connection."""

    def close(self) -> None:
        """Do nothing: there is no connection."""
