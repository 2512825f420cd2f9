"""The runtime's JSON is that of `json`."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.runtime.plain_json import dumps, loads

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_values_survive(value):
    assert dumps(value) == json.dumps(value, separators=(",", ":"))
    assert loads(dumps(value)) == value
    assert loads(json.dumps(value, indent=1, ensure_ascii=False) + "\n") == value


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", '{"a":1} x', "nul", '"a', '"\n"', "01", "1 2", "'a'", "{1:2}"])
def test_what_is_no_json_is_an_error(text):
    for read in (json.loads, loads):
        with pytest.raises(ValueError, match=r"JSON|Expecting|control character|Unterminated|Extra data"):
            read(text)


def test_numbers_that_are_none_are_written_only_when_they_may_be():
    assert dumps([math.inf, -math.inf]) == "[Infinity,-Infinity]"
    assert loads("[Infinity,-Infinity]") == [math.inf, -math.inf]
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(math.nan, allow_nan=False)


def test_what_json_does_not_know_is_named():
    with pytest.raises(TypeError, match="a set cannot be written as JSON"):
        dumps({"a": {1}})


def test_a_circle_is_an_error():
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular reference"):
        dumps(circle)
