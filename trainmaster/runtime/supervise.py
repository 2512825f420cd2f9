"""Supervises the user's process: reacts to signals, the walltime clock and the end of the allocation."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple, Union

from trainmaster.runtime.cgroup import oom_kills
from trainmaster.runtime.evidence import Tail
from trainmaster.runtime.job import JobDescription
from trainmaster.runtime.logs import LineReader
from trainmaster.runtime.prctl import become_subreaper
from trainmaster.runtime.preempt import Preemption, signal_reason
from trainmaster.runtime.process import end_descendants, shell_status, signal_group, start
from trainmaster.runtime.ranks import first_failure, signal_name
from trainmaster.runtime.record import Record
from trainmaster.runtime.reporting import Reporting
from trainmaster.runtime.signals import Event

_LEFTOVER_GRACE = 2.0  # seconds for what the user's process left behind
_SIGNAL_DELAY = 1.0  # seconds between the signals that a scheduler sends to the processes of one job
_PIPE_GRACE = 5.0  # seconds for the last lines in the pipes


class ProcessEnd(Record):
    """How the user's process ended."""

    exit_code: int
    signal: Optional[int] = None
    oom: bool = False
    message: str = ""
    evidence: str = ""  # the process's last output before it failed
    failed_rank: Optional[int] = None  # of its ranks, the one that failed first
    failed_at: Optional[float] = None  # epoch seconds
    fault: str = ""  # a cause outside of the user's code


