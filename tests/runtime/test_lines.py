"""Lines and the states of progress bars, cut out of what a program prints."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runtime.logs import _pieces


def by_rule(text: bytes) -> list[tuple[bytes, bool, int]]:
    start, found = 0, []
    for match in re.finditer(rb"\r?\n|\r(?!\n|$)", text):
        found.append((text[start : match.start()], match.group().endswith(b"\n"), match.end()))
        start = match.end()
    return found


@given(st.text("a\r\n", max_size=12).map(str.encode))
def test_lines_are_cut_by_the_rule(text):
    assert list(_pieces(text)) == by_rule(text)
