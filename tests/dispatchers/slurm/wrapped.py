"""Slurm's commands behind scripts of ours that misbehave when they are told to."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from trainmaster.dispatchers.conformance import WORD

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct")
SCRIPT = """#!/bin/bash
# The real command, spoiled as the files beside this script say.
here={folder}
if [ -e "$here/noisy" ]; then
    echo "Welcome to the cluster! Maintenance on Monday."
    echo "module: loading the default environment" >&2
fi
if [ -e "$here/slow" ]; then sleep "$(cat "$here/slow")"; fi
if [ -e "$here/strange" ] && [ {name} = squeue ]; then
    {real} "$@" | sed -E 's/(PENDING|RUNNING|COMPLETED|COMPLETING)/{word}/g'
    status=${{PIPESTATUS[0]}}
elif [ -e "$here/truncated" ] && [ {name} = squeue ]; then
    {real} "$@" | head -c "$(cat "$here/truncated")"
    status=${{PIPESTATUS[0]}}
elif [ -e "$here/stale" ] && [ {name} = squeue ]; then
    cat "$here/stale"
    status=0
elif [ -e "$here/unanswered" ] && [ {name} = sbatch ]; then
    {real} "$@" > /dev/null || exit
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
    status=1
else
    {real} "$@"
    status=$?
fi
[ ! -e "$here/noisy" ] || echo "Connection to the licence server closed."
exit $status
"""


class Wrapped:
    """The commands in `folder`; `commands` is what the dispatcher's options want."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: dict[str, str] = {}
        for name in PROGRAMS:
            script = folder / name
            real = shutil.which(name)
            assert real is not None
            script.write_text(SCRIPT.format(folder=f"'{folder}'", name=name, real=real, word=WORD))
            script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            self.commands[name] = str(script)

    @contextlib.contextmanager
    def spoiled(self, how: str, value: str = "") -> Iterator[None]:
        """Inside, the commands are noisy, strange, unanswered, slow (seconds), truncated (bytes) or stale (text)."""
        mark = self.folder / how
        mark.write_text(value)
        try:
            yield
        finally:
            mark.unlink()
