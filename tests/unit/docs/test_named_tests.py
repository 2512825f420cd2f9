"""The tables of faults and of defects name tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.support.pages import ROOT

PAGES = {"faults.md": (6, 60), "defects.md": (4, 25)}  # columns of their tables, and rows at least
TEXTS = {page: (ROOT / "docs" / page).read_text() for page in PAGES}
NAMED = sorted({name for text in TEXTS.values() for name in re.findall(r"`((?:[\w/]+)\.py)(?:::(\w+))?`", text)})


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_file_and_test_named_in_row_exist(file: str, name: str) -> None:
    path = ROOT / file if file.startswith("trainmaster/") else ROOT / "tests" / file
    assert path.is_file()
    assert not name or f"def {name}(" in path.read_text()


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_all_columns(page: str) -> None:
    columns, most = PAGES[page]
    rows = [line for line in TEXTS[page].splitlines() if line.startswith("|")]
    assert {len(row.split("|")) - 2 for row in rows} == {columns}
    assert len(rows) > most
