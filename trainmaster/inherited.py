"""Keep the limits of the master's own process out of the programs that it starts for jobs.

The master raises its limit of open files for its connections. sbatch passes the limits of its caller on to the job, and
a child process inherits them: a training would get a limit that no other job of its scheduler has.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence

_SOFT = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # when the process began: nothing has raised it yet


def with_own_limits(argv: Sequence[str]) -> list[str]:
    """Return a command that runs `argv` with the limits that this process began with."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == _SOFT:
        return list(argv)
    limit = "unlimited" if _SOFT == resource.RLIM_INFINITY else str(_SOFT)
    # `env` looks for the program, and says where it finds none.
    return ["/bin/sh", "-c", 'ulimit -Sn "$1"; shift; exec /usr/bin/env "$@"', "sh", limit, *argv]
