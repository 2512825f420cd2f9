"""Formats of cells: readable for people, exact for programs."""

from __future__ import annotations

import pytest

from trainmaster.cli.render import Bytes, Moment, Percent, exact, hparams, readable, size, table


@pytest.mark.parametrize(
    ("cell", "in_words", "in_full"),
    [
        (None, "", ""),
        (True, "yes", "true"),
        (0.1234567891, "0.123457", "0.1234567891"),
        (float("nan"), "nan", "nan"),
        (Percent(1 / 3), "33.3 %", "0.3333333333333333"),
        (Bytes(1_234_567), "1.2 MB", "1234567"),
        (Moment(""), "", ""),
        (["b", "a"], "b, a", '["b", "a"]'),
        ({"lr": 0.1, "net": {"depth": 2, "act": "relu"}}, "lr=0.1 net.depth=2 net.act=relu",
         '{"lr": 0.1, "net": {"depth": 2, "act": "relu"}}'),
        ("text", "text", "text"),
    ],
)  # fmt: skip
def test_a_cell_in_words_and_in_full(cell: object, in_words: str, in_full: str) -> None:
    assert (readable(cell), exact(cell)) == (in_words, in_full)


def test_times_are_the_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert readable(Moment("2026-01-01T20:00:00.000Z")) == "2026-01-02 05:00:00"
        assert exact(Moment("2026-01-01T20:00:00.000Z")) == "2026-01-01T20:00:00.000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (2_500_000_000, "2.5 GB"), (10**15, "1000.0 TB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_numbers_stand_at_the_right_and_wide_letters_count_twice() -> None:
    assert table(["N", "Name"], [[1, "数字"], [22, "ab"]]).splitlines() == [
        "  N | Name",
        " ---+-----",
        "  1 | 数字",
        " 22 | ab",
    ]


def test_text_from_others_cannot_move_the_cursor() -> None:
    assert "\x1b" not in table(["Name"], [["\x1b[2Jgone\r\n"]])
    assert len(table(["Name"], [["a\nb"]]).splitlines()) == 3


def test_empty_tables_have_a_head() -> None:
    assert table(["ID", "Name"], []) == " ID | Name\n ---+-----"


def test_odd_hyperparameters() -> None:
    assert hparams({"a": None, "b": [1, 2], "c": {}, "d": True, "e": "x y"}) == "a=null b=[1, 2] c={} d=true e=x y"
