"""Wrapper scripts for Slurm's commands that misbehave on request."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainmaster.dispatchers.conformance import WORD

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct")
SCRIPT = r"""#!/bin/bash
# The real command, spoiled as the files beside this script say.
here={folder} name={name} real={real}
token="" mark="" separator=$'\x1f'
for word in "$@"; do
    case "$word" in
    --job-name=*) token="${{word#*=}}" ;;
    --Format=*) mark="${{word#*"$separator"}}" mark="${{mark%%"$separator"*}}" ;;
    esac
done
[ "$name" != sbatch ] || [ -n "$token" ] || exec "$real" "$@"  # it is only asked for its version
fault="" value=""
if [ -s "$here/plan.$name" ]; then  # one line a call
    take='head -n 1 "$0"; sed -i 1d "$0"'
    read -r fault value < <(flock "$here/lock" bash -c "$take" "$here/plan.$name")
elif [ -e "$here/now.$name" ]; then
    read -r fault value < "$here/now.$name"
fi
if [ -e "$here/noisy" ]; then
    echo "Welcome to the cluster! Maintenance on Monday."
    echo "module: loading the default environment" >&2
fi
if [ -e "$here/slow" ]; then sleep "$(cat "$here/slow")"; fi
said="$fault"
if [ "$fault" = slow ]; then
    sleep "$value"
    fault=""
fi

submit() {{
    answer="$("$real" "$@")" || return
    echo "$token ${{answer%%;*}}" >> "$here/accepted"
}}

status=0
case "$name:$fault" in
*:refuses)  # nothing happens, in these words
    echo "$name: error: $value" >&2
    status=1 ;;
sbatch:unanswered)  # the job is taken, its number never arrives
    submit "$@" || exit
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
    status=1 ;;
sbatch:killed-before)
    kill -9 $$ ;;
sbatch:killed-after)
    submit "$@"
    kill -9 $$ ;;
sbatch:fatal)  # to the master itself, between the scheduler's answer and its own note of it
    submit "$@"
    kill -9 "$(cat "$here/master.pid")" ;;
sbatch:)
    submit "$@" || exit
    echo "$answer" ;;
squeue:strange)
    "$real" "$@" | sed -E 's/(PENDING|RUNNING|COMPLETED|COMPLETING)/{word}/g' ;;
squeue:truncated)  # after so many bytes
    "$real" "$@" | head -c "$value" ;;
squeue:shortened)  # after so many lines, at the end of a record
    "$real" "$@" | head -n "$value" ;;
squeue:thinned)  # without every so manieth line, its heading excepted
    "$real" "$@" | sed "3~${{value}}d" ;;
squeue:garbage)
    "$real" "$@" | tr '[:print:]' '[:print:][:cntrl:]' | head -c 700; head -c 300 /dev/urandom ;;
squeue:forgetful)  # of everything that has ended
    "$real" "$@" | sed -E '/\x1f(COMPLETED|COMPLETING|FAILED|CANCELLED)\x1f/d' ;;
squeue:empty) ;;
squeue:hangs)  # for so many seconds, or until it is killed
    echo $$ > "$here/hung"
    exec sleep "$value" ;;
squeue:replayed)  # an answer to an older question
    cat "$here/kept.$name" ;;
squeue:stale)  # the same, made to look like an answer to this one
    sed -E "s/([\x1e\x1f])[0-9a-f]{{16}}([\x1e\x1f])/\1$mark\2/g" "$here/kept.$name" ;;
squeue:)
    "$real" "$@" > "$here/last.$name.$$" || status=$?
    mv -f "$here/last.$name.$$" "$here/last.$name"
    cat "$here/last.$name" ;;
*)
    "$real" "$@" || status=$? ;;
esac
echo "$said" >> "$here/calls.$name"
[ ! -e "$here/noisy" ] || echo "Connection to the licence server closed."
exit $status
"""


class Wrapped:
    """The commands in `folder`, which every account that runs them can write to; `commands` is what the dispatcher's
    options want. Faults, and what stands after them, are the cases of the script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: dict[str, str] = {}
        folder.chmod(0o777)
        for name in PROGRAMS:
            script = folder / name
            real = shutil.which(name)
            assert real is not None
            script.write_text(SCRIPT.format(folder=f"'{folder}'", name=name, real=real, word=WORD))
            script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
            self.commands[name] = str(script)

    @contextlib.contextmanager
    def spoiled(self, how: str, value: str = "") -> Iterator[None]:
        """Inside the block, all commands are noisy or slow (seconds), sbatch does not answer, or squeue has another
        fault."""
        mark = self.folder / how
        if how not in ("noisy", "slow"):
            mark = self.folder / f"now.{'sbatch' if how == 'unanswered' else 'squeue'}"
            value = f"{how} {value}\n"
        before = mark.read_text() if mark.exists() else None
        self._put(mark, value)
        try:
            yield
        finally:
            if before is None:
                mark.unlink()
            else:
                self._put(mark, before)

    @staticmethod
    def _put(mark: Path, value: str) -> None:
        """At once, for commands that read it meanwhile."""
        draft = mark.with_suffix(".draft")
        draft.write_text(value)
        draft.replace(mark)

    def plan(self, program: str, faults: Sequence[str]) -> None:
        """Set one fault for each call, in this order; "ok" is none."""
        path = self.folder / f"plan.{program}"
        path.write_text("".join(f"{'' if fault == 'ok' else fault}\n" for fault in faults))
        path.chmod(0o666)

    def keep(self) -> None:
        """What squeue prints when it is `stale` or `replayed`: its last good answer."""
        shutil.copy(self.folder / "last.squeue", self.folder / "kept.squeue")
        (self.folder / "kept.squeue").chmod(0o644)

    def calls(self, program: str) -> list[str]:
        """The fault of every call so far."""
        path = self.folder / f"calls.{program}"
        return path.read_text().splitlines() if path.exists() else []

    def accepted(self) -> list[tuple[str, str]]:
        """Token and number of every job that Slurm took."""
        path = self.folder / "accepted"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(line.split(" ")[0], line.split(" ")[1]) for line in lines]
