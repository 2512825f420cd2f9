"""What `det` prints is text: other people's names, reasons and log lines move no cursor and set no title.

Everything passes through `Plain`, so that no printer can forget it.
"""

from __future__ import annotations

import re
import sys

TYPE_CHECKING = False  # typing's own costs an import
if TYPE_CHECKING:
    from typing import Any, TextIO

# ECMA-48: control sequences; strings (titles, links, and what else is asked of a terminal) up to their end; other
# escapes. Each also with its one-character form. A sequence that breaks off loses its beginning below.
_SEQUENCES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"
)
# Everything else that is obeyed instead of shown; among it what turns the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_RETURNS = re.compile("\r+\n?")  # a progress bar's states, each on a line of its own


def clean(text: str) -> str:
    """The text without anything that a terminal obeys; ends of lines and tabs stay."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _CONTROLS.sub("", _SEQUENCES.sub("", _RETURNS.sub("\n", text)))


class Plain:
    """A stream of text on which only clean text is written; in all else the stream itself."""

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
    """From here on this process prints clean text only."""
    if not isinstance(sys.stdout, Plain):
        sys.stdout, sys.stderr = Plain(sys.stdout), Plain(sys.stderr)


def unfiltered(stream: TextIO) -> TextIO:
    """For what is ours to the last character, and for JSON, which says controls in words."""
    return stream.stream if isinstance(stream, Plain) else stream
