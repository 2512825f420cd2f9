"""Streams of reports on disk: JSON lines; the line's number (from 1) is the record's sequence number.

One process writes a stream at a time, one process reads it. A line counts once its newline is there; a tail without
one is what a killed writer left, was never shown to the master, and is cut off by the next writer.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, List, Mapping, Optional, Tuple

from trainmaster.runtime.files import replace_file

MAX_RECORDS = 1000  # of one batch
MAX_BYTES = 1_000_000  # of one batch; a single longer record goes alone
_KEPT_IN_MEMORY = 32 * 1024 * 1024  # bytes of lines that wait for a full disk
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_SHIPPED = b"{}\n"  # stands for a line that the master had before the disk took it


def encode(record: Mapping[str, Any]) -> bytes:
    """Encode one record as a line. Characters that PostgreSQL's jsonb refuses (NUL, lone surrogates) become U+FFFD;
    a line of the log keeps its NULs, which the master stores in another way."""
    text = _JSON.encode(record)
    if "\\u0000" in text or "\\ud" in text:
        storable = _storable(record)
        if isinstance(record.get("line"), str):
            storable["line"] = _whole(record["line"])
        text = _JSON.encode(storable)
    return text.encode("ascii") + b"\n"


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return _whole(value).replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_storable(item) for item in value]
    return value


def _whole(text: str) -> str:
    """Replace lone halves of surrogate pairs."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class SpoolWriter:
    """Appends lines to one file. Not thread-safe."""

    def __init__(self, path: str) -> None:
        """Open or create the file. Raises OSError."""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self.lines, self._size = _count_lines(self._file)
            if os.fstat(self._file).st_size > self._size:
                os.ftruncate(self._file, self._size)
        except OSError:
            os.close(self._file)
            raise

    def append(self, line: bytes) -> int:
        """Append one encoded line and return its number. Raises OSError, with no part of the line left in the file."""
        written = 0
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)
        self.lines += 1
        return self.lines

    def sync(self) -> None:
        """Make everything written so far durable."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def _count_lines(file: int) -> Tuple[int, int]:
    """Count whole lines in an open file, and find the offset after the last newline."""
    lines = size = position = 0
    while True:
        block = os.pread(file, 1 << 20, position)
        if not block:
            return lines, size
        lines += block.count(b"\n")
        last = block.rfind(b"\n")
        if last >= 0:
            size = position + last + 1
        position += len(block)


class SpoolReader:
    """Reads whole lines of a file that may still grow, or may not exist yet. Not thread-safe.

    It keeps the file open: one that somebody removes while it is written is read to its end.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Optional[int] = None
        self._line = 0  # number of the line that ends at _offset
        self._offset = 0

    def read(self, after: int, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES) -> List[bytes]:
        """Read lines `after + 1` and following, without newlines. Going backwards is allowed and costs a scan."""
        file = self._open()
        if file is None:
            return []
        with os.fdopen(os.dup(file), "rb") as stream:
            if after < self._line:
                self._line = self._offset = 0
            stream.seek(self._offset)
            while self._line < after:
                line = stream.readline()
                if not line.endswith(b"\n"):
                    return []
                self._line += 1
                self._offset += len(line)
            lines: List[bytes] = []
            size = 0
            while len(lines) < max_records:
                line = stream.readline()
                size += len(line)
                if not line.endswith(b"\n") or (lines and size > max_bytes):
                    break
                lines.append(line[:-1])
            return lines

    def count(self) -> int:
        """Return the number of whole lines in the file now."""
        file = self._open()
        return _count_lines(file)[0] if file is not None else 0

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _open(self) -> Optional[int]:
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
        return self._file


