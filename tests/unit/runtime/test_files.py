"""Small files that are written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster.runtime.files import create_file, replace_file


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(str(path), "old")
    replace_file(str(path), "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert create_file(str(path), "first")
    assert not create_file(str(path), "second")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [replace_file, create_file])
def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path: Path, write: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        write(str(tmp_path / "state"), "\ud800")
    assert list(tmp_path.iterdir()) == []
