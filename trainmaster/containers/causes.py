"""Reads from a job's output why its container, or the Python in it, did not start.

Every runtime has a list of signs: what its program prints, and what that means to the owner of the trial.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainmaster.containers.base import Cause

LONGEST = 400  # characters of what was printed


@dataclass(frozen=True)
class Sign:
    """What a line that fits `pattern` means. `final`: no other attempt would go better."""

    pattern: re.Pattern[str]
    meaning: str
    final: bool = True


def sign(pattern: str, meaning: str, *, final: bool = True) -> Sign:
    return Sign(re.compile(pattern), meaning, final)


NO_IMAGE = "The container image cannot be read on the node"
NO_PYTHON = "The container image has no Python that can be started, and a job needs Python 3.8 or newer in it"
OLD_PYTHON = "The container image's Python is too old"
DAMAGED = "The container image is damaged, or no image at all"
NOT_FETCHED = "The container image could not be fetched"
NO_SOURCE = "What bind_mounts names is not there on the node"
NO_TOOL = "The container runtime's program is not there on the node"

# Of what start.sh, and the first lines of the runtime in an old Python, say themselves.
OWN = (
    sign(r"^trainmaster: the job's image needs Python 3\.8", OLD_PYTHON),
    sign(r"start\.sh: line \d+: (exec: )?\S+: (not found|No such file|cannot execute)", NO_TOOL, final=False),
    sign(r"^env: '?.+'?: No such file or directory$", NO_TOOL, final=False),
    sign(r"^trainmaster: ", "The job could not be started on its node", final=False),
)


def explained(output: str, signs: Sequence[Sign]) -> Cause | None:
    """The first of `signs`, then of OWN, that a line of `output` shows."""
    lines = [line.strip() for line in output.splitlines()]
    for each in (*OWN[:1], *signs, *OWN[1:]):
        for line in lines:
            if each.pattern.search(line):
                said = "".join(c if c.isprintable() else " " for c in line.removeprefix("trainmaster: "))
                return Cause(f"{each.meaning}: {said[:LONGEST].rstrip('.')}", each.final)
    return None
