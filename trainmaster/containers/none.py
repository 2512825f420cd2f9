"""Container runtime `none`: the job's process runs directly on the node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from trainmaster.containers.base import SHARED_FILES, Cause, ContainerStart
from trainmaster.containers.causes import explained, sign
from trainmaster.templates import render

_SIGNS = (
    sign(
        r"line \d+: (exec: )?\S+: (not found|No such file|cannot execute)",
        "The node has no working Python; a job needs Python 3.8 or newer",
        final=False,
    ),
)


class NoContainer:
    """Run the process directly, with a private folder for temporary files."""

    name = "none"
    program = ""
    supports: ClassVar[frozenset[str]] = frozenset({SHARED_FILES})
    scheduler: ClassVar[str] = ""

    def __init__(self, command: str | None = None) -> None:
        del command  # there is none

    def resolve(self, image: str, root: str | None, *, fresh: bool = False) -> str:
        del root, fresh
        return image

    def start_script(self, start: ContainerStart) -> str:
        return render(
            "start_none.sh.j2",
            job_folder=start.job_folder,
            scratch=list(start.scratch),
            variables=sorted(start.variables.items()),
            command=start.process,
        )

    def check(self, image: str) -> Sequence[str]:
        """Return nothing: the image is not used."""
        del image
        return ()

    def explain(self, output: str) -> Cause | None:
        return explained(output, _SIGNS)
