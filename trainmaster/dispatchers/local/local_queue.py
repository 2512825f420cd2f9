"""Queue of this machine: starts jobs in order of submission while slots are free, and ends cancelled ones.

The job folders themselves are the queue. A process that starts jobs holds the lock file, so that several masters on one
folder neither assign a slot twice nor start a job twice; a job that outlives its master is found by the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainmaster.dispatchers.base import JobState, SlotType, Transient
from trainmaster.dispatchers.cluster.command_runner import DEFAULT_PATH
from trainmaster.dispatchers.cluster.folder import TOKEN
from trainmaster.dispatchers.local.local_job import YOUNG, LocalJob
from trainmaster.dispatchers.local.options import LocalOptions
from trainmaster.dispatchers.local.processes import kill_job, marks_alive, remove_leftovers
from trainmaster.files import replace_file
from trainmaster.inherited import with_own_limits
from trainmaster.templates import render

log = logging.getLogger(__name__)

BUSY_PAUSE = 0.1  # seconds between two passes while jobs run or wait
IDLE_PAUSE = 5.0
ALL_EVERY = 5.0  # seconds between two passes over all jobs without a wake-up; in between only those with slots count
UNTIDY = 1.0  # seconds for which folders that a killed job left are looked for
KILLED = ("killed", "vanished")  # `LocalJobStatus.raw` of jobs whose script did not end by itself
_TMP = "/tmp"  # noqa: S108 where jobs have their temporary files
JOB_SCRIPT = "local_job.sh"
MAX_STARTS = 5  # of a job script that ends without having begun (a full disk, a folder taken away)


class LocalQueue:
    """Starts and ends the jobs below one folder, in a thread of its own."""

    def __init__(self, root: Path, options: LocalOptions) -> None:
        self._root = root
        self._options = options
        self._wake = threading.Event()
        self._closing = False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._known: tuple[int | None, dict[str, LocalJob]] = None, {}  # the folder's time of change, and its jobs
        self._active: list[LocalJob] = []  # with slots, when all jobs were last looked at
        self._all_at = 0.0  # when all jobs are looked at again
        self._over: set[str] = set()  # tokens of ended jobs, whose folders need no further check
        self._terminated: set[str] = set()
        self._starts: dict[str, int] = {}
        self._untidy_until = 0.0  # a killed job's processes are gone a moment later, and leave their folder

    def jobs(self) -> list[LocalJob]:
        """All jobs that exist, in no order."""
        return [job for job in self._folders().values() if job.files().submitted is not None]

    def _folders(self) -> dict[str, LocalJob]:
        """By token. The folder is listed again only when it has changed."""
        try:
            changed = os.stat(self._root).st_mtime_ns
            listed_at, known = self._known
            if changed == listed_at:
                return known
            at = time.time_ns()
            names = os.listdir(self._root)
        except FileNotFoundError:
            return {}
        jobs = {name: known.get(name) or LocalJob(self._root / name) for name in names if TOKEN.fullmatch(name)}
        self._known = (changed if at - changed > YOUNG else None), jobs
        return jobs

    def wake(self) -> None:
        """Process the queue now; the thread starts with the first call."""
        with self._lock:
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._loop, name="local-queue", daemon=True)
                self._thread.start()
        self._wake.set()

    def cancel(self, jobs: Iterable[LocalJob]) -> None:
        """Cancel jobs; those without slots end at once. Raises Transient after trying all."""
        failed: OSError | None = None
        try:
            # Not while slots are assigned: a job could start after it was reported as cancelled.
            with self._exclusive():
                for job in jobs:
                    try:
                        if job.submitted is not None and not job.status().state.terminal:
                            job.request_cancel()
                    except FileNotFoundError:
                        continue  # its folder was removed a moment ago
                    except OSError as error:
                        failed = failed or error
        except OSError as error:  # no lock: the file system is away or read-only, or there are too many open files
            failed = error
        if failed:
            raise Transient(f"Jobs below {self._root} cannot be cancelled now: {failed.strerror}.")

    def close(self) -> None:
        """Stop the thread. Jobs keep running."""
        with self._lock:
            self._closing = True
            thread = self._thread
        self._wake.set()
        if thread is not None:
            thread.join()
        for child in self._children.values():
            # It should keep running: without this Python warns about a child process that was not waited for.
            child.returncode = child.poll() if child.poll() is not None else 0
        self._children.clear()

    def _loop(self) -> None:
        while not self._closing:
            if self._wake.is_set():
                self._all_at = 0.0
            self._wake.clear()
            try:
                busy = self._pass()
            except Exception:  # the loop must outlive any bug or lost connection; the next pass compares again
                log.exception("the local queue could not be processed; trying again")
                busy = True
            self._wake.wait(BUSY_PAUSE if busy else IDLE_PAUSE)

    def _pass(self) -> bool:
        """Reap children, end cancelled jobs, start jobs that fit. Returns True while jobs run or wait."""
        for token, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[token]
        with self._exclusive():
            if time.monotonic() < self._all_at and all(map(self._goes_on, self._active)):
                return True
            waiting: list[tuple[int, LocalJob]] = []
            over: list[LocalJob] = []
            taken: set[int] = set()
            self._active = []
            for job in self.jobs():
                if job.token in self._over:
                    continue
                submitted, slots = job.submitted, job.slot_ids
                if submitted is None:
                    continue  # it is being removed
                if slots is None and not job.status().state.terminal:
                    waiting.append((submitted.order, job))
                elif slots is None or not self._goes_on(job):
                    over.append(job)
                else:
                    self._active.append(job)
                    taken |= set(slots)
            self._sweep(over)
            if time.monotonic() < self._untidy_until:
                remove_leftovers([*self._options.scratch, _base_environment().get("TMPDIR", _TMP), _TMP])
            self._start_what_fits([job for _, job in sorted(waiting, key=lambda pair: pair[0])], taken)
            busy = bool(waiting or self._active or time.monotonic() < self._untidy_until)
            self._all_at = time.monotonic() + (ALL_EVERY if busy else 0.0)
        return busy

    def _goes_on(self, job: LocalJob) -> bool:
        """Start or end a job that has slots, as it should be. False: it has ended."""
        state = job.status().state
        if state.terminal:
            return False
        if state is JobState.STARTING and (slots := job.slot_ids) is not None:
            self._start(job, slots)
        self._enforce_cancel(job)
        return True

    def _start_what_fits(self, waiting: list[LocalJob], taken: set[int]) -> None:
        """Start jobs strictly in order, so that a large job does not wait for ever behind small ones. Jobs without
        slots may overtake."""
        blocked = False
        for job in waiting:
            submitted = job.submitted
            if submitted is None:
                continue
            free = [slot for slot in range(self._options.slots) if slot not in taken]
            if submitted.slots and (blocked or submitted.slots > len(free)):
                blocked = True
                continue
            given = tuple(free[: submitted.slots])
            job.assign(given)
            self._active.append(job)
            taken |= set(given)
            self._start(job, given)

    def _start(self, job: LocalJob, slot_ids: tuple[int, ...]) -> None:
        """Start the job script. Harmless when it runs already: a second script finds `started` and exits."""
        child = self._children.get(job.token)
        if child is not None and child.poll() is None:
            return
        submitted = job.submitted
        if submitted is None:
            return
        self._starts[job.token] = self._starts.get(job.token, 0) + 1
        if self._starts[job.token] > MAX_STARTS:
            job.give_up()
            return
        script = job.folder / JOB_SCRIPT
        text = render(
            "local_job.sh.j2",
            job_folder=job.folder,
            bash=self._options.bash,
            variables=sorted(self._variables(submitted.job_id, slot_ids).items()),
        )
        # A shell of an earlier start may still read the old script, so it is replaced and not truncated.
        replace_file(script, text)
        with (job.folder / "output.txt").open("ab") as output:
            self._children[job.token] = subprocess.Popen(
                with_own_limits([self._options.bash, str(script)]),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=job.folder,
                env={**_base_environment(), "TRAINMASTER_JOB_ID": submitted.job_id},
                start_new_session=True,
            )

    def _variables(self, job_id: str, slot_ids: tuple[int, ...]) -> dict[str, str]:
        variables = {
            "TRAINMASTER_JOB_ID": job_id,
            "TRAINMASTER_NODE_RANK": "0",
            "TRAINMASTER_NUM_NODES": "1",
            "TRAINMASTER_NODE_NAME": socket.gethostname(),
            "TRAINMASTER_SLOT_IDS": json.dumps(list(slot_ids)),
        }
        visible = ",".join(map(str, slot_ids))
        if self._options.slot_type is SlotType.CUDA:
            variables["CUDA_VISIBLE_DEVICES"] = visible
        elif self._options.slot_type is SlotType.ROCM:
            variables["ROCR_VISIBLE_DEVICES"] = visible
        return variables

    def _enforce_cancel(self, job: LocalJob) -> None:
        asked = job.cancel_requested_at
        process = job.process
        if asked is None or process is None:
            return
        if job.token not in self._terminated:
            self._terminated.add(job.token)
            process.send(signal.SIGTERM)
        if time.time() - asked >= self._options.cancel_grace:
            kill_job(process, job.mark)

    def _sweep(self, over: list[LocalJob]) -> None:
        """Kill processes that jobs left running after their scripts ended, before their slots are assigned again."""
        left = marks_alive({job.mark for job in over})
        for job in over:
            process = job.process
            if process is not None and job.mark in left:
                kill_job(process, job.mark)
            if job.status().raw in KILLED:
                self._untidy_until = time.monotonic() + UNTIDY
            self._over.add(job.token)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._root / ".queue.lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _base_environment() -> dict[str, str]:
    """Return the environment of jobs: identity and locale of the master, none of its private settings. `python3` is the
    master's own Python, so that a first run needs nothing else installed."""
    kept = ("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "TZ")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    return {**variables, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH') or DEFAULT_PATH}"}
