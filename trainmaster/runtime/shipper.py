"""Sends one stream to the master: in order, each record exactly once."""

from __future__ import annotations

import json
import threading
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.errors import CallFailed, CallRejected, MasterError, MasterUnreachable
from trainmaster.runtime.master import MasterCalls
from trainmaster.runtime.spool import MAX_RECORDS, Stream

_LOOK_AGAIN = 1.0  # seconds between looks into a file whose writer forgot to wake us
LAST_CALL = 5.0  # seconds for an answer when no more time is to be spent
_FINAL_WAIT = 2.0  # longest wait between two attempts at the end
NOT_ABOUT_RECORDS = frozenset({401, 403, 404, 405, 409})  # answers that another batch would get as well


class Shipper(threading.Thread):
    """Thread that posts one stream.

    It wakes on `wake`, waits `linger` seconds so that more records come along, and posts batches. Without records it
    posts an empty one (a heartbeat) every `heartbeat` seconds, when that is given. What the master answers goes to
    `on_answer` before the records count as acknowledged: a decision that the master took because of a
    report is therefore in force when `sync` returns.
    """

    def __init__(
        self,
        stream: Stream,
        master: MasterCalls,
        path: str,
        node_rank: int,
        *,
        on_answer: Callable[[Mapping[str, Any]], None],
        on_silence: Callable[[float], None],
        log: Callable[[str], None],
        linger: float,
        heartbeat: Optional[float] = None,
    ) -> None:
        """`on_silence` is called after each failure, with the seconds for which the master has taken nothing."""
        super().__init__(name="ship-" + stream.name, daemon=True)
        self.online = True
        self._stream = stream
        self._master = master
        self._path = path
        self._node_rank = node_rank
        self._on_answer = on_answer
        self._on_silence = on_silence
        self._log = log
        self._linger = linger
        self._heartbeat = heartbeat
        self._changed = threading.Condition()
        self._pending = False
        self._retry_now = False  # ends a wait for a master that is away
        self._syncing = 0  # how many wait in `sync`
        self._finishing: Optional[float] = None  # patience in seconds
        self._to_leave = 0  # how many records at the end are left to `remainder`
        self._asked_to_finish = 0.0
        self._last_good = time.monotonic()  # when the master last took something
        self._stopped = False
        self._batch = MAX_RECORDS
        self._refused_records: Dict[int, str] = {}  # number of a record the master refuses -> its words
        self._backoff = Backoff()
        self._asked_to_wait: Optional[float] = None  # seconds, by the answer to the last post

    def wake(self) -> None:
        """Notify the thread that records were added."""
        with self._changed:
            self._pending = True
            self._changed.notify_all()

    def sync(self, number: int, timeout: float) -> bool:
        """Wait until the master has the first `number` records. False at once while the master is away, or after
        `timeout` seconds. A master that took nothing in this time counts as away from then on, even if it has not
        refused the call that is under way, so that the training does not wait for it again."""
        began = time.monotonic()
        deadline = began + timeout
        if self._synced(number, deadline):
            return True
        if self.online and time.monotonic() >= deadline and self._last_good < began:
            self._offline(MasterUnreachable("no answer for %.0f s" % timeout))
        return False

    def _synced(self, number: int, deadline: float) -> bool:
        with self._changed:
            self._syncing += 1
            self._pending = True
            self._changed.notify_all()
            try:
                while self._stream.acked < number and self.online and not self._stopped:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(left)
            finally:
                self._syncing -= 1
            return self._stream.acked >= number

    def finish(self, patience: float, leave: int = 0) -> None:
        """Send what is left, then end. Gives up when the master stays away for `patience` seconds; as long as it
        takes records, all are sent, except at most the `leave` last ones, which are for `remainder`. Returns at
        once; `finished` waits."""
        with self._changed:
            self._finishing, self._to_leave = patience, leave
            self._asked_to_finish = time.monotonic()
            self._retry_now = self._pending = True
            self._changed.notify_all()

    def finished(self) -> bool:
        """Wait after `finish` until all is sent or given up; whether the master has all. A master that accepts a
        call and does not answer is waited for no longer than one that refuses it: what is left stays on disk."""
        patience = max(self._finishing or 0.0, LAST_CALL)
        while self.is_alive():
            left = max(self._last_good, self._asked_to_finish) + patience - time.monotonic()
            if left <= 0:
                return False
            self.join(left)
        return self.online

    def remainder(self) -> Optional[Dict[str, Any]]:
        """After `finished`: the unsent records as the body of a report; None without any."""
        lines = self._stream.read(self._stream.acked, self._to_leave) if self._to_leave else []
        return self._body(lines) if lines else None

    def acknowledge_remainder(self, acked: int) -> None:
        """Record, after `remainder`, that the master has the first `acked` records."""
        self._stream.ack(acked)
        self._stream.save_acked()

    def send_remainder(self) -> bool:
        """After a refused `remainder`: send it in batches, in the caller's thread; whether the master has all."""
        self._to_leave, self._stopped = 0, False
        self.run()
        return self.online

    def stop(self) -> None:
        """End soon, without sending what is left."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def run(self) -> None:
        next_beat = time.monotonic() + (self._heartbeat or 0)  # the lease was the first sign of life
        saved = 0.0
        while not self._stopped:
            with self._changed:
                self._pending = False
            lines = self._stream.read(self._stream.acked, self._batch)
            now = time.monotonic()
            beat = self._heartbeat is not None and now >= next_beat
            if self._finishing is not None and self._may_leave(lines):
                break
            if not lines and not beat:
                self._wait_for_records(_LOOK_AGAIN if self._heartbeat is None else min(_LOOK_AGAIN, next_beat - now))
                continue
            if self._post(lines):
                self._last_good = time.monotonic()
                next_beat = self._last_good + (self._heartbeat or 0)
                if self._last_good - saved > 1.0:
                    self._stream.save_acked()
                    saved = self._last_good
                continue
            self._on_silence(time.monotonic() - self._last_good)
            wait = self._backoff.next(self._asked_to_wait)
            if self._finishing is not None:
                # A master that asks for more patience than is left reads the rest from the job folder.
                wait = min(wait, _FINAL_WAIT) if self._asked_to_wait is None else self._asked_to_wait
                since = max(self._last_good, self._asked_to_finish)
                if time.monotonic() + wait - since > self._finishing:
                    break
            self._pause(wait)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._stream.save_acked()
        self._master.close()

    def _may_leave(self, lines: List[bytes]) -> bool:
        """Whether `lines` are all that is left, and few enough for `remainder`."""
        if not lines:
            return True
        left = self._stream.lines() - self._stream.acked
        return self.online and left == len(lines) <= self._to_leave

    def _post(self, lines: List[bytes]) -> bool:
        """Post one batch. True when the master took it or gave a useful answer."""
        first = self._stream.acked + 1
        self._asked_to_wait = None
        try:
            answer = self._master.call("POST", self._path, self._body(lines), timeout=60.0)
            acked = int(answer["acked"])
        except CallRejected as error:
            if error.http_status in NOT_ABOUT_RECORDS or not lines:
                self._offline(error)
            elif len(lines) > 1:
                self._batch = max(1, len(lines) // 2)
                return True
            elif first in self._refused_records:
                self._offline(error)
            else:
                self._refused_records[first] = str(error)
                return True
            return False
        except CallFailed as error:
            self._asked_to_wait = error.retry_after
            self._offline(error)
            return False
        except (KeyError, TypeError, ValueError):
            self._offline(MasterError("the master's answer has no number of acknowledged records"))
            return False
        moved = acked != self._stream.acked
        self._stream.ack(acked)
        self._batch = min(MAX_RECORDS, self._batch * 2)
        if not self.online:
            self._log("the master is back")
        self._on_answer(answer)
        with self._changed:
            self.online = True
            self._changed.notify_all()
        if lines and not moved:
            # It took nothing: records it wants first are missing, or it is out of step. Do not hammer it.
            return False
        self._backoff.reset()
        return True

    def _body(self, lines: List[bytes]) -> Dict[str, Any]:
        first = self._stream.acked + 1
        records = [self._record(line, first + place) for place, line in enumerate(lines)]
        return {"stream": self._stream.name, "first": first, "records": records, "node_rank": self._node_rank}

    def _record(self, line: bytes, number: int) -> Any:
        refused = self._refused_records.get(number)
        if refused is None:
            try:
                record = json.loads(line.decode("utf-8"))
                if isinstance(record, dict):
                    return record
                refused = "not a JSON object"
            except ValueError as error:
                refused = str(error)
        # Its number must not be left out, or everything after it would wait for ever.
        start = line[:200].decode("utf-8", "ignore").replace("\0", "\ufffd")
        return {"t": time.time(), "kind": "unreadable", "why": refused, "start": start}

    def _offline(self, error: MasterError) -> None:
        with self._changed:
            before = self.online
            self.online = False
            self._changed.notify_all()
        if before:
            self._log("reports wait on disk until the master is back: %s" % error)

    def _wait_for_records(self, longest: float) -> None:
        with self._changed:
            if not self._pending and not self._stopped:
                self._changed.wait(max(0.0, longest))
            if self._pending and self._linger and not self._is_urgent():
                self._changed.wait_for(self._is_urgent, self._linger)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._retry_now, seconds)
            self._retry_now = False

    def _is_urgent(self) -> bool:
        return bool(self._syncing or self._stopped or self._finishing is not None)