class Stream:
    """A stream in the runtime: the file, the acknowledged position, and what a full disk did not take.

    Thread-safe. While the disk takes nothing, lines wait in memory (32 MiB at most, then new ones are counted and
    dropped) and can be read from there, so that the master gets them all the same; once the disk takes lines again
    they are written under their own numbers.
    """

    def __init__(self, folder: str, name: str, on_error: Callable[[str], None]) -> None:
        self.name = name
        self.lost = 0  # records dropped for want of memory
        self._path = os.path.join(folder, name + ".jsonl")
        self._acked_path = os.path.join(folder, name + ".acked")
        self._on_error = on_error
        self._reader = SpoolReader(self._path)
        self._writer: Optional[SpoolWriter] = None
        self._waiting: List[bytes] = []  # the first of them is line `_on_disk + 1`
        self._waiting_bytes = 0
        self._on_disk = 0  # lines of the file; meaningful while `_waiting` is not empty
        self._error_reported = False
        self._acked = self._read_acked()
        self._saved_acked = self._acked
        self._lock = threading.Lock()

    @property
    def acked(self) -> int:
        """How many records the master has acknowledged."""
        return self._acked

    @property
    def degraded(self) -> bool:
        """Whether the disk takes nothing at present."""
        return bool(self._waiting)

    def append(self, record: Mapping[str, Any]) -> int:
        """Add a record and return its number. Never raises when the disk is full."""
        return self.append_line(encode(record))

    def append_line(self, line: bytes) -> int:
        """Add an encoded line and return its number (the last number, when it had to be dropped)."""
        failure = None
        with self._lock:
            try:
                self._flush()
                number = self._open_writer().append(line)
            except OSError as error:
                failure = error
                number = self._keep(line)
        if failure is not None:
            self._report_error(failure)
        return number

    def read(self, after: int, max_records: int = MAX_RECORDS) -> List[bytes]:
        """Read at most `max_records` lines (about 1 MB) that follow line `after`."""
        with self._lock:
            if not self._waiting or after < self._on_disk:
                lines = self._reader.read(after, max_records)
                if lines or not self._waiting or after < self._on_disk:
                    return lines
            lines = []
            size = 0
            for line in self._waiting[max(0, after - self._on_disk) :]:
                size += len(line)
                if len(lines) == max_records or (lines and size > MAX_BYTES):
                    break
                lines.append(line[:-1])
            return lines

    def lines(self) -> int:
        """Return the number of records in the stream now."""
        with self._lock:
            if self._waiting:
                return self._on_disk + len(self._waiting)
            return self._writer.lines if self._writer is not None else self._reader.count()

    def ack(self, number: int) -> None:
        """Record that the master has the first `number` records."""
        with self._lock:
            self._acked = number
            for place in range(min(len(self._waiting), number - self._on_disk)):
                self._waiting_bytes -= len(self._waiting[place]) - len(_SHIPPED)
                self._waiting[place] = _SHIPPED

    def save_acked(self) -> None:
        """Write the acked file. A stale or missing one does no harm: the master skips what it has."""
        if self._acked == self._saved_acked:
            return
        acked = self._acked
        try:
            replace_file(self._acked_path, "%d\n" % acked)
        except OSError as error:
            self._report_error(error)
        else:
            self._saved_acked = acked

    def finish(self) -> None:
        """Write waiting lines and the acknowledged position to disk."""
        self._try(self._flush)
        self.save_acked()

    def make_durable(self) -> None:
        """Flush to disk what was written."""
        if self._writer is not None:
            self._try(self._writer.sync)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            with self._lock:
                work()
        except OSError as error:
            self._report_error(error)

    def close(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._reader.close()

    def _open_writer(self) -> SpoolWriter:
        if self._writer is None:
            self._writer = SpoolWriter(self._path)
        return self._writer

    def _flush(self) -> None:
        if not self._waiting:
            return
        written = 0
        try:
            for line in self._waiting:
                self._open_writer().append(line)
                written += 1
        finally:
            self._on_disk += written
            self._waiting_bytes -= sum(map(len, self._waiting[:written]))
            del self._waiting[:written]
        self._error_reported = False

    def _keep(self, line: bytes) -> int:
        if not self._waiting:
            self._on_disk = self._writer.lines if self._writer is not None else self._reader.count()
        if self._waiting_bytes + len(line) > _KEPT_IN_MEMORY:
            self.lost += 1
        else:
            self._waiting.append(line)
            self._waiting_bytes += len(line)
        return self._on_disk + len(self._waiting)

    def _report_error(self, error: OSError) -> None:
        # Once per trouble: the sentence goes into a stream itself.
        if not self._error_reported:
            self._error_reported = True
            self._on_error(
                "the job folder takes no more reports (%s: %s): they wait in memory and go to the master "
                "from there; make room under %s" % (self.name, error.strerror or error, os.path.dirname(self._path))
            )

    def _read_acked(self) -> int:
        try:
            with open(self._acked_path, encoding="ascii") as file:
                return max(0, int(file.read()))
        except (OSError, ValueError):
            return 0
