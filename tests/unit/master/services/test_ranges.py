from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.ranges import Ranges

NUMBERS = st.sets(st.integers(0, 40))


@given(NUMBERS)
def test_written_ranges_are_read_back(numbers: set[int]) -> None:
    ranges = Ranges.of(numbers)
    assert Ranges.parse(str(ranges)) == ranges
    assert {number for number in range(50) if number in ranges} == numbers
    assert bool(ranges) is bool(numbers)


@given(NUMBERS, NUMBERS)
def test_taking_out_is_the_difference_of_sets(numbers: set[int], out: set[int]) -> None:
    assert Ranges.of(numbers).without(out) == Ranges.of(numbers - out)


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", ()), ("7", ((7, 7),)), ("5-6,1-3,4", ((1, 6),)), ("1-9,2-3", ((1, 9),)), ("1,1", ((1, 1),))],
)
def test_however_it_is_written(text: str, parts: tuple[tuple[int, int], ...]) -> None:
    assert Ranges.parse(text).parts == parts


def test_a_huge_range_costs_nothing() -> None:
    left = Ranges.parse("1-9000000000000000000").without([5, 10**18])
    assert str(left) == f"1-4,6-{10**18 - 1},{10**18 + 1}-9000000000000000000"


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "1,,2", " 1", "1" * 20, "²"])
def test_malformed_id_list_is_rejected(text: str) -> None:
    with pytest.raises(Invalid, match="1-3,7"):
        Ranges.parse(text)
