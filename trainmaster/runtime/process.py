"""Starts the user's process in a session of its own, signals it, and ends everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

from trainmaster.runtime.prctl import die_with_parent

# Some containers are started with these ignored, and a process inherits that.
# A shell ignores SIGINT and SIGQUIT in what it starts in the background.
_TO_DEFAULT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)


def start(
    entrypoint: Union[str, Tuple[str, ...]],
    environment: Mapping[str, str],
    workdir: str,
    stdout: int,
    stderr: int,
    hooks: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start the entrypoint in a session of its own; the kernel kills it when this process ends.

    A string goes to `sh -c`, a tuple is the argument vector. `stdout` and `stderr` are the write ends of pipes.
    `hooks` are shell scripts that are read into one shell before it becomes the entrypoint, so that what they
    export holds for it; the first command in them that fails ends the attempt.

    To be called in the main thread: the kernel counts the end of the thread that called as that of the parent.

    Raises OSError, whose `filename` is the program, when it cannot be run.
    """
    command = ["sh", "-c", entrypoint] if isinstance(entrypoint, str) else list(entrypoint)
    if hooks:
        command = _after_hooks(hooks, command, environment.get("PATH"))
    parent = os.getpid()
    umask = _umask_of_the_job()
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env=dict(environment),
            cwd=workdir,
            start_new_session=True,
            pass_fds=pmi_descriptor(environment),
            preexec_fn=lambda: _prepare(parent, umask),
        )
    except OSError as error:
        if error.filename is not None:
            raise
        # From fork itself: the account or its control group has as many processes as it may have.
        raise OSError(error.errno, error.strerror, command[0]) from error


def _umask_of_the_job() -> Optional[int]:
    """Return the umask that the scheduler gave the job; the scripts that start this process keep their own files
    private."""
    text = os.environ.get("TRAINMASTER_UMASK", "")
    return int(text, 8) if text and set(text) <= set("01234567") else None


def _prepare(parent: int, umask: Optional[int]) -> None:
    """Prepare the new process between fork and exec. Other threads may have held locks when it was forked: nothing here
    may import a module or write to the log."""
    for number in _TO_DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    if umask is not None:
        os.umask(umask & 0o777)
    # A scheduler's warning (SIGUSR2) is for the runtime; Slurm sends it to every process of a step, and it ends a
    # process that has no handler for it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    die_with_parent(parent)


def pmi_descriptor(environ: Mapping[str, str]) -> List[int]:
    """Return the open file over which the scheduler's PMI talks to an MPI program, for `pass_fds`; empty without
    one."""
    try:
        descriptor = int(environ.get("PMI_FD", ""))
        os.fstat(descriptor)
    except (ValueError, OSError):
        return []
    return [descriptor]


def _after_hooks(hooks: Sequence[str], command: Sequence[str], path: Optional[str]) -> List[str]:
    import shutil  # few jobs have hooks

    shell = shutil.which("bash", path=path) or "sh"  # hooks are written for bash; a small image may not have it
    reads = "".join('. "${%d}"\n' % (number + 1) for number in range(len(hooks)))
    script = 'set -e\n%sset +e\nshift %d\nexec "$@"' % (reads, len(hooks))
    return [shell, "-c", script, "startup hook", *hooks, *command]


def signal_group(child: subprocess.Popen[bytes], signum: int) -> None:
    """Signal the user's process group. Does nothing when it is gone."""
    try:
        os.killpg(child.pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def descendants(of: Optional[int] = None) -> List[int]:
    """List all processes below `of` (default: this one), without zombies."""
    children: Dict[int, List[int]] = {}
    zombies: Set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry, "rb") as file:
                # The name, in brackets, may hold anything.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        children.setdefault(int(parent), []).append(int(entry))
        if state == b"Z":
            zombies.add(int(entry))
    pids: List[int] = []
    todo = [os.getpid() if of is None else of]
    while todo:
        below = children.get(todo.pop(), [])
        todo.extend(below)
        pids.extend(pid for pid in below if pid not in zombies)
    return pids


def end_descendants(grace: float, spared: Collection[int] = ()) -> List[int]:
    """End everything below this process, but for the children `spared`: SIGTERM, after `grace` seconds SIGKILL. Returns
    the pids that were there.

    To be called when the user's process has ended. Reaps what became ours.
    """
    if not reap():
        return []  # this process has no children, and so no descendants
    ended: Set[int] = set()
    deadline = time.monotonic() + grace
    final = deadline + 10.0  # a process in uninterruptible sleep may not go at all
    while True:
        alive = [pid for pid in descendants() if pid not in spared]
        now = time.monotonic()
        for pid in alive:
            if pid not in ended or now > deadline:
                ended.add(pid)
                try:
                    os.kill(pid, signal.SIGTERM if now <= deadline else signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
        reap()
        if not alive or now > final:
            return sorted(ended)
        time.sleep(0.02)


def reap() -> bool:
    """Collect the status of ended children; whether there are others. Not to be called while the user's process is
    still waited for."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def shell_status(returncode: int) -> int:
    """Convert a return code of `subprocess` to a shell's: 128 + signal for a killed process."""
    return 128 - returncode if returncode < 0 else returncode
