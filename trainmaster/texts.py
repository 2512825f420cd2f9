"""Other people's texts, where they are shown and where they are exported: one rule each, which the web page has too
(`webui/app/lib/format.js` and `files.js`; `tests/process/webui/test_texts.py` compares them)."""

from __future__ import annotations

import re

# Characters that nobody sees, or that turn what follows them: controls, Unicode's default-ignorable ones (17.0, with
# those that are reserved for them), line and paragraph separators, marks of annotations, and halves of pairs.
_HIDDEN = (
    *((0x00, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5)),
    *((0x180B, 0x180F), (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xD800, 0xDFFF)),
    *((0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3)),
    *((0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
HIDDEN = re.compile("[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _HIDDEN) + "]")
# What spreadsheets take for the beginning of a formula, also in full width; blanks before it do not matter.
_FORMULA = re.compile("[=+\\-@\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_QUOTED = re.compile('[",;\t\r\n]')


def visible(text: str) -> str:
    """Return the text with its hidden characters written as `‹200B›`."""
    if text.isascii() and text.isprintable():
        return text
    return HIDDEN.sub(lambda found: f"‹{ord(found[0]):04X}›", text)


def csv_cell(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula, quoted where a separator of any language is in
    it."""
    first = HIDDEN.sub("", text).lstrip()[:1]
    if (_FORMULA.match(first) and not _NUMBER.fullmatch(text)) or (text[:1] in ("\t", "\r", "\n")):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
