"""The one place that runs commands: a deadline on each, a scrubbed environment, no shell.

It drives a plumbum machine, so the same builders and parsers serve this machine and, given another machine object, one
behind SSH. The environment is set by `env -i` in front of the command, because a remote login would otherwise add its
own; nothing of the master's (SLURM_*, SBATCH_*, conda, LD_*) gets through. No secret is ever passed this way.
"""

from __future__ import annotations

import getpass
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plumbum
from plumbum.commands.processes import CommandNotFound, ProcessTimedOut

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Outcome:
    """What one command did. `timed_out` means that we ended it: what it had done by then is not known."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    not_found: bool = False

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out and not self.not_found


class Shell:
    """Runs commands on one machine as the account that the machine object stands for."""

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        path: str = DEFAULT_PATH,
        machine: Any = plumbum.local,
    ) -> None:
        """`environment` is added to the little that is always there (PATH, HOME, USER, LOGNAME, LANG, SHELL)."""
        user = getpass.getuser()
        self._machine = machine
        self.path = path
        self.environment = {
            "PATH": path,
            "HOME": os.path.expanduser("~"),
            "USER": user,
            "LOGNAME": user,
            "SHELL": "/bin/bash",
            # Messages are read by this program, so they must come in English.
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            **(environment or {}),
        }

    def find(self, command: str) -> str | None:
        """Full path of a command on this machine, or None."""
        return shutil.which(command, path=self.path)

    def run(self, argv: Sequence[str], *, deadline: float, stdin: str = "") -> Outcome:
        """Run `argv` and wait at most `deadline` seconds. Never raises for what the command does."""
        words = ("-i", *(f"{name}={value}" for name, value in self.environment.items()), *argv)
        begun = time.monotonic()
        try:
            command = self._machine["/usr/bin/env"][words] << stdin
            code, out, err = command.run(retcode=None, timeout=deadline)
        except ProcessTimedOut:
            return Outcome(tuple(argv), -1, "", "", time.monotonic() - begun, timed_out=True)
        except (CommandNotFound, OSError) as error:
            return Outcome(tuple(argv), 127, "", str(error), time.monotonic() - begun, not_found=True)
        seconds = time.monotonic() - begun
        # `env` answers 127 when it does not find the command, 126 when it may not run it.
        missing = code in (126, 127) and err.startswith(("/usr/bin/env:", "env:"))
        return Outcome(tuple(argv), int(code), out, err, seconds, not_found=missing)
