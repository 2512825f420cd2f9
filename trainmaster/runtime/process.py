"""The user's process: started in a group of its own, watched, and ended with everything that came from it."""

from __future__ import annotations

import errno
import os
import time

from trainmaster.runtime.prctl import die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple, Union
else:
    import _signal as signal  # the names that `signal` adds cost every job 3 ms of CPU


class Child:
    """A process that was started. (`subprocess` would cost every job 4 ms of CPU before it has begun.)"""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        """Wait for its end, once; its exit status, below zero the signal that ended it."""
        status = os.waitpid(self.pid, 0)[1]
        return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def start(
    entrypoint: Union[str, Tuple[str, ...]],
    environment: Mapping[str, str],
    workdir: str,
    stdout: int,
    stderr: int,
    hooks: Sequence[str] = (),
) -> Child:
    """Start the entrypoint in a session of its own; it dies with this process.

    A string goes to `sh -c`, a tuple is the argument vector. `stdout` and `stderr` are the write ends of pipes.
    `hooks` are shell scripts that are read into one shell before it becomes the entrypoint, so that what they
    export holds for it; the first command in them that fails ends the attempt.

    Raises OSError when the program cannot be run.
    """
    command = ["sh", "-c", entrypoint] if isinstance(entrypoint, str) else list(entrypoint)
    if hooks:
        command = _after_hooks(hooks, command, environment.get("PATH"))
    places = _places(command[0], environment.get("PATH", os.defpath))
    parent = os.getpid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    reads, writes = os.pipe()
    with open(reads, "rb") as told:
        try:
            pid = _fork(command[0])
            if pid == 0:
                _become(places, command, environment, workdir, (nothing, stdout, stderr), writes, parent)
        finally:
            os.close(nothing)
            os.close(writes)
        trouble = told.read()  # nothing, once the program runs: exec closes the pipe
    if trouble:
        os.waitpid(pid, 0)
        raise OSError(int(trouble), os.strerror(int(trouble)), command[0])
    return Child(pid)


def _fork(program: str) -> int:
    try:
        return os.fork()
    except OSError as error:  # more processes than the account or its control group may have
        raise OSError(error.errno, error.strerror, program) from error


def _places(program: str, path: str) -> List[str]:
    return [program] if "/" in program else [os.path.join(folder, program) for folder in path.split(os.pathsep)]


def _become(
    places: Sequence[str],
    command: List[str],
    environment: Mapping[str, str],
    workdir: str,
    streams: Sequence[int],
    trouble: int,
    parent: int,
) -> NoReturn:
    """In the new process: run the program. Tells the number of the error when that cannot be; never returns.

    Other threads have left locks behind that nobody gives back here: no module may be read, nothing be logged.
    """
    try:
        os.setsid()
        # Python has its own process ignore these two.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        # Some containers are started with these ignored, and whoever is started so goes on ignoring them.
        for asks_to_leave in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(asks_to_leave, signal.SIG_DFL)
        # A scheduler's warning (SIGUSR2) is for the runtime; Slurm sends it to every process of a step, and
        # whoever has no handler for it dies of it.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        die_with_parent(parent)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        managed = environment.get("PMI_FD")  # over which a scheduler's PMI speaks to the program of MPI that it starts
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and name != managed:
                _keep_from_it(int(name))
        os.chdir(workdir)
        reason = errno.ENOENT
        for place in places:
            try:
                os.execve(place, command, environment)  # noqa: S606 - no shell but the one that the entrypoint names
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:  # it is there, in vain: that says more than that it is nowhere else
                reason = error.errno or reason
        os.write(trouble, b"%d" % reason)
    except OSError as error:
        os.write(trouble, b"%d" % (error.errno or errno.EIO))
    finally:
        os._exit(127)


def _keep_from_it(descriptor: int) -> None:
    """What whoever started us has left open is not for the user's process either."""
    try:
        os.set_inheritable(descriptor, False)
    except OSError:  # that of the listing itself
        return


def _after_hooks(hooks: Sequence[str], command: Sequence[str], path: Optional[str]) -> List[str]:
    import shutil  # few jobs have hooks, and every job would wait for it

    shell = shutil.which("bash", path=path) or "sh"  # hooks are written for bash; a small image may not have it
    reads = "".join('. "${%d}"\n' % (number + 1) for number in range(len(hooks)))
    script = 'set -e\n%sset +e\nshift %d\nexec "$@"' % (reads, len(hooks))
    return [shell, "-c", script, "startup hook", *hooks, *command]


def signal_group(child: Child, signum: int) -> None:
    """Signal the user's process group. Silent when it is gone."""
    try:
        os.killpg(child.pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def descendants(of: Optional[int] = None) -> List[int]:
    """All processes below `of` (default: this one), zombies left out."""
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
    found: List[int] = []
    todo = [os.getpid() if of is None else of]
    while todo:
        below = children.get(todo.pop(), [])
        todo.extend(below)
        found.extend(pid for pid in below if pid not in zombies)
    return found


def end_descendants(grace: float) -> List[int]:
    """End everything below this process: SIGTERM, after `grace` seconds SIGKILL. Returns the pids that were
    there.

    To be called when the user's process has ended. Reaps what became ours.
    """
    if not reap():
        return []  # nobody has this process as its parent, and so nobody is below it
    seen: Set[int] = set()
    deadline = time.monotonic() + grace
    final = deadline + 10.0  # a process in uninterruptible sleep may not go at all
    while True:
        alive = descendants()
        now = time.monotonic()
        for pid in alive:
            if pid not in seen or now > deadline:
                seen.add(pid)
                try:
                    os.kill(pid, signal.SIGTERM if now <= deadline else signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue
        reap()
        if not alive or now > final:
            return sorted(seen)
        time.sleep(0.02)


def reap() -> bool:
    """Collect the status of children that ended; whether there are others. Only when no `Child` is still to be
    waited for."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return True
        except ChildProcessError:
            return False


def shell_status(returncode: int) -> int:
    """A shell's view of what `Child.wait` gives: 128 + signal for a killed process."""
    return 128 - returncode if returncode < 0 else returncode
