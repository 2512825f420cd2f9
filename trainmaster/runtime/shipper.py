"""Brings one stream to the master: in order, each record once, whatever happens in between."""

from __future__ import annotations

import time

from trainmaster.runtime.backoff import Backoff
from trainmaster.runtime.errors import Away, MasterError, Rejected, Unreachable
from trainmaster.runtime.master import Master
from trainmaster.runtime.plain_json import loads
from trainmaster.runtime.spool import MAX_RECORDS, Stream
from trainmaster.runtime.threads import Condition, Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

_LOOK_AGAIN = 1.0  # seconds between looks into a file whose writer forgot to wake us
LAST_CALL = 5.0  # seconds for an answer when no more time is to be spent
_FINAL_WAIT = 2.0  # longest wait between two attempts at the end
NOT_ABOUT_RECORDS = frozenset({401, 403, 404, 405, 409})  # answers that another batch would get as well


class Shipper(Thread):
    """A thread that posts one stream.

    It wakes when told, waits `linger` seconds so that more records come along, and posts batches. Without
    records it posts an empty one (a heartbeat) every `heartbeat` seconds, when that is given. What the master
    answers goes to `on_answer` before anybody is told that the records are acknowledged: a decision that the
    master took because of a report is therefore in force when `sync` returns.
    """

    def __init__(
        self,
        stream: Stream,
        master: Master,
        path: str,
        node_rank: int,
        *,
        on_answer: Callable[[Mapping[str, Any]], None],
        say: Callable[[str], None],
        linger: float,
        heartbeat: Optional[float] = None,
    ) -> None:
        super().__init__()
        self.online = True
        self._stream = stream
        self._master = master
        self._path = path
        self._node_rank = node_rank
        self._on_answer = on_answer
        self._say = say
        self._linger = linger
        self._heartbeat = heartbeat
        self._changed = Condition()
        self._pending = False
        self._nudged = False  # ends a wait for a master that is away
        self._hurry = 0  # how many wait in `sync`
        self._finishing: Optional[float] = None  # patience in seconds
        self._leaves = 0  # how many records at the end are left to `rest`
        self._asked_to_finish = 0.0
        self._last_good = time.monotonic()  # when the master last took something
        self._stopped = False
        self._batch = MAX_RECORDS
        self._unacceptable: Dict[int, str] = {}  # number of a record the master refuses -> its words
        self._backoff = Backoff()

    def wake(self) -> None:
        """Records were added."""
        with self._changed:
            self._pending = True
            self._changed.notify_all()

    def sync(self, number: int, timeout: float) -> bool:
        """Wait until the master has the first `number` records. False at once while the master is away, or
        after `timeout` seconds. One that took nothing in this time counts as away, although it has not refused the call
        that is under way: the training does not wait for it again."""
        began = time.monotonic()
        deadline = began + timeout
        if self._synced(number, deadline):
            return True
        if self.online and time.monotonic() >= deadline and self._last_good < began:
            self._offline(Unreachable("no answer for %.0f s" % timeout))
        return False

    def _synced(self, number: int, deadline: float) -> bool:
        with self._changed:
            self._hurry += 1
            self._pending = True
            self._changed.notify_all()
            try:
                while self._stream.acked < number and self.online and not self._stopped:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return False
                    self._changed.wait(left)
            finally:
                self._hurry -= 1
            return self._stream.acked >= number

    def finish(self, patience: float, leave: int = 0) -> None:
        """Send what is left, then end. Gives up when the master stays away for `retries` seconds; as long as
        it takes records, all are sent. At most `leave` last ones are not: they are for `rest`. Returns at once;
        `finished` waits."""
        with self._changed:
            self._finishing, self._leaves = patience, leave
            self._asked_to_finish = time.monotonic()
            self._nudged = self._pending = True
            self._changed.notify_all()

    def finished(self) -> bool:
        """After `finish`: wait until all is sent or given up; whether the master has all. A master that takes a
        call and does not answer it is waited for no longer than one that does not take it: what is left stands
        on disk."""
        patience = max(self._finishing or 0.0, LAST_CALL)
        while self.is_alive():
            left = max(self._last_good, self._asked_to_finish) + patience - time.monotonic()
            if left <= 0:
                return False
            self.join(left)
        return self.online

    def rest(self) -> Optional[Dict[str, Any]]:
        """After `finished`: what was left, as the body of a report; None when nothing was."""
        lines = self._stream.read(self._stream.acked, self._leaves) if self._leaves else []
        return self._body(lines) if lines else None

    def taken(self, acked: int) -> None:
        """After `rest`: the master has the first `acked` records."""
        self._stream.ack(acked)
        self._stream.save_acked()

    def send_rest(self) -> bool:
        """After `rest`, when it was refused: the ordinary way, in the caller's thread; whether the master has all."""
        self._leaves, self._stopped = 0, False
        self.run()
        return self.online

    def stop(self) -> None:
        """End soon, whatever is left."""
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
                self._rest(_LOOK_AGAIN if self._heartbeat is None else min(_LOOK_AGAIN, next_beat - now))
                continue
            if self._post(lines):
                self._last_good = time.monotonic()
                next_beat = self._last_good + (self._heartbeat or 0)
                if self._last_good - saved > 1.0:
                    self._stream.save_acked()
                    saved = self._last_good
                continue
            wait = self._backoff.next()
            if self._finishing is not None:
                wait = min(wait, _FINAL_WAIT)
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
        """Whether `lines` are all that is left, and few enough to be left."""
        if not lines:
            return True
        left = self._stream.lines() - self._stream.acked
        return self.online and left == len(lines) <= self._leaves

    def _post(self, lines: List[bytes]) -> bool:
        """Post one batch. True when the master took it or at least answered usefully."""
        first = self._stream.acked + 1
        try:
            answer = self._master.call("POST", self._path, self._body(lines), timeout=60.0)
            acked = int(answer["acked"])
        except Rejected as error:
            if error.http_status in NOT_ABOUT_RECORDS or not lines:
                self._offline(error)
            elif len(lines) > 1:
                self._batch = max(1, len(lines) // 2)
                return True
            elif first in self._unacceptable:
                self._offline(error)
            else:
                self._unacceptable[first] = str(error)
                self._say("the master refuses record %d of stream %s: %s" % (first, self._stream.name, error))
                return True
            return False
        except Away as error:
            self._offline(error)
            return False
        except (KeyError, TypeError, ValueError):
            self._offline(MasterError("the master's answer has no number of acknowledged records"))
            return False
        moved = acked != self._stream.acked
        self._stream.ack(acked)
        self._batch = min(MAX_RECORDS, self._batch * 2)
        if not self.online:
            self._say("the master is back")
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
        refused = self._unacceptable.get(number)
        if refused is None:
            try:
                record = loads(line.decode("utf-8"))
                if isinstance(record, dict):
                    return record
                refused = "not a JSON object"
            except ValueError as error:
                refused = str(error)
        # Its number must not be left out, or everything after it would wait for ever.
        start = line[:200].decode("utf-8", "replace").replace("\0", "\ufffd")
        return {"t": time.time(), "kind": "unreadable", "why": refused, "start": start}

    def _offline(self, error: MasterError) -> None:
        with self._changed:
            before = self.online
            self.online = False
            self._changed.notify_all()
        if before:
            self._say("reports wait on disk until the master is back: %s" % error)

    def _rest(self, longest: float) -> None:
        with self._changed:
            if not self._pending and not self._stopped:
                self._changed.wait(max(0.0, longest))
            if self._pending and self._linger and not self._urgent():
                self._changed.wait_for(self._urgent, self._linger)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._nudged, seconds)
            self._nudged = False

    def _urgent(self) -> bool:
        return bool(self._hurry or self._stopped or self._finishing is not None)
