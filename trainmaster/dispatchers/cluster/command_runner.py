"""Runs all commands of dispatchers: each with a deadline, a scrubbed environment and no shell.

`Runner` is what dispatchers use: this machine under the master's own account (`Shell`, here), or another account or
machine (`trainmaster.dispatchers.cluster.access`), with the same builders and parsers. `env -i` starts from an empty
environment, so that no variable of the master (SLURM_*, SBATCH_*, conda, LD_*) reaches a command. No secret is ever
passed this way.
"""

from __future__ import annotations

import getpass
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

import plumbum
from plumbum.commands.processes import CommandNotFound, ProcessTimedOut

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Rejected, Unreachable
from trainmaster.inherited import with_own_limits

LOCALE = ("LANG", "LC_ALL")  # variables that every command gets
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class CommandResult:
    """Result of one command. `timed_out`: it was killed at its deadline, and what it had done by then is not known.

    The last three are sentences on why the command could not be reached; empty when it was.
    """

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    not_found: bool = False
    unreached: str = ""  # why the command was certainly never started
    cut: str = ""  # how the connection was lost, after the command may have begun
    refused: str = ""  # why it may not be run as that user at all

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out and not self.not_found and self.way_failure() is None

    def way_failure(self, token: str | None = None, *, repeatable: bool = True) -> DispatcherError | None:
        """Return the error of reaching the command, regardless of its own output; None when it ran to its end. After a
        lost connection a `repeatable` command can be run again (Transient); any other may have had its effect
        (Ambiguous)."""
        if self.refused:
            return Rejected(self.refused, token=token)
        if self.unreached:
            return Unreachable(self.unreached, token=token)
        if self.cut:
            return (Unreachable if repeatable else Ambiguous)(self.cut, token=token)
        return None


class Runner(Protocol):
    """Runs commands on some machine as some account. Every command gets `path` and `environment`."""

    path: str
    environment: Mapping[str, str]

    def run(self, argv: Sequence[str], *, deadline: float, stdin: str = "") -> CommandResult:
        """Run `argv` and wait at most `deadline` seconds. Never raises for a command that fails or cannot be
        reached."""


class Shell:
    """Runs commands on this machine as the account of this process."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        path: str = DEFAULT_PATH,
    ) -> None:
        """`environment` is added to the base variables (PATH, HOME, USER, LOGNAME, LANG, SHELL)."""
        user = getpass.getuser()
        self.path = path
        self.environment: Mapping[str, str] = {
            "PATH": path,
            "HOME": os.path.expanduser("~"),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            # This program parses the messages, so they must be in English.
            **dict.fromkeys(LOCALE, "C.UTF-8"),
            **(environment or {}),
        }

    def find(self, command: str) -> str | None:
        """Full path of a command on this machine, or None."""
        return shutil.which(command, path=self.path)

    def run(self, argv: Sequence[str], *, deadline: float, stdin: str = "") -> CommandResult:
        """Run `argv` and wait at most `deadline` seconds. Never raises for a command that fails."""
        words = ("-i", *(f"{name}={value}" for name, value in self.environment.items()), *with_own_limits(argv))
        begun = time.monotonic()
        try:
            # Into memory, not through pipes: squeue writes its megabytes in pieces of 4 KiB and would wake us for
            # each, and a pipe ends only when all processes that the command started have closed it.
            with _memory("stdout") as out, _memory("stderr") as err:
                command = ((plumbum.local["/usr/bin/env"][words] << stdin) > out) >= err
                code, _, _ = command.run(retcode=None, timeout=deadline)
                stdout, stderr = _text(out), _text(err)
        except ProcessTimedOut:
            return CommandResult(tuple(argv), -1, "", "", time.monotonic() - begun, timed_out=True)
        except (CommandNotFound, OSError) as error:
            return CommandResult(tuple(argv), 127, "", str(error), time.monotonic() - begun, not_found=True)
        seconds = time.monotonic() - begun
        # `env` answers 127 when it does not find the command, 126 when it may not run it.
        missing = code in (126, 127) and stderr.startswith(("/usr/bin/env:", "env:"))
        return CommandResult(tuple(argv), int(code), stdout, stderr, seconds, not_found=missing)


def _memory(name: str) -> BinaryIO:
    return os.fdopen(os.memfd_create(name), "w+b")


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
