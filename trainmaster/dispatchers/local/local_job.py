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


class LocalJob:
    """Reads and writes the state of one job. Reading never fails for a file that is missing or half written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.token = folder.name
        self._state = folder / STATE_FOLDER

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

    def _read(self, name: str) -> str | None:
        try:
            return (self._state / name).read_text()
        except OSError:
            return None

    @property
    def submitted(self) -> Submitted | None:
        text = self._read("submitted")
        return Submitted(**json.loads(text)) if text else None

    @property
    def slot_ids(self) -> tuple[int, ...] | None:
        """The slots that it got; None before it got any."""
        text = self._read("assignment")
        return tuple(json.loads(text)["slot_ids"]) if text else None

    @property
    def process(self) -> Process | None:
        text = self._read("started")
        return Process.parse(text) if text else None

    @property
    def started_at(self) -> float | None:
        try:
            return (self._state / "started").stat().st_mtime
        except OSError:
            return None

    @property
    def cancel_requested_at(self) -> float | None:
        text = self._read("cancel")
        return float(text) if text else None

    @property
    def ended(self) -> LocalJobEnd | None:
        parts = (self._read("ended") or "").split()
        return LocalJobEnd(int(parts[0]), float(parts[1])) if len(parts) == 2 else None

    @property
    def mark(self) -> str:
        """The variable that is in the environment of every process of this job."""
        submitted = self.submitted
        return f"TRAINMASTER_JOB_ID={submitted.job_id if submitted else ''}"

    def status(self) -> LocalJobStatus:
        """Return the job's current state."""
        process = self.process
        # The job script writes `ended` and then exits: only in this order is "exited without writing" certain.
        alive = process is not None and process.alive
        ended = self.ended
        cancelled = self.cancel_requested_at is not None
        if ended is not None:
            return _after(ended, cancelled)
        if process is None:
            if cancelled and self.slot_ids is None:
                return LocalJobStatus(JobState.CANCELLED, "cancelled", "The job was cancelled before it started.")
            given = self.slot_ids is not None
            if given:
                return LocalJobStatus(JobState.STARTING, "starting", "The job is being started.")
            return LocalJobStatus(JobState.QUEUED, "queued", "Waits for free slots on this machine.")
        if alive:
            return LocalJobStatus(JobState.RUNNING, "running")
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
