"""What the user's program said before it failed, short enough for the sentence that ends its trial."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from typing import Any, Deque, Dict, Mapping, Optional, Sequence, Tuple
else:
    from _collections import deque

LONGEST = 600  # characters of evidence
_KEPT = 80  # lines; torchrun says up to 40 after the rank that failed
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
        """Take a record of the log (`logs.LineReader`)."""
        line = _without_rank(record["line"])
        self._lines[record["stdtype"]].append((record["rank"], line[:_LONGEST_LINE]))

    def quote(self, rank: Optional[int] = None) -> str:
        """The last exception that was printed, else the last lines; empty when nothing was. `rank`: the one that failed
        first, whose own words are quoted, those on stdout where it said nothing on stderr."""
        lines = list(self._lines["stderr"])
        if rank is None:
            # A rank's own exception says more than that of a launcher which found it failed.
            ranks = [each for each, line in lines if each is not None and line.startswith(_BEGINS)]
            of_one = [line for each, line in lines if not ranks or each == ranks[0]]
        else:
            of_one = [line for each, line in lines if each == rank]
            of_one = of_one or [line for each, line in self._lines["stdout"] if each == rank]
        found = printable(_last_exception(of_one))
        if not found:
            found = " | ".join([text for text in map(printable, of_one) if text][-_LAST:])
        return found[:LONGEST]


def _without_rank(line: str) -> str:
    """Without `[rank2]: `, which PyTorch puts before the lines of a traceback."""
    number, found, text = line[len(_RANK) :].partition("]: ") if line.startswith(_RANK) else ("", "", "")
    return text if found and number.isdecimal() else line


def _last_exception(lines: Sequence[str]) -> str:
    """What stands at the end of the last traceback: the first line after it that is not indented."""
    found, inside = "", False
    for line in lines:
        if line.startswith(_BEGINS):
            inside = True
        elif inside and line and not line.startswith((" ", "\t")):
            found, inside = line, False
    return found


def printable(text: str) -> str:
    """`text` without what moves a terminal's cursor, colours it or turns its writing: one line that can be shown."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in _without_colours(text)).split())


def _without_colours(text: str) -> str:
    """Without the sequences of ECMA-48 that begin with ESC [ and end with a letter."""
    first, *others = text.split("\x1b[")
    return first + "".join(piece.lstrip("0123456789;:?")[1:] for piece in others)
