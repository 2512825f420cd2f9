"""Wrapper scripts for PBS's commands that misbehave on request.

The words of a fault are bash; `$REAL` in them is the real command.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.support.pbs.site import PbsSite
from trainmaster.dispatchers.conformance import WORD

PROGRAMS = ("qsub", "qstat", "qselect", "qdel", "qsig", "pbsnodes")

# What a site's profile or hook may print, down to what looks like a job.
BANNER = (
    'echo "*** Welcome! ***"; echo "Job Id: 1.fake"; echo "    Job_Name = x"; '
    'echo "module: loading the default environment" >&2; "$REAL" "$@"; s=$?; echo bye; exit $s'
)
UNANSWERED = '"$REAL" "$@" >/dev/null; kill -9 $$'
# Behind the mark that no value holds, so that no job's own text is changed. Standard error is not touched.
STRANGE = rf'"$REAL" "$@" | sed -E "s/(\x1f *job_state=)[A-Z]/\1{WORD}/g"; exit "${{PIPESTATUS[0]}}"'


def put_script(path: Path, site: PbsSite, text: str) -> str:
    """A script at `path`, in the place of PBS's command of that name."""
    path.write_text(f"#!/bin/bash\nREAL={shlex.quote(str(site.bin / path.name))}\n{text}\n")
    path.chmod(0o755)
    return str(path)


class SpoiledCommands:
    """All commands in `folder`: the real ones, except inside `spoiled`. `paths` is for the dispatcher's options."""

    def __init__(self, site: PbsSite, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        fault = '[ ! -e "$0.fault" ] || . "$0.fault"\nexec "$REAL" "$@"'
        self.paths = {name: put_script(folder / name, site, fault) for name in PROGRAMS}

    @contextlib.contextmanager
    def spoiled(self, fault: str, *names: str) -> Iterator[None]:
        """Inside the block, these commands run `fault` first, and then the real command unless the fault exits."""
        faults = [self._folder / f"{name}.fault" for name in names]
        for path in faults:
            path.write_text(fault)
        try:
            yield
        finally:
            for path in faults:
                path.unlink()
