"""Removes terminal control sequences from `det`'s output, so that other users' names, reasons and log lines cannot move
the cursor or set a title.

All output passes through `Plain`, so that no caller can forget it.
"""

from __future__ import annotations

import re
import sys

TYPE_CHECKING = False  # typing's own costs an import
if TYPE_CHECKING:
    from typing import Any, TextIO

# ECMA-48: control sequences; strings (titles, links and other requests) up to their end; other escapes. Each also in
# its one-character form. The beginning of an incomplete sequence is removed below.
_SEQUENCES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"
)
# All other characters that a terminal obeys instead of showing, among them those that change the writing direction.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_RETURNS = re.compile("\r+\n?")  # each state of a progress bar becomes a line


def clean(text: str) -> str:
    """Return the text without control sequences; line ends and tabs stay."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _CONTROLS.sub("", _SEQUENCES.sub("", _RETURNS.sub("\n", text)))


class Plain:
    """A text stream that writes cleaned text; everything else is that of the wrapped stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(clean(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def protect() -> None:
    """Clean everything that this process prints from now on."""
    if not isinstance(sys.stdout, Plain):
        sys.stdout, sys.stderr = Plain(sys.stdout), Plain(sys.stderr)


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream without cleaning: for our own control sequences, and for JSON, which escapes control
    characters."""
    return stream.stream if isinstance(stream, Plain) else stream
