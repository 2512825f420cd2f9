"""Tables of learning curves: what CSV and NPZ files are read as, and what is said of those that cannot be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainmaster.cli.curve_tables import CurveColumns, read_table
from trainmaster.client.errors import ClientError
from trainmaster.client.views import CurveTable

TIMED = CurveColumns("loss", "epochs")


def read(path: Path, text: str, columns: CurveColumns = TIMED) -> tuple[CurveTable, list[str]]:
    path.write_text(text)
    said: list[str] = []
    return read_table(path, columns, said.append), said


def archive(path: Path, **arrays: Any) -> tuple[CurveTable, list[str]]:
    whole: dict[str, Any] = {
        "names": ["rate", "optimizer"], "points": np.array([["0.1", "sgd"], ["1e-2", "adam"]]),
        "values": np.array([[3.0, 2.0, 1.0], [4.0, np.nan, np.nan]]), "seconds": np.array([2.0, 3.5]), **arrays,
    }  # fmt: skip
    np.savez(path, **{name: value for name, value in whole.items() if value is not None})
    said: list[str] = []
    return read_table(path, TIMED, said.append), said


def test_rows_of_equal_hyperparameters_are_a_trial(tmp_path: Path) -> None:
    table, said = read(
        tmp_path / "t.csv",
        "optimizer.rate,width,kind,epochs,loss,seconds\n"
        "0.1,64,a,1,0.5,10\n"
        "0.2,64,true,2,0.9,4\n"
        "0.1,64,a,3,0.25,20\n"
        "\n"
        "0.2,64,true,1,,6\n",
    )
    assert said == []
    assert table.points == [
        {"optimizer.rate": 0.1, "width": 64, "kind": "a"},
        {"optimizer.rate": 0.2, "width": 64, "kind": True},
    ]
    assert table.values == [[0.5, 0.5, 0.25], [None, 0.9]]
    assert table.seconds == [15.0, 5.0]


def test_trials_may_be_named_and_units_counted(tmp_path: Path) -> None:
    """Two trials of the same point, the second without one of its hyperparameters in the space."""
    table, said = read(tmp_path / "t.csv", "trial,x,loss\na,1,3\nb,1,4\na,1,2\nc,,5\n", CurveColumns("loss"))
    assert table.points == [{"x": 1}, {"x": 1}, {}]
    assert table.values == [[3.0, 2.0], [4.0], [5.0]]
    assert table.seconds == [1.0] * 3
    assert said == [f"{tmp_path / 't.csv'} does not say how long a unit takes (seconds): one second is assumed"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x,epochs\n1,1\n", "has no column 'loss', the searcher's metric; it has x, epochs"),
        ("x,loss\n1,1\n", "has no column 'epochs', the searcher's time metric"),
        ("", "has no column 'loss', the searcher's metric; it has none"),
        ("x,epochs,loss\n", "has no rows"),
        ("x,x,epochs,loss\n1,1,1,1\n", "has two columns 'x'"),
        ("x,epochs,loss\n1,1\n", "line 2: 2 cells, but the header has 3"),
        ("x,epochs,loss\n1,1,low\n", "line 2: loss is 'low'; a number is wanted"),
        ("x,epochs,loss\n1,0,1\n", "line 2: epochs is '0'; it must be above 0"),
        ("x,epochs,loss\n1,nan,1\n", "line 2: epochs is 'nan'; it must be above 0"),
        ("x,epochs,loss\n1,0.5,1\n", "line 2: the trial ends before its first whole unit of epochs"),
        ("x,epochs,loss\n1,90000000,1\n", "90000000 units of epochs, more than the 1000000"),
        ("trial,x,epochs,loss\n7,1,1,1\n7,2,2,1\n", "line 3: trial 7 has another x than in line 2"),
        ('x,epochs,loss\n"1,1,1\n', "is not CSV"),
    ],
)
def test_tables_that_cannot_be_read_say_where(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ClientError, match=r"t\.csv") as refused:
        read(tmp_path / "t.csv", text)
    assert words in str(refused.value)


def test_files_that_are_none_say_so(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="cannot be read: No such file"):
        read_table(tmp_path / "t.csv", TIMED, print)
    (tmp_path / "t.csv").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ClientError, match="is not UTF-8 text"):
        read_table(tmp_path / "t.csv", TIMED, print)
    (tmp_path / "t.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ClientError, match="is no archive of plain NumPy arrays"):
        read_table(tmp_path / "t.npz", TIMED, print)


def test_an_archive_ends_a_trial_where_its_values_end(tmp_path: Path) -> None:
    table, said = archive(tmp_path / "t.npz")
    assert said == []
    assert table.points == [{"rate": 0.1, "optimizer": "sgd"}, {"rate": 0.01, "optimizer": "adam"}]
    assert table.values == [[3.0, 2.0, 1.0], [4.0]]
    assert table.seconds == [2.0, 3.5]
    numbers, said = archive(tmp_path / "n.npz", points=np.array([[0.5, np.nan], [1.0, 2.0]]), seconds=None)
    assert numbers.points == [{"rate": 0.5}, {"rate": 1.0, "optimizer": 2.0}]
    assert numbers.seconds == [1.0, 1.0]
    assert len(said) == 1
    gap, _ = archive(tmp_path / "g.npz", values=np.array([[np.nan, 2.0], [np.nan, np.nan]]))
    assert (gap.values, len(gap.points)) == ([[None, 2.0]], 1)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"names": None}, "has no array 'names'"),
        ({"points": np.zeros((2, 3))}, "points has the shape 2 x 3; 2 x 2 is wanted"),
        ({"values": np.zeros(3)}, "values has the shape 3; 2 x units is wanted"),
        ({"seconds": np.zeros(3)}, "seconds has the shape 3; 2 is wanted"),
        ({"values": np.array([["a"], ["b"]])}, "values must be numbers"),
        ({"values": np.full((2, 2), np.nan)}, "has no trial with a value"),
        ({"points": np.array([[{}, {}]] * 2, dtype=object)}, "is no archive of plain NumPy arrays"),
        ({"values": np.zeros((2, 600_000), dtype=np.int8)}, "1200000 units"),
    ],
)
def test_archives_that_do_not_fit_say_what_is_wanted(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    with pytest.raises(ClientError) as refused:
        archive(tmp_path / "t.npz", **arrays)
    assert words in str(refused.value)


def test_numpy_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(ClientError, match=r"needs numpy, which is not installed: `pip install numpy`, or .* as CSV"):
        read_table(tmp_path / "t.npz", TIMED, print)
