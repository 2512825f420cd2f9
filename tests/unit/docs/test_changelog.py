"""The changelog has the form of Keep a Changelog: known headings, one line for a change."""

from __future__ import annotations

import re

from tests.support.pages import ROOT
from trainmaster.version import VERSION

LINES = (ROOT / "CHANGELOG.md").read_text().splitlines()
HEADINGS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
RELEASE = re.compile(r"## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}")
LONGEST = 120  # characters


def test_sections_are_releases_with_dates() -> None:
    sections = [line for line in LINES if line.startswith("## ")]
    assert sections[0] == "## [Unreleased]"
    releases = [RELEASE.fullmatch(line) for line in sections[1:]]
    assert None not in releases
    assert releases[0] is not None
    assert releases[0][1] == VERSION


def test_headings_are_those_of_keep_a_changelog() -> None:
    headings = [line.removeprefix("### ") for line in LINES if line.startswith("### ")]
    assert set(headings) <= set(HEADINGS)


def test_a_change_is_a_line() -> None:
    listed = LINES[LINES.index("## [Unreleased]") :]
    text = [line for line in listed if line and not line.startswith("#")]
    assert [line for line in text if not line.startswith("- ") or len(line) > LONGEST] == []
