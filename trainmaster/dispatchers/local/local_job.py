"""Stores the state of one local job in files of `<job folder>/.local/`; no process keeps any other state.

submitted   JSON: id, slots, order; once it is there the job exists
assignment  JSON: slot ids; written by the holder of the queue's lock, before the job script is started
started     "pid start boot"; linked into place by the job script itself, so that a second one leaves at once
cancel      epoch seconds of the first request to end it
ended       "status epoch"; written by the job script as its last act
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainmaster.dispatchers.base import JobState, Transient
from trainmaster.dispatchers.local.processes import Process

STATE_FOLDER = ".local"
CANNOT_START = -1
YOUNG = 1_000_000_000  # ns: a folder that has changed so recently may change again without another time of change


@dataclass(frozen=True)
class Submitted:
    job_id: str
    slots: int
    order: int  # nanoseconds since the epoch: first come, first served

    @property
    def submitted_at(self) -> float:
        return self.order / 1e9


@dataclass(frozen=True)
class LocalJobEnd:
    status: int  # as a shell reports it: 128 + signal when killed
    at: float


@dataclass(frozen=True)
class JobFiles:
    """What the files of one job held when they were read; None for a file that was not there, or half written."""

    submitted: Submitted | None = None
    slot_ids: tuple[int, ...] | None = None
    process: Process | None = None
    started_at: float | None = None
    cancel_requested_at: float | None = None
    ended: LocalJobEnd | None = None


class LocalJob:
    """Reads and writes the state of one job. Its files are read again only when their folder has changed, so an object
    that is kept costs one look at a folder's time each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder.name
        self._state = folder / STATE_FOLDER
        self._path = os.fspath(self._state)
        self._kept: tuple[int, JobFiles] | None = None  # the folder's time of change, and what was read then

    # -- writing ---------------------------------------------------------------------------------------

    def submit(self, slots: int) -> Submitted:
        """Create the job, or return the existing one. Raises OSError, and then it does not exist."""
        self._state.mkdir(mode=0o700, exist_ok=True)
        record = Submitted(secrets.token_hex(6), slots, time.time_ns())
        self._write_once("submitted", json.dumps({"job_id": record.job_id, "slots": slots, "order": record.order}))
        return self.submitted or record

    def assign(self, slot_ids: Sequence[int]) -> None:
        self._write_once("assignment", json.dumps({"slot_ids": list(slot_ids)}))

    def request_cancel(self) -> None:
        self._write_once("cancel", f"{time.time()}")

    def give_up(self) -> None:
        """End a job whose script cannot be started."""
        self._write_once("ended", f"{CANNOT_START} {time.time()}")

    def withdraw(self) -> None:
        """Delete the job before its folder is removed. If another file went first, the job would seem to wait, or to
        have got slots and never started. Raises Transient."""
        try:
            (self._state / "submitted").unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise Transient(f"{self.folder} cannot be removed: {error.strerror}.", token=self.token) from None

    def _write_once(self, name: str, text: str) -> None:
        """Create a file with all its content atomically, by a hard link, unless it exists."""
        draft = self._state / f"{name}.{secrets.token_hex(4)}"
        try:
            with draft.open("w") as handle:
                handle.write(text)
                handle.flush()
                os.fsync(handle.fileno())
            os.link(draft, self._state / name)
        except FileExistsError:
            return
        finally:
            draft.unlink(missing_ok=True)

    # -- reading ---------------------------------------------------------------------------------------

    def files(self) -> JobFiles:
        """Read what the files hold now. Never fails."""
        try:
            changed = os.stat(self._path).st_mtime_ns
        except OSError:
            return JobFiles()
        kept = self._kept
        if kept is not None and kept[0] == changed:
            return kept[1]
        at = time.time_ns()
        files = self._read_files()
        self._kept = (changed, files) if at - changed > YOUNG else None
        return files

    def _read_files(self) -> JobFiles:
        ended = (self._read("ended") or "").split()
        process, assignment, cancel = self._read("started"), self._read("assignment"), self._read("cancel")
        # This one last: it is removed first, so while it is there none of the others has been removed.
        submitted = self._read("submitted")
        return JobFiles(
            submitted=Submitted(**json.loads(submitted)) if submitted else None,
            slot_ids=tuple(json.loads(assignment)["slot_ids"]) if assignment else None,
            process=Process.parse(process) if process else None,
            started_at=self._time_of("started") if process else None,
            cancel_requested_at=float(cancel) if cancel else None,
            ended=LocalJobEnd(int(ended[0]), float(ended[1])) if len(ended) == 2 else None,
        )

    def _read(self, name: str) -> str | None:
        try:
            return (self._state / name).read_text()
        except OSError:
            return None

    def _time_of(self, name: str) -> float | None:
        try:
            return (self._state / name).stat().st_mtime
        except OSError:
            return None

    @property
    def submitted(self) -> Submitted | None:
        return self.files().submitted

    @property
    def slot_ids(self) -> tuple[int, ...] | None:
        """The slots that it got; None before it got any."""
        return self.files().slot_ids

    @property
    def process(self) -> Process | None:
        return self.files().process

    @property
    def cancel_requested_at(self) -> float | None:
        return self.files().cancel_requested_at

    @property
    def ended(self) -> LocalJobEnd | None:
        return self.files().ended

    @property
    def mark(self) -> str:
        """The variable that is in the environment of every process of this job."""
        submitted = self.submitted
        return f"TRAINMASTER_JOB_ID={submitted.job_id if submitted else ''}"

    def status(self) -> LocalJobStatus:
        """Return the job's current state."""
        files = self.files()
        process, alive = files.process, False
        if process is not None and files.ended is None and not (alive := process.alive):
            # The job script writes `ended` and then exits: only in this order is "exited without writing" certain.
            files = self._read_files()
        cancelled = files.cancel_requested_at is not None
        if files.ended is not None:
            return _after(files.ended, cancelled)
        if process is None:
            if files.slot_ids is not None:
                return STARTING
            return CANCELLED_EARLY if cancelled else QUEUED
        if alive:
            return RUNNING
        if cancelled:
            return LocalJobStatus(JobState.CANCELLED, "killed", "The job was cancelled, and ended by SIGKILL.")
        if process.from_before_a_reboot:
            return LocalJobStatus(JobState.INFRASTRUCTURE, "reboot", "This machine was restarted while the job ran.")
        return LocalJobStatus(
            JobState.INFRASTRUCTURE,
            "vanished",
            "The job's processes are gone and left no exit status; they were killed from outside.",
        )


