"""All that this node tells the master, in one place: its streams, their shippers, and the socket for core."""

from __future__ import annotations

import time

from trainmaster.runtime.core_socket import CoreSocket
from trainmaster.runtime.errors import Away, MasterError, Rejected
from trainmaster.runtime.exit_record import ExitRecord
from trainmaster.runtime.facts import Facts
from trainmaster.runtime.job import Job
from trainmaster.runtime.last_word import LastWord
from trainmaster.runtime.master import Master
from trainmaster.runtime.notice import print_notice
from trainmaster.runtime.shipper import LAST_CALL, NOT_ABOUT_RECORDS, Shipper
from trainmaster.runtime.spool import Stream
from trainmaster.runtime.threads import RLock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

_LOG_LINGER = 0.5  # seconds that a log line waits for company
_WITHOUT_DISK = 120.0  # seconds that a master that is away is waited for when nobody else can be told
_GOES_WITH_EXIT = 200  # records at the end of a stream that are sent with the exit record
_CORE_LINGER = 0.1  # the same for a report that nobody waits for


class Reporting:
    """The node's log stream, and on the first node the stream `core`.

    `on_preempt(reason)` and `on_gone()` are called from shipping threads when the master's answers say so.
    """

    def __init__(
        self,
        job: Job,
        facts: Facts,
        master: Master,
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
        self._settled = False
        # Re-entrant: a full disk is told of while a line is being added.
        self._logging = RLock()
        self._log = Stream(job.spool, "log-%d" % facts.node_rank, self.say_error)
        self._streams: List[Stream] = [self._log]
        self._log_shipper = self._shipper(self._log, facts, _LOG_LINGER, job.heartbeat)
        self._shippers = [self._log_shipper]
        core: Optional[Stream] = None
        core_shipper: Optional[Shipper] = None
        if facts.node_rank == 0:
            core = Stream(job.spool, "core", self.say_error)
            core_shipper = self._shipper(core, facts, _CORE_LINGER, None)
            self._streams.append(core)
            self._shippers.append(core_shipper)
        self._socket = CoreSocket(run_dir, core, core_shipper)

    def start(self) -> None:
        """Begin to ship."""
        for shipper in self._shippers:
            shipper.start()
        self._socket.start()

    def say(self, text: str, level: str = "INFO") -> None:
        """A sentence of the runtime's own: for the user's log and for the scheduler's capture of the job."""
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

    def say_error(self, text: str) -> None:
        self.say(text, "ERROR")

    def add_log(self, record: Mapping[str, Any]) -> None:
        """Add a record to the node's log; after `settle` nothing is added any more."""
        with self._logging:
            if self._settled:
                return
            self._log.append(record)
        self._log_shipper.wake()

    def tell_preempt(self, reason: str) -> None:
        """Tell the master that this job was asked to leave by somebody else."""
        self.add_log({"t": time.time(), "kind": "preempt_pending", "reason": reason})

    def settle(self) -> Dict[str, int]:
        """Take no more records and write down what there is; the number of records of each stream."""
        for stream in self._streams:
            if stream.lost:
                self.say_error(
                    "%d records of %s were lost: the disk was full for too long" % (stream.lost, stream.name)
                )
        with self._logging:
            self._settled = True
        for stream in self._streams:
            stream.finish()
        return {stream.name: stream.lines() for stream in self._streams}

    def deliver(self, record: ExitRecord, *, hurry: bool) -> bool:
        """Leave the exit record in the job folder, and send it with what is left; wait a bounded time for a master that
        is away, or that hangs.

        With `hurry` no time is spent on waiting. What is on disk the master reads from there later: only a full
        disk is a reason to wait for long. What the master takes at once is safe with it; all else is made durable
        here before anything is waited for. True when the master has everything.
        """
        last = LastWord(self._folder, record, self._streams)
        if not all(shipper.online for shipper in self._shippers):
            last.make_durable()
        patience = self._patience_for(last, hurry)
        for shipper in self._shippers:
            shipper.finish(patience, _GOES_WITH_EXIT)
        online = all([shipper.finished() for shipper in self._shippers])
        rests = [(shipper, shipper.rest()) for shipper in self._shippers] if online else []
        left = {rest["stream"]: (shipper, rest) for shipper, rest in rests if rest is not None}
        body = record.to_json()
        try:
            try:
                answer = self._say_exit({**body, "reports": [rest for _, rest in left.values()]}, last, hurry, online)
            except Rejected as error:
                if not left or error.http_status in NOT_ABOUT_RECORDS:
                    raise
                # One of the records cannot be stored; the ordinary way finds out which.
                online = all([shipper.send_rest() for shipper, _ in left.values()])
                answer = self._say_exit(body, last, hurry, online)
        except MasterError as error:
            last.make_durable()
            where = "the exit record and the reports stay in the job folder"
            print_notice("%s: %s" % (where, error) if isinstance(error, Away) else str(error))
            return False
        for stream, acked in (answer.get("acked") or {}).items():
            if stream in left:
                left[stream][0].taken(int(acked))
        return online

    def _patience_for(self, last: LastWord, hurry: bool) -> float:
        if hurry:
            return 0.0
        return self._patience if last.on_disk else max(self._patience, _WITHOUT_DISK)

    def _say_exit(self, body: Mapping[str, Any], last: LastWord, hurry: bool, online: bool) -> Any:
        path = self._allocation + "/exit"
        if not online:
            last.make_durable()
            return self._master.call("POST", path, body, timeout=LAST_CALL)
        began = time.monotonic()
        try:
            return self._master.call("POST", path, body, timeout=max(self._patience_for(last, hurry), LAST_CALL))
        except Away:
            last.make_durable()  # nothing can get lost here while it is asked again
            left = began + self._patience_for(last, hurry) - time.monotonic()
            if left <= 0:
                raise  # it hung: all patience is used up
        return self._master.insist("POST", path, body, patience=left, timeout=max(left, LAST_CALL))

    def close(self) -> None:
        """Let go of files and the socket."""
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
            on_answer=self._answered,
            say=self.say,
            linger=linger,
            heartbeat=heartbeat,
        )

    def _answered(self, answer: Mapping[str, Any]) -> None:
        preempt = answer.get("preempt")
        if isinstance(preempt, dict):
            self._on_preempt(str(preempt.get("reason") or "master"))
        if answer.get("gone"):
            self._on_gone()