class Supervisor:
    """Runs one entrypoint to its end."""

    def __init__(
        self,
        job: JobDescription,
        end_time: Optional[float],
        preemption: Preemption,
        reporting: Reporting,
        events: queue.SimpleQueue[Event],
        secrets: Sequence[str],
        what: str = "training",
        spared: Sequence[int] = (),
    ) -> None:
        """`secrets` are removed from the log. `what`: the word for the entrypoint in sentences for the user. `spared`:
        children of this process that serve the entrypoint, and do not end with it."""
        self._spared = spared
        self._job = job
        self._end_time = end_time
        self._preemption = preemption
        self._reporting = reporting
        self._events = events
        self._secrets = secrets
        self._what = "the " + what
        self._tail = Tail()
        self._plan: Dict[str, float] = {}  # what to do -> when, on the monotonic clock

    def run(
        self,
        entrypoint: Union[str, Tuple[str, ...]],
        environment: Mapping[str, str],
        workdir: str,
        hooks: Sequence[str] = (),
    ) -> ProcessEnd:
        """Start the entrypoint, wait for its end, and end everything that it started."""
        become_subreaper()
        kills_before = oom_kills()
        readers = []
        ends = []
        for stdtype in ("stdout", "stderr"):
            read, write = os.pipe()
            readers.append(LineReader(read, stdtype, self._secrets, self._add_line))
            ends.append(write)
        for reader in readers:
            reader.start()
        try:
            child = start(entrypoint, environment, workdir, ends[0], ends[1], hooks)
        except OSError as error:
            return _not_started(error)
        finally:
            for end in ends:
                os.close(end)
        threading.Thread(target=self._wait, args=(child,), name="wait-for-child", daemon=True).start()
        returncode = self._watch(child)
        left = end_descendants(self._grace_of_descendants(returncode), self._spared)
        if left:
            self._reporting.log("processes that %s left behind were ended: %d" % (self._what, len(left)))
        deadline = time.monotonic() + _PIPE_GRACE
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
            reader.give_up()
            reader.join(2.0)
        return self._judge(returncode, kills_before, environment.get("TRAINMASTER_RUN_DIR"))

    def _add_line(self, record: Dict[str, Any]) -> None:
        self._tail.add(record)
        self._reporting.add_log(record)

    def _wait(self, child: subprocess.Popen[bytes]) -> None:
        self._events.put(("exit", child.wait()))

    def _watch(self, child: subprocess.Popen[bytes]) -> int:
        if self._end_time is not None:
            # Once from the wall clock: a later jump of it must not end the training.
            self._plan["walltime"] = time.monotonic() + self._end_time - self._job.walltime_grace - time.time()
        while True:
            event = self._next_event()
            if event is None:
                self._act(child)
            elif event[0] == "exit":
                return int(event[1])  # type: ignore[misc]
            elif event[0] == "signal":
                self._signalled(int(event[1]))  # type: ignore[misc]
            elif event[0] == "gone" and "kill" not in self._plan:
                self._reporting.log("the master has ended this allocation: %s is stopped" % self._what)
                self._plan["term"] = time.monotonic()

    def _next_event(self) -> Optional[Event]:
        timeout = None
        if self._plan:
            timeout = max(0.0, min(self._plan.values()) - time.monotonic())
        try:
            # A wait without end would not be interrupted by signals on every platform; an hour is as good.
            return self._events.get(timeout=min(3600.0, timeout) if timeout is not None else 3600.0)
        except queue.Empty:
            return None

    def _act(self, child: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        for action in [action for action, when in self._plan.items() if when <= now]:
            del self._plan[action]
            if action == "walltime":
                self._preemption.request_here("walltime")
            elif action == "term":
                signal_group(child, signal.SIGTERM)
                self._plan["kill"] = now + self._job.kill_grace
            elif action == "kill":
                signal_group(child, signal.SIGKILL)

    def _signalled(self, number: int) -> None:
        reason = signal_reason(self._end_time, self._job.walltime_grace, time.time())
        if number == signal.SIGUSR2:
            self._preemption.request_here(reason)
            return
        # No time is promised after these: ask at once, and end the training itself soon after.
        again = self._must_leave()
        self._preemption.request_here(reason if number == signal.SIGTERM else "scheduler")
        if "kill" not in self._plan:
            self._plan["term"] = time.monotonic() + (0.0 if again else self._job.term_grace)

    def _must_leave(self) -> bool:
        """Whether the scheduler has signalled or the master has ended the allocation."""
        return "term" in self._plan or "kill" in self._plan

    def _grace_of_descendants(self, returncode: int) -> float:
        """Seconds for what the user's process left behind.

        A scheduler signals every process of a job. The shell of an entrypoint ends of it at once, also before this
        process has its own signal, while the training in the shell may still be saving: it is asked to, and has the
        time that it would have without a shell.
        """
        deadline = time.monotonic() + _SIGNAL_DELAY
        while returncode == -signal.SIGTERM and not self._must_leave():
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if event[0] == "signal":
                self._signalled(int(event[1]))  # type: ignore[misc]
        return self._job.kill_grace if self._must_leave() else _LEFTOVER_GRACE

    def _judge(self, returncode: int, kills_before: Optional[int], run_dir: Optional[str]) -> ProcessEnd:
        kills = oom_kills()
        oom = returncode != 0 and kills_before is not None and kills is not None and kills > kills_before
        code = shell_status(returncode)
        by_signal = -returncode if returncode < 0 else None
        if oom:
            message = "the kernel ended a process of %s for want of memory: ask for more, or use less" % self._what
        elif by_signal is not None:
            message = "%s was ended by signal %d (%s)" % (self._what, by_signal, signal_name(by_signal) or by_signal)
        elif code > 128 and signal_name(code - 128):
            message = "%s ended with status %d (signal %s, as a shell reports it)" % (
                self._what,
                code,
                signal_name(code - 128),
            )
        elif code:
            message = "%s ended with status %d" % (self._what, code)
        else:
            message = "%s ended" % self._what
        if not code:
            return ProcessEnd(code, message=message)
        failed = first_failure(run_dir)
        if failed is None:
            return ProcessEnd(code, by_signal, oom, message, self._tail.quote())
        return ProcessEnd(code, by_signal, oom, message, self._tail.quote(failed.rank), failed.rank, failed.at)


def _not_started(error: OSError) -> ProcessEnd:
    """Return the status that a shell would give: 127 when there is no such program, 126 when it may not be run."""
    if isinstance(error, FileNotFoundError):
        text = "entrypoint: there is no program %r in this image (or its interpreter is missing)" % error.filename
        return ProcessEnd(127, message=text)
    return ProcessEnd(126, message="entrypoint: %r cannot be run: %s" % (error.filename, error.strerror or error))