@dataclass(frozen=True)
class LocalJobStatus:
    """A job's state, with our word for it and a sentence."""

    state: JobState
    raw: str
    text: str = ""
    exit_code: int | None = None
    exit_signal: int | None = None


QUEUED = LocalJobStatus(JobState.QUEUED, "queued", "Waits for free slots on this machine.")
STARTING = LocalJobStatus(JobState.STARTING, "starting", "The job is being started.")
RUNNING = LocalJobStatus(JobState.RUNNING, "running")
CANCELLED_EARLY = LocalJobStatus(JobState.CANCELLED, "cancelled", "The job was cancelled before it started.")


def _after(ended: LocalJobEnd, cancelled: bool) -> LocalJobStatus:
    signal = ended.status - 128 if 128 < ended.status < 160 else None
    code = None if signal else ended.status
    if cancelled:
        return LocalJobStatus(JobState.CANCELLED, "cancelled", "The job was cancelled.", code, signal)
    if ended.status == CANNOT_START:
        text = "The job's script could not be started; its output.txt or the master's log says why."
        return LocalJobStatus(JobState.INFRASTRUCTURE, "cannot start", text)
    if ended.status == 0:
        return LocalJobStatus(JobState.COMPLETED, "ended", "The job ended with status 0.", 0)
    if signal == 9:
        text = "The job was ended by SIGKILL: this machine may have run out of memory, or someone ended it."
        return LocalJobStatus(JobState.FAILED, "ended", text, None, signal)
    how = f"was ended by signal {signal}" if signal else f"ended with status {code}"
    return LocalJobStatus(JobState.FAILED, "ended", f"The job {how}.", code, signal)
