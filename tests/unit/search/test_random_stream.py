"""The random stream equals numpy's legacy generator, draw for draw."""

from __future__ import annotations

import json
import math
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.search import SearchError
from trainmaster.master.search.hyperparameters import sample
from trainmaster.master.search.mersenne import RandomState

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("seed", "low", "high", "first"),
    [
        (42, 0, 10, [6, 3, 7, 4, 6, 9, 2, 6, 7, 4]),
        (84, -10, 10, [0, 7, 4, 3, -10, 4, -9, 0, -6, -9]),
    ],
)
def test_the_golden_lists(seed: int, low: int, high: int, first: list[int]) -> None:
    stream = RandomState(seed)
    assert [low + stream.below(high - low) for _ in first] == first


@given(seeds, st.lists(st.integers(1, 2**63 - 1) | st.integers(1, 300) | st.sampled_from([2**32 - 1, 2**32])))
def test_integers_are_numpys(seed: int, bounds: list[int]) -> None:
    ours, theirs = RandomState(seed), np.random.RandomState(seed)
    assert [ours.below(n) for n in bounds] == [int(theirs.randint(0, n, dtype=np.int64)) for n in bounds]


@given(seeds, st.integers(1, 1500))
def test_doubles_are_numpys_across_the_generators_block(seed: int, count: int) -> None:
    ours = RandomState(seed)
    assert [ours.unit() for _ in range(count)] == np.random.RandomState(seed).random_sample(count).tolist()


@given(seeds, st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_uniform_is_numpys(seed: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert RandomState(seed).uniform(low, high) == np.random.RandomState(seed).uniform(low, high)


@given(seeds)
def test_a_request_id_is_four_little_endian_draws(seed: int) -> None:
    drawn = RandomState(seed).uuid4()
    raw = bytearray(np.random.RandomState(seed).randint(0, 2**32, 4, dtype=np.uint32).astype("<u4").tobytes())
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    assert drawn == uuid.UUID(bytes=bytes(raw))
    assert drawn.version == 4


def test_choice_of_one_costs_no_draw() -> None:
    stream, untouched = RandomState(7), RandomState(7)
    assert stream.below(1) == 0
    assert stream.bits32() == untouched.bits32()


@pytest.mark.parametrize("n", [0, -1, 2**64 + 1])
def test_an_impossible_bound_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=r"1 \.\. 2\*\*64 is possible"):
        RandomState(0).below(n)


@given(seeds, st.integers(0, 1300))
def test_a_stored_stream_continues_where_it_was(seed: int, drawn: int) -> None:
    stream = RandomState(seed)
    for _ in range(drawn):
        stream.bits32()
    text = json.loads(json.dumps(stream.dump()))
    again = RandomState.load(text)
    assert [again.unit() for _ in range(5)] == [stream.unit() for _ in range(5)]


@pytest.mark.parametrize("text", ["", "AAAA", "!!"])
def test_a_damaged_stream_is_named(text: str) -> None:
    with pytest.raises(SearchError, match="random state cannot be read"):
        RandomState.load(text)


SPACE = {
    "width": {"type": "int", "minval": -3, "maxval": 3},
    "lr": {"type": "log", "base": 10, "minval": -5, "maxval": 0},
    "act": {"type": "categorical", "vals": ["relu", [1, 2], None]},
    "drop": {"type": "double", "minval": 0, "maxval": 0.5},
    "batch": {"type": "const", "val": 64},
    "plain": "text",
    "nested": {
        "z": {"type": "double", "minval": 1, "maxval": 2},
        "a": {"b": {"type": "int", "minval": 1, "maxval": 9}},
    },
}


@given(seeds)
def test_a_point_draws_its_names_in_sorted_order_at_every_depth(seed: int) -> None:
    theirs = np.random.RandomState(seed)
    expected = {
        "act": ["relu", [1, 2], None][theirs.randint(0, 3)],
        "batch": 64,
        "drop": theirs.uniform(0, 0.5),
        "lr": math.pow(10, theirs.uniform(-5, 0)),
        "nested": {"a": {"b": theirs.randint(1, 10)}, "z": theirs.uniform(1, 2)},
        "plain": "text",
        "width": theirs.randint(-3, 4),
    }
    assert sample(SPACE, RandomState(seed)) == expected
    backwards = dict(reversed([(k, dict(reversed(v.items())) if isinstance(v, dict) else v) for k, v in SPACE.items()]))
    assert sample(backwards, RandomState(seed)) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"type": "itn", "minval": 1, "maxval": 2},
            "hyperparameter x: unknown type 'itn'; types are const, int",
        ),
        ({"type": "int", "minval": 1}, "hyperparameter x cannot be read: maxval is missing"),
        ({"type": "int", "minval": 1.5, "maxval": 3}, "hyperparameter x cannot be read: 'float' object"),
        (
            {"type": "int", "minval": 5, "maxval": 3},
            "hyperparameter x cannot be read: a random integer below -1",
        ),
        ({"type": "log", "base": 10, "minval": 400, "maxval": 500}, "is too large for a number"),
        ({"type": "categorical", "vals": []}, "hyperparameter x cannot be read"),
        ({"y": {"type": "const"}}, r"hyperparameter x.y cannot be read: val is missing"),
    ],
)
def test_an_unreadable_hyperparameter_is_named(value: object, message: str) -> None:
    with pytest.raises(SearchError, match=message):
        sample({"x": value}, RandomState(0))
