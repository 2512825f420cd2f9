"""Reading YAML: values, lines and what is refused."""

# ruff: noqa: E501 - tables of texts and the errors about them

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.config.messages import ConfigError
from trainmaster.config.source import MAX_DEPTH, plain, read, write


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, "f.yaml")
    assert all(complaint.line for complaint in caught.value.complaints)
    return [str(complaint) for complaint in caught.value.complaints]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001), ("1E3", 1000.0), (".5", 0.5), ("-1.", -1.0), ("010", 10), ("0x10", 16), ("0o17", 15),
        ("+3", 3), ("yes", "yes"), ("on", "on"), ("12:30", "12:30"), ("2024-01-01", "2024-01-01"), ("1_000", "1_000"),
        ("~", None), ("", None), ("Null", None), ("TRUE", True), ("False", False), ("tRue", "tRue"), (".", "."),
        ("'5'", "5"), ("!!str 5", "5"), ("!!float 5", 5.0), ("!!int '5'", 5), ("-", [None]),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    found = read(f"k: {text}" if text != "-" else "k:\n-", "f.yaml").data["k"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "null", "{}"])
def test_nothing_is_an_empty_mapping(text: str) -> None:
    assert read(text, "f.yaml").data == {}


def test_every_key_and_item_has_its_place() -> None:
    marks = read("a: 1\nb:\n  - x\n  - {c: 2, d: 3}\n", "f.yaml").marks
    assert marks[("a",)] == (1, 1)
    assert marks[("b", 0)] == (3, 5)
    assert marks[("b", 1, "d")] == (4, 12)


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("a: 1\nb: 2\na: 3\nc: {x: 1, x: 2}\n",
         ["f.yaml:3: a: written twice, first in line 1; keep one", "f.yaml:4: c.x: written twice, first in line 4; keep one"]),
        ("- a\n", ["f.yaml:1: the file must be a mapping (key: value)"]),
        ("a: .inf\nb: .nan\nc: 1e999\n",
         ["f.yaml:1: a: .inf is not a number that can be used here", "f.yaml:2: b: .nan is not a number that can be used here",
          "f.yaml:3: c: 1e999 is too large for a number"]),
        ("a: !!python/object:os.system x\n",
         ["f.yaml:1: a: the YAML tag tag:yaml.org,2002:python/object:os.system is not understood; remove it"]),
        ("a: !x {b: 1}\n", ["f.yaml:1: a: the YAML tag !x is not understood; remove it"]),
        ("a: !!int x\n", ["f.yaml:1: a: 'x' is not a YAML int"]),
        ("a: 1\nb: x\x07y\n\x1b: 1", ["f.yaml:2: control character U+0007: remove it", "f.yaml:3: control character U+001B: remove it"]),
        ('a: 1\nb: "x\\x07"\n"\\e": 1', ["f.yaml:2: b: control character U+0007: remove it", "f.yaml:3: control character U+001B: remove it"]),
        ('a: "x\\r\\nb"', ["f.yaml:1: a: control character U+000D: remove it"]),
        ("? [a, b]\n: 1\n", ["f.yaml:1: a key must be a text, not a list or a mapping"]),
        ("a: &x\n  b: *x\n", ["f.yaml:1: a.b: an anchor contains itself"]),
        ("a: &x\n  <<: *x\n", ["f.yaml:2: a.<<: an anchor contains itself"]),
        ("a: {<<: 3}\n", ["f.yaml:1: a.<<: a merge key takes a mapping or a list of mappings"]),
        ("a:\n  b: [1,\nc: 2\n",
         ["f.yaml:4: not valid YAML: while parsing a flow sequence (line 2), expected ',' or ']', but got '<stream end>'"]),
        ("a: *nowhere\n", ["f.yaml:1: not valid YAML: found undefined alias 'nowhere'"]),
        ("a: 1\n---\nb: 1\n", ["f.yaml:2: not valid YAML: expected a single document in the stream (line 1), but found another document"]),
        ("a: " + "[" * 5000, [f"f.yaml:1: not valid YAML: nested more than {MAX_DEPTH} deep"]),
        ("a: " + "9" * 5000, ["f.yaml:1: a: the number is too long"]),
    ],
)  # fmt: skip
def test_refused_yaml_is_reported_with_its_line(text: str, complaints: list[str]) -> None:
    assert refused(text) == complaints


def test_an_alias_bomb_is_defused() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    text += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12))
    (complaint,) = refused(text)
    assert "anchors and merge keys expand to more than 50000 values" in complaint


def test_anchors_and_merge_keys_work() -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 5, z: 6}\na: {<<: *b, y: 3}\nb: {<<: [*b, *o]}\nc: *b\n"
    data = read(text, "f.yaml").data
    assert data["a"] == {"x": 1, "y": 3}
    assert data["b"] == {"x": 1, "y": 2, "z": 6}
    assert data["c"] == {"x": 1, "y": 2}


texts = st.text(
    st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff\u2028\u2029\ufeff")
) | st.sampled_from(["1e3", "yes", "012", "<<", "null", "-", "0x1f", "1:2", "a\nb\n", "# x", "a: b", ".nan", "", " x "])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(texts, json_values, max_size=4))
def test_written_yaml_reads_back_the_same(data: dict[str, Any]) -> None:
    assert read(write(data), "f.yaml").data == data


@given(st.text())
def test_any_text_is_data_or_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(read(text, "f.yaml").data, dict)


@given(st.text(alphabet="0123456789+-.eExo_abcdef", max_size=8))
def test_a_plain_scalar_never_surprises(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(plain(text), int | float | str | None)
