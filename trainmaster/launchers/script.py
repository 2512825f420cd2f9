"""`python3 -m trainmaster.launchers.script (--shell COMMAND | -- PROGRAM ARGS...)`: become the user's
program.

The runtime starts every entrypoint through this: it ties the program to the runtime's life, then execs.
Leaves with 127 when there is no such program and 126 when it may not be run, as a shell would.
"""

from __future__ import annotations

import os
import sys
from typing import List, NoReturn, Sequence

from trainmaster.launchers.death import die_with_parent


def argument_vector(arguments: Sequence[str]) -> List[str]:
    """The program and its arguments. Raises ValueError for anything but the two forms above."""
    if len(arguments) == 2 and arguments[0] == "--shell":
        return ["sh", "-c", arguments[1]]
    if len(arguments) >= 2 and arguments[0] == "--":
        return list(arguments[1:])
    raise ValueError("usage: python3 -m trainmaster.launchers.script (--shell COMMAND | -- PROGRAM ARGS...)")


def main(arguments: Sequence[str]) -> NoReturn:
    """Exec the program; never returns."""
    try:
        program = argument_vector(arguments)
    except ValueError as error:
        sys.exit(str(error))
    die_with_parent(os.getppid())
    try:
        os.execvp(program[0], program)  # noqa: S606 - there must be no shell
    except FileNotFoundError:
        sys.stderr.write(
            "entrypoint: there is no program %r in this image (or its interpreter is missing)\n" % program[0]
        )
        status = 127
    except OSError as error:
        sys.stderr.write("entrypoint: %r cannot be run: %s\n" % (program[0], error.strerror or error))
        status = 126
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
