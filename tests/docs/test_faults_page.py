"""The fault table names tests that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

NAMED = sorted(set(re.findall(r"`((?:[\w/]+)\.py)(?:::(\w+))?`", (ROOT / "docs" / "faults.md").read_text())))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_a_row_names_is_there(file: str, name: str) -> None:
    path = ROOT / file if file.startswith("trainmaster/") else ROOT / "tests" / file
    assert path.is_file()
    assert not name or f"def {name}(" in path.read_text()


def test_every_row_has_all_columns() -> None:
    rows = [line for line in (ROOT / "docs" / "faults.md").read_text().splitlines() if line.startswith("|")]
    assert {len(row.split("|")) for row in rows} == {8}
    assert len(rows) > 60
