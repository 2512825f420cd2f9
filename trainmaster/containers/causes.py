"""Finds the reason why a container, or the Python in it, did not start, in the job's output.

Every runtime has a list of signs: patterns of what its program prints, with their meaning for the owner of the trial.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.containers.base import DAMAGED_RUNTIME, Cause

LONGEST = 400  # characters of what was printed


@dataclass(frozen=True)
class Sign:
    """Meaning of a line that matches `pattern`. `final`: another attempt would fail in the same way. `uncharged`:
    neither the owner nor the image is to blame."""

    pattern: re.Pattern[str]
    meaning: str
    final: bool = True
    uncharged: bool = False


def sign(pattern: str, meaning: str, *, final: bool = True) -> Sign:
    return Sign(re.compile(pattern), meaning, final)


NO_IMAGE = "The container image cannot be read on the node"
NO_PYTHON = "The container image has no working Python; a job needs Python 3.8 or newer in it"
OLD_PYTHON = "The container image's Python is too old"
DAMAGED = "The container image is damaged, or is not an image"
NOT_FETCHED = "The container image could not be fetched"
NO_SOURCE = "A path in bind_mounts does not exist on the node"
NO_TOOL = "The container runtime's program is not installed on the node"

# Messages of start.sh itself, and of the first lines of the runtime in an old Python.
OWN = (
    sign(r"^trainmaster: the job's image needs Python 3\.8", OLD_PYTHON),
    Sign(re.compile(f"^trainmaster: {DAMAGED_RUNTIME}"), "The job's files were damaged", final=False, uncharged=True),
    sign(r"start\.sh: line \d+: (exec: )?\S+: (not found|No such file|cannot execute)", NO_TOOL, final=False),
    sign(r"^env: '?.+'?: No such file or directory$", NO_TOOL, final=False),
    sign(r"^trainmaster: ", "The job could not be started on its node", final=False),
)


def explained(output: str, signs: Sequence[Sign]) -> Cause | None:
    """Return the cause for the first of `signs`, then of OWN, that a line of `output` matches; None without a match."""
    lines = [line.strip() for line in output.splitlines()]
    for each in (*OWN[:2], *signs, *OWN[2:]):
        for line in lines:
            if each.pattern.search(line):
                shown = "".join(c if c.isprintable() else " " for c in line.removeprefix("trainmaster: "))
                return Cause(f"{each.meaning}: {shown[:LONGEST].rstrip('.')}", each.final, each.uncharged)
    return None
