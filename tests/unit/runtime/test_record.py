"""Values with names, as the runtime keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.runtime.record import Record


class Point(Record):
    x: int
    y: int = 2


def test_fields_come_in_order_or_by_name_and_have_defaults() -> None:
    assert Point(1) == Point(x=1, y=2) == Point(1, 2)
    assert Point(1).values() == {"x": 1, "y": 2}
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert {Point(1), Point(1, 2), Point(1, 3)} == {Point(1), Point(1, 3)}
    assert Point(1).replaced(y=5) == Point(1, 5) != Point(1)


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_wrong_number_or_names_of_values_are_rejected(values: Any, named: Any) -> None:
    with pytest.raises(TypeError, match="Point takes x, y"):
        Point(*values, **named)


def test_nothing_changes_afterwards() -> None:
    with pytest.raises(AttributeError, match="a Point cannot be changed"):
        Point(1).x = 3  # type: ignore[misc]
