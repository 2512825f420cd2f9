"""Lines and the states of progress bars, cut out of what a program prints."""

from __future__ import annotations

import os
import re
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.launchers import wrap_rank
from trainmaster.runtime.logs import MAX_LINE, LineReader, _pieces


def by_rule(text: bytes) -> list[tuple[bytes, bool, int]]:
    start, found = 0, []
    for match in re.finditer(rb"\r?\n|\r(?!\n|$)", text):
        found.append((text[start : match.start()], match.group().endswith(b"\n"), match.end()))
        start = match.end()
    return found


@given(st.text("a\r\n", max_size=12).map(str.encode))
def test_lines_are_cut_by_the_rule(text: Any) -> None:
    assert list(_pieces(text)) == by_rule(text)


LETTERS = ["a", "é", "好", "😀", "\n"]


def read_in_pieces(text: Any, sizes: Any) -> Any:
    """What a reader makes of a text that is written to its pipe in pieces of `sizes` bytes."""
    records: list[Any] = []
    source, target = os.pipe()
    reader = LineReader(source, "stdout", [], records.append)
    reader.start()
    content, at = text.encode(), 0
    with os.fdopen(target, "wb", buffering=0) as pipe:
        while at < len(content):
            size = next(sizes)
            pipe.write(content[at : at + size])
            at += size
    reader.join(30)
    return [record["line"] for record in records]


@given(
    st.lists(st.sampled_from(LETTERS[:4]), min_size=1, max_size=4),
    st.integers(0, 5),
    st.integers(1, 5),
    st.sampled_from([1021, 4096, 65535, 65536, 65537]),
)
def test_every_character_of_a_long_line_arrives(letters: Any, shift: Any, length: Any, size: Any) -> None:
    """At each place of the cut in a character, and whatever pieces the pipe is read in."""
    line = "x" * shift + "".join(letters) * (length * MAX_LINE // 8)
    lines = read_in_pieces(line + "\nend\n", iter(lambda: size, 0))
    assert lines[-1] == "end"
    assert "".join(lines[:-1]) == line
    assert all(len(part.encode()) <= MAX_LINE for part in lines)


def test_bytes_that_are_no_text_are_cut_as_ever() -> None:
    records: list[Any] = []
    source, target = os.pipe()
    reader = LineReader(source, "stdout", [], records.append)
    reader.start()
    with os.fdopen(target, "wb") as pipe:
        pipe.write(b"\x80" * (2 * MAX_LINE) + b"\n")
    reader.join(30)
    assert [len(record["line"]) for record in records] == [MAX_LINE, MAX_LINE]


def test_a_long_line_of_a_rank_arrives_whole() -> None:
    (source, write), (read, target) = os.pipe(), os.pipe()
    pieces = []

    def take() -> None:
        while block := os.read(read, 1 << 20):
            pieces.append(block)

    text = ("好" * 100_000).encode()
    with os.fdopen(write, "wb", buffering=0) as pipe:
        feeder = threading.Thread(target=lambda: [pipe.write(part) for part in (b"x", text)])
        pump = threading.Thread(target=wrap_rank._pump, args=(os.fdopen(source, "rb"), target, b"[rank=0] "))
        threads = [threading.Thread(target=take), pump, feeder]
        for thread in threads:
            thread.start()
        feeder.join(30)
    pump.join(30)
    os.close(target)
    threads[0].join(30)
    os.close(read)
    assert b"".join(pieces).decode() == "[rank=0] x" + text.decode()
