"""Sends everything that this node reports to the master: streams, their shippers, and the socket for core."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from trainmaster.runtime.core_socket import CoreSocket
from trainmaster.runtime.errors import CallFailed, CallRejected, MasterError
from trainmaster.runtime.exit_record import ExitRecord
from trainmaster.runtime.exit_report import ExitReport
from trainmaster.runtime.facts import Facts
from trainmaster.runtime.job import JobDescription
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.notice import print_notice
from trainmaster.runtime.shipper import LAST_CALL, NOT_ABOUT_RECORDS, Shipper
from trainmaster.runtime.spool import Stream

_LOG_LINGER = 0.5  # seconds that a log line waits for others to be sent with it
_WITHOUT_DISK = 120.0  # seconds to wait for an absent master when the disk is full too
_FOLDER_GONE = 60.0  # seconds; a file system of the site may be away for a moment
_GOES_WITH_EXIT = 200  # records at the end of a stream that are sent with the exit record
_CORE_LINGER = 0.1  # the same for a report that no call waits for


class Reporting:
    """The node's log stream, and on the first node the stream `core`.

    `on_preempt(reason)` and `on_gone()` are called from shipping threads when an answer of the master asks for it.
    """

    def __init__(
        self,
        job: JobDescription,
        facts: Facts,
        master: MasterCalls,
        run_dir: str,
        *,
        on_preempt: Callable[[str], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._master = master
        self._allocation = "/api/x1/allocations/" + job.allocation_id
        self._on_preempt = on_preempt
        self._on_gone = on_gone
        self._folder = job.folder
        self._patience = job.final_patience
        self._orphaned_after = job.orphaned_after
        self._folder_gone_at: Optional[float] = None
        self._orphaned = False
        self._finished = False
        # Re-entrant: a full disk is logged while a line is being added.
        self._log_lock = threading.RLock()
        self._log_stream = Stream(job.spool, "log-%d" % facts.node_rank, self.log_error)
        self._streams: List[Stream] = [self._log_stream]
        self._log_shipper = self._shipper(self._log_stream, facts, _LOG_LINGER, job.heartbeat)
        self._shippers = [self._log_shipper]
        core: Optional[Stream] = None
        core_shipper: Optional[Shipper] = None
        if facts.node_rank == 0:
            core = Stream(job.spool, "core", self.log_error)
            core_shipper = self._shipper(core, facts, _CORE_LINGER, None)
            self._streams.append(core)
            self._shippers.append(core_shipper)
        self._socket = CoreSocket(run_dir, core, core_shipper)

    def start(self) -> None:
        """Start the shippers and the socket."""
        for shipper in self._shippers:
            shipper.start()
        self._socket.start()

    def log(self, text: str, level: str = "INFO") -> None:
        """Write a message of the runtime to the user's log and to the scheduler's capture of the job."""
        print_notice(text)
        self.add_log(
            {
                "t": time.time(),
                "stdtype": "stderr",
                "level": level,
                "rank": None,
                "line": text,
                "source": "runtime",
            }
        )

    def log_error(self, text: str) -> None:
        self.log(text, "ERROR")

    def add_log(self, record: Mapping[str, Any]) -> None:
        """Add a record to the node's log; ignored after `finish`."""
        with self._log_lock:
            if self._finished:
                return
            self._log_stream.append(record)
        self._log_shipper.wake()

    def report_preempt(self, reason: str) -> None:
        """Report to the master that a signal or the clock asked this job to leave."""
        self.add_log({"t": time.time(), "kind": "preempt_pending", "reason": reason})

    def finish(self) -> Dict[str, int]:
        """Accept no more records and write what waits to disk; the number of records of each stream."""
        for stream in self._streams:
            if stream.lost:
                self.log_error(
                    "%d records of %s were lost: the disk was full for too long" % (stream.lost, stream.name)
                )
        with self._log_lock:
            self._finished = True
        for stream in self._streams:
            stream.finish()
        return {stream.name: stream.lines() for stream in self._streams}

    def deliver(self, record: ExitRecord, *, hurry: bool) -> bool:
        """Write the exit record to the job folder and send it with the unsent records; wait a bounded time for a
        master that is away or hangs.

        With `hurry` no time is spent on waiting. What is on disk the master reads from there later: only a full disk
        is a reason to wait for long. What the master takes at once is safe with it; all else is made durable here
        before anything is waited for. True when the master has everything.
        """
        report = ExitReport(self._folder, record, self._streams)
        if not all(shipper.online for shipper in self._shippers):
            report.make_durable()
        patience = self._patience_for(report, hurry)
        for shipper in self._shippers:
            shipper.finish(patience, _GOES_WITH_EXIT)
        online = all([shipper.finished() for shipper in self._shippers])
        remainders = [(shipper, shipper.remainder()) for shipper in self._shippers] if online else []
        left = {remainder["stream"]: (shipper, remainder) for shipper, remainder in remainders if remainder is not None}
        body = record.to_json()
        try:
            try:
                answer = self._post_exit(
                    {**body, "reports": [remainder for _, remainder in left.values()]}, report, hurry, online
                )
            except CallRejected as error:
                if not left or error.http_status in NOT_ABOUT_RECORDS:
                    raise
                # One of the records cannot be stored; the ordinary way finds out which.
                online = all([shipper.send_remainder() for shipper, _ in left.values()])
                answer = self._post_exit(body, report, hurry, online)
        except MasterError as error:
            report.make_durable()
            where = "the exit record and the reports stay in the job folder"
            print_notice("%s: %s" % (where, error) if isinstance(error, CallFailed) else str(error))
            return False
        for stream, acked in (answer.get("acked") or {}).items():
            if stream in left:
                left[stream][0].acknowledge_remainder(int(acked))
        return online

    def _patience_for(self, report: ExitReport, hurry: bool) -> float:
        if hurry:
            return 0.0
        return self._patience if report.on_disk else max(self._patience, _WITHOUT_DISK)

    def _post_exit(self, body: Mapping[str, Any], report: ExitReport, hurry: bool, online: bool) -> Any:
        path = self._allocation + "/exit"
        if not online:
            report.make_durable()
            return self._master.call("POST", path, body, timeout=LAST_CALL)
        began = time.monotonic()
        try:
            return self._master.call("POST", path, body, timeout=max(self._patience_for(report, hurry), LAST_CALL))
        except CallFailed:
            report.make_durable()  # nothing can get lost here while it is asked again
            left = began + self._patience_for(report, hurry) - time.monotonic()
            if left <= 0:
                raise  # it hung: all patience is used up
        return self._master.call_with_retry("POST", path, body, patience=left, timeout=max(left, LAST_CALL))

    def close(self) -> None:
        """Close files and the socket."""
        self._socket.close()
        for shipper in self._shippers:
            shipper.stop()
        for stream in self._streams:
            stream.close()

    def _shipper(self, stream: Stream, facts: Facts, linger: float, heartbeat: Optional[float]) -> Shipper:
        return Shipper(
            stream,
            self._master,
            self._allocation + "/reports",
            facts.node_rank,
            on_answer=self._handle_answer,
            on_silence=self._handle_silence,
            log=self.log,
            linger=linger,
            heartbeat=heartbeat,
        )

    def _handle_silence(self, seconds: float) -> None:
        """End the job of a master that is gone for good: nobody would ever read what it reports."""
        now = time.monotonic()
        self._folder_gone_at = None if os.path.isdir(self._folder) else self._folder_gone_at or now
        if 0 < self._orphaned_after < seconds:
            why = "the master has given no sign for %.0f s" % seconds
        elif self._folder_gone_at is not None and now - self._folder_gone_at > _FOLDER_GONE:
            why = "the master gives no sign, and the job's folder is gone"
        else:
            return
        if not self._orphaned:
            self._orphaned = True
            self.log("%s: this job ends" % why)
            self._on_gone()

    def _handle_answer(self, answer: Mapping[str, Any]) -> None:
        preempt = answer.get("preempt")
        if isinstance(preempt, dict):
            self._on_preempt(str(preempt.get("reason") or "master"))
        if answer.get("gone"):
            self._on_gone()
