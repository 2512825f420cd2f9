"""Quotes the last output of the user's program before it failed, for the sentence that ends its trial."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, Mapping, Optional, Sequence, Tuple

LONGEST = 600  # characters of evidence
_KEPT = 80  # lines; torchrun prints up to 40 after the rank that failed
_LONGEST_LINE = 300  # characters
_LAST = 3  # lines that are quoted where there is no traceback
_RANK = "[rank"
_BEGINS = "Traceback (most recent call last):"


class Tail:
    """Keeps the ends of the last lines, in bounded memory."""

    def __init__(self) -> None:
        self._lines: Dict[str, Deque[Tuple[Optional[int], str]]] = {
            stdtype: deque(maxlen=_KEPT) for stdtype in ("stderr", "stdout")
        }

    def add(self, record: Mapping[str, Any]) -> None:
        """Add a record of the log (`logs.LineReader`)."""
        line = _without_rank(record["line"])
        self._lines[record["stdtype"]].append((record["rank"], line[:_LONGEST_LINE]))

    def quote(self, rank: Optional[int] = None) -> str:
        """Quote the last exception that was printed, else the last lines; empty without any output. `rank`: the
        rank that failed first, of which alone lines are quoted; those on stdout where it wrote none on stderr."""
        lines = list(self._lines["stderr"])
        if rank is None:
            # A rank's own exception says more than that of a launcher which found it failed.
            ranks = [each for each, line in lines if each is not None and line.startswith(_BEGINS)]
            of_one = [line for each, line in lines if not ranks or each == ranks[0]]
        else:
            of_one = [line for each, line in lines if each == rank]
            of_one = of_one or [line for each, line in self._lines["stdout"] if each == rank]
        quoted = printable(_last_exception(of_one))
        if not quoted:
            quoted = " | ".join([text for text in map(printable, of_one) if text][-_LAST:])
        return quoted[:LONGEST]


def _without_rank(line: str) -> str:
    """Remove `[rank2]: `, which PyTorch puts before the lines of a traceback."""
    number, separator, text = line[len(_RANK) :].partition("]: ") if line.startswith(_RANK) else ("", "", "")
    return text if separator and number.isdecimal() else line


def _last_exception(lines: Sequence[str]) -> str:
    """Find the end of the last traceback: the first line after it that is not indented."""
    last, inside = "", False
    for line in lines:
        if line.startswith(_BEGINS):
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            last, inside = line, False
    return last


def printable(text: str) -> str:
    """Remove from `text` what moves a terminal's cursor, colours it or changes the direction of writing, and make
    it one line."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in _without_colours(text)).split())


def _without_colours(text: str) -> str:
    """Remove the sequences of ECMA-48 that begin with ESC [ and end with a letter."""
    first, *others = text.split("\x1b[")
    return first + "".join(piece.lstrip("0123456789;:?")[1:] for piece in others)
