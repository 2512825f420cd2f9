"""Turns what the user's process prints into log records."""

from __future__ import annotations

import os
import select
import time

from trainmaster.runtime.threads import Event, Thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

MAX_LINE = 64 * 1024  # bytes; longer lines are cut into several
_CR_INTERVAL = 1.0  # seconds between two recorded states of a progress bar
_RANK = "[rank="
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
# "INFO: x", "[INFO] x", "2024-01-01 12:00:00,123 - INFO - x", "12:00:00 WARNING x"
_LEVEL = r"^[^A-Za-z]{0,40}(?:[\w.:/-]+ (?:- )?){0,2}?[\[(<]?(" + "|".join(_LEVELS) + r")[\])>]?(?=[:\s|,-]|$)"
_LEVEL_NAMES = {"WARN": "WARNING", "FATAL": "CRITICAL"}


def parse_line(line: str) -> Tuple[Optional[int], str, str]:
    """Rank, level and text of a line. The rank is the prefix `[rank=N] ` that launchers put there, taken
    off."""
    rank = None
    if line.startswith(_RANK):
        number, bracket, text = line[len(_RANK) :].partition("]")
        if bracket and number.isdecimal():
            rank = int(number)
            line = text[1:] if text.startswith(" ") else text
    head = line[:160]
    name = _level(head) if any(level in head for level in _LEVELS) else "INFO"
    return rank, _LEVEL_NAMES.get(name, name), line


def _level(head: str) -> str:
    try:
        import re  # many a job names no level, and every job would wait for it
    except (ImportError, OSError):  # the image has gone with a process of the job that served it
        return "INFO"
    match = re.match(_LEVEL, head)
    return match.group(1) if match else "INFO"


def _pieces(text: bytes) -> Iterator[Tuple[bytes, bool, int]]:
    """What stands before each line end, whether that is one of a whole line (not a carriage return alone), and where
    the next begins. A carriage return at the very end may be the first half of one of these."""
    start = 0
    while True:
        newline = text.find(b"\n", start)
        end = newline if newline >= 0 else len(text)
        back = text.find(b"\r", start, end)
        if 0 <= back < end - 1:
            yield text[start:back], False, back + 1
            start = back + 1
        elif newline >= 0:
            yield text[start : back if back >= 0 else newline], True, newline + 1
            start = newline + 1
        else:
            return


class LineReader(Thread):
    """Reads one pipe to its end and hands over its lines as log records.

    A carriage return ends a line as well, but of the states that a progress bar runs through only about one a
    second and the last one are recorded. None of `secrets` gets into a record.
    """

    def __init__(self, pipe: int, stdtype: str, secrets: Sequence[str], add: Callable[[Dict[str, Any]], None]) -> None:
        super().__init__()
        self._pipe = pipe
        self._stdtype = stdtype
        self._secrets = secrets
        self._add = add
        self._held: Optional[bytes] = None  # the latest state of a progress bar
        self._last_bar = 0.0
        self._ending = Event()

    def run(self) -> None:
        rest = b""
        try:
            while True:
                # A progress bar that stands still is recorded although nothing follows it.
                if not select.select([self._pipe], [], [], _CR_INTERVAL)[0]:
                    self._bar_due(force=True)
                    if self._ending.is_set():
                        break
                    continue
                block = os.read(self._pipe, 1 << 16)
                if not block:
                    break
                rest = self._take(rest + block)
        finally:
            if rest:
                self._held = None
                self._emit(rest.rstrip(b"\r"))
            self._bar_due(force=True)
            os.close(self._pipe)

    def give_up(self) -> None:
        """Read what is there and end, although somebody may still hold the pipe."""
        self._ending.set()

    def _take(self, text: bytes) -> bytes:
        start = 0
        for piece, whole, after in _pieces(text):
            start = after
            if whole:
                self._held = None
                self._emit(piece)
            elif piece:
                self._held = piece
                self._bar_due()
        rest = text[start:]
        while len(rest) > MAX_LINE:
            self._emit(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        return rest

    def _bar_due(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._held is not None and (force or now - self._last_bar >= _CR_INTERVAL):
            self._last_bar = now
            held, self._held = self._held, None
            self._emit(held)

    def _emit(self, piece: bytes) -> None:
        for begin in range(0, max(1, len(piece)), MAX_LINE):
            text = piece[begin : begin + MAX_LINE].decode("utf-8", "replace")
            for secret in self._secrets:
                text = text.replace(secret, "[session token]")
            rank, level, line = parse_line(text)
            self._add({"t": time.time(), "stdtype": self._stdtype, "level": level, "rank": rank, "line": line})
