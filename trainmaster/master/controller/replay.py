"""Reads what an ended job wrote to its folder and could not deliver, piece by piece.

A job may leave anything there. So no more than a few megabytes are in memory at a time, a replay yields its turn
after a moment and continues in a later pass, only the streams of the job's own nodes are read, no record beyond those
that its exit records count, and of all that no more than the site's limits allow. The database holds the progress:
the acknowledged number of each stream.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence

from trainmaster.config.limits import Limits
from trainmaster.dispatchers.base import Remains, StreamPiece, StreamPosition
from trainmaster.master.services.allocations import endings
from trainmaster.master.services.batches import single
from trainmaster.master.services.errors import NotFound, ServiceError
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.services.master import Master
from trainmaster.master.values.stored import Json

CHUNK = 1000  # records of a spool taken in by one transaction
CHUNK_BYTES = 2**20
BEYOND = 2**62  # a position beyond the end of any file
Read = Callable[[dict[str, StreamPosition]], Remains | None]


class UnreadableFolder(Exception):
    """The folder cannot be read now."""


class NotThereYet(Exception):
    """The folder lacks records that the exit records count, and may still get them: a Docker host sends its files when
    the container has ended, and a network disk shows them with a delay."""


class Replay:
    """The replay of one attempt."""

    def __init__(self, master: Master, verdict: endings.Verdict) -> None:
        self._master, self._found = master, verdict
        self._places = {stream: StreamPosition(acked, -1) for stream, acked in verdict.taken.items()}
        self._reached = dict(verdict.taken)  # records of each stream that are stored, or left out
        self._done: set[str] = set()
        self._records = self._unreadable = 0
        self._gone = False  # its experiment was deleted
        self.spent = 0.0  # seconds
        self.flood = ""  # why the rest is ignored, as a sentence: it is more than any honest job leaves

    def go_on(self, read: Read, until: float) -> bool:
        """Take in more records for a limited time; return whether all that count have been. Raises UnreadableFolder,
        NotThereYet (begin again later), and as `Store.transaction`."""
        began = time.monotonic()
        try:
            while not self._gone and not self.flood:
                remains = read(self._places)
                if remains is None:
                    raise UnreadableFolder
                for stream, piece in remains.streams.items():
                    if not self._counts(stream):
                        self._end(stream)
                    elif not self._take(stream, piece, until):
                        return False
                if self._done.issuperset(remains.streams):
                    self._miss_nothing()
                    return True
                if time.monotonic() >= until:
                    return False
            return True
        finally:
            self.spent += time.monotonic() - began

    def _miss_nothing(self) -> None:
        wanted = self._found.written.items()
        if not (self._found.left or self._gone or self.flood) and any(self._reached.get(s, 0) < n for s, n in wanted):
            raise NotThereYet

    def _counts(self, stream: str) -> bool:
        """Whether it is a stream that the runtimes of this job write, and not read to its end."""
        kind, _, rank = stream.partition("-")
        counts = stream == "core" or (kind == "log" and rank.isdigit() and int(rank) < self._found.num_nodes)
        return counts and stream not in self._done

    def _end(self, stream: str) -> None:
        self._done.add(stream)
        self._places[stream] = StreamPosition(0, BEYOND)  # no more of it is read

    def _take(self, stream: str, piece: StreamPiece, until: float) -> bool:
        """Take in one stream. False when time was over before all of it was taken in."""
        line = piece.end.line - piece.content.count(b"\n")
        offset = piece.end.offset - len(piece.content)
        most = self._found.written.get(stream)  # None: its node could not count them
        for lines, size in _chunks(piece.content):
            if most is not None and line >= most:
                break
            if time.monotonic() >= until:
                self._places[stream] = StreamPosition(line, offset)
                return False
            fitting = lines if most is None else lines[: most - line]
            self._records += len(fitting)
            if self._records > self._limits.spool_records:
                self._stop("spool_records", "it left more than {} records behind")
                return True
            if not self._store_lines(stream, line + 1, fitting):
                return True
            line, offset = line + len(lines), offset + size
            self._reached[stream] = line
        self._places[stream] = piece.end
        if piece.cut and (most is None or line < most):
            self._stop("spool", "it left more than {} MB of reports behind")
        elif not piece.more or (most is not None and line >= most):
            self._end(stream)
        return True

    def _store_lines(self, stream: str, first: int, lines: Sequence[bytes]) -> bool:
        """Store as the runtime delivers: a record that cannot be stored is found by halving, and only its number is
        kept. False: no more of this attempt is taken in."""
        records = [_record(line, self._limits) for line in lines]
        self._unreadable += sum(record.get("kind") == "unreadable" for record in records)
        done, size = 0, CHUNK
        while done < len(records):
            if self._unreadable > self._limits.spool_unreadable:
                self._stop("spool_unreadable", "it left more than {} lines behind that are no reports")
                return False
            chunk = records[done : done + size]
            try:
                reports = ReportCall(self._found.allocation_id, StreamBatch(stream, first + done, chunk), replayed=True)
                answer = single(self._master.report_calls.take_reports([reports]))
            except NotFound:
                self._gone = True
                return False
            except ServiceError as error:
                if size > 1:
                    size = max(min(size, len(chunk)) // 2, 1)
                else:
                    records[done] = {"kind": "unreadable", "why": error.message}
                    self._unreadable += 1
                continue
            if answer.acked < first + done:
                return True  # a gap: the file has changed
            done, size = answer.acked + 1 - first, CHUNK
        return True

    @property
    def _limits(self) -> Limits:
        return self._master.settings.limits

    def _stop(self, key: str, what: str) -> None:
        sentence = what.format(getattr(self._limits, key))
        self.flood = f"The job flooded its folder: {sentence} (limits.{key}). The rest is left out."


def _chunks(content: bytes) -> Iterator[tuple[list[bytes], int]]:
    """Lines in the order of the file, a bounded number and size at a time, and how many bytes they take in it."""
    start = 0
    while start < len(content):
        lines: list[bytes] = []
        place = start
        while place < len(content) and len(lines) < CHUNK and place - start < CHUNK_BYTES:
            end = content.index(b"\n", place)
            lines.append(content[place:end])
            place = end + 1
        yield lines, place - start
        start = place


def _record(line: bytes, limits: Limits) -> Json:
    """Parse a line. An invalid line is kept as such, so that numbers stay right."""
    # A line of nothing but brackets takes fifty times its size once it is parsed.
    if len(line) > _roomy(limits) and line.count(b",") + line.count(b"[") + line.count(b"{") > _roomy(limits):
        return {"kind": "unreadable", "why": "it holds more values than limits.report_values allows"}
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        record = None
    return record if isinstance(record, dict) else {"kind": "unreadable"}


def _roomy(limits: Limits) -> int:
    return max(4 * limits.report_values, 2 * limits.checkpoint_files)  # strings hold commas too
