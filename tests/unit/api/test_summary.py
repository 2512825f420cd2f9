"""A trial's summary does not depend on how its reports were cut into requests."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.services.ingest.metrics import summarised

NUMBERS = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6))
VALUES = st.one_of(
    NUMBERS, NUMBERS, st.sampled_from(["NaN", "Infinity", "-Infinity", "text", True, None, [1], {"a": 1}])
)


@given(st.lists(VALUES, min_size=1, max_size=30), st.integers(0, 30))
def test_two_batches_count_as_one(values: list[Any], cut: int) -> None:
    name = ("training", "x")
    whole = summarised({}, {name: values})
    parts = summarised({}, {name: values[:cut]}) if values[:cut] else {}
    parts = summarised(parts, {name: values[cut:]}) if values[cut:] else parts
    one, two = whole["avg_metrics"]["x"], parts["avg_metrics"]["x"]
    assert one.keys() == two.keys()
    for key, value in one.items():
        assert value == two[key] or math.isclose(value, two[key], rel_tol=1e-9, abs_tol=1e-6), key


@given(st.lists(NUMBERS, min_size=1))
def test_numbers_are_measured(values: list[float]) -> None:
    entry = summarised({}, {("validation", "x"): values})["validation_metrics"]["x"]
    assert (entry["type"], entry["count"], entry["last"]) == ("number", len(values), values[-1])
    assert (entry["min"], entry["max"]) == (min(values), max(values))
    assert math.isclose(entry["mean"], sum(values) / len(values), rel_tol=1e-9, abs_tol=1e-6)


def test_other_groups_are_left_as_they_are() -> None:
    before = summarised({}, {("training", "a"): [1], ("validation", "b"): [2]})
    kept = {key: dict(value) for key, value in before.items()}
    after = summarised(before, {("training", "a"): [3]})
    assert before == kept, "the old summary is not changed"
    assert after["validation_metrics"] == before["validation_metrics"]
    assert after["avg_metrics"]["a"]["count"] == 2
