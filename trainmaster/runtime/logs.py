"""Turns the output of the user's process into log records."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Tuple

MAX_LINE = 64 * 1024  # bytes; longer lines are cut into several
_CR_INTERVAL = 1.0  # seconds between two recorded states of a progress bar
_RANK = "[rank="
_LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL")
# "INFO: x", "[INFO] x", "2024-01-01 12:00:00,123 - INFO - x", "12:00:00 WARNING x"
_LEVEL = r"^[^A-Za-z]{0,40}(?:[\w.:/-]+ (?:- )?){0,2}?[\[(<]?(" + "|".join(_LEVELS) + r")[\])>]?(?=[:\s|,-]|$)"
_LEVEL_NAMES = {"WARN": "WARNING", "FATAL": "CRITICAL"}


def parse_line(line: str) -> Tuple[Optional[int], str, str]:
    """Split a line into rank, level and text. The rank comes from the prefix `[rank=N] ` that launchers add."""
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
    match = re.match(_LEVEL, head)
    return match.group(1) if match else "INFO"


def character_end(text: bytes, most: int) -> int:
    """Find where to cut a text that is longer than `most` bytes: there, or before the UTF-8 character that it would
    cut in two."""
    for end in range(most, max(most - 4, 0), -1):
        if text[end] & 0xC0 != 0x80:  # no byte inside a character
            return end
    return most


def _parts(piece: bytes) -> Iterator[bytes]:
    """Cut a line into parts of at most MAX_LINE bytes, none within a character. An empty line is one part."""
    while len(piece) > MAX_LINE:
        end = character_end(piece, MAX_LINE)
        yield piece[:end]
        piece = piece[end:]
    yield piece


def _pieces(text: bytes) -> Iterator[Tuple[bytes, bool, int]]:
    """Yield the text before each line end, whether that ends a whole line (a carriage return alone does not), and
    where the next piece begins. A carriage return at the very end may be the first half of a line end."""
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


class LineReader(threading.Thread):
    """Reads one pipe to its end and passes its lines on as log records.

    A carriage return ends a line as well, but of the states that a progress bar runs through only about one a second
    and the last one are recorded. None of `secrets` gets into a record.
    """

    def __init__(self, pipe: int, stdtype: str, secrets: Sequence[str], add: Callable[[Dict[str, Any]], None]) -> None:
        super().__init__(name="read-" + stdtype, daemon=True)
        self._pipe = pipe
        self._stdtype = stdtype
        self._secrets = secrets
        self._add = add
        self._held: Optional[bytes] = None  # the latest state of a progress bar
        self._last_bar = 0.0
        self._ending = threading.Event()

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
        """Read what is there and end, even if another process still holds the pipe."""
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
            end = character_end(rest, MAX_LINE)
            self._emit(rest[:end])
            rest = rest[end:]
        return rest

    def _bar_due(self, force: bool = False) -> None:
        now = time.monotonic()
        if self._held is not None and (force or now - self._last_bar >= _CR_INTERVAL):
            self._last_bar = now
            held, self._held = self._held, None
            self._emit(held)

    def _emit(self, piece: bytes) -> None:
        for part in _parts(piece):
            text = part.decode("utf-8", "replace")
            for secret in self._secrets:
                text = text.replace(secret, "[session token]")
            rank, level, line = parse_line(text)
            self._add({"t": time.time(), "stdtype": self._stdtype, "level": level, "rank": rank, "line": line})
