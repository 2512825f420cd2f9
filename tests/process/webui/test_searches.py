"""What the page shows of a search: pauses and resumes, copies, its plan, what another searcher would have found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.webui.chromium import Visit, picture
from tests.support.webui.searches import Searches

pytestmark = pytest.mark.browser


@pytest.fixture
def visitor(searcher: Visit) -> Visit:
    return searcher


def board_of(visitor: Visit, experiment: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The board, and its trials."""
    answer = visitor.context.request.get(f"{visitor.url}/api/x1/experiments/{experiment}/board?curves=true")
    board = answer.json()
    return board, [dict(zip(board["columns"], row, strict=True)) for row in board["rows"]]


def test_pauses_of_the_search_are_told_apart(visitor: Visit, searches: Searches, pictures: Path) -> None:
    number = searches.pausing
    board, rows = board_of(visitor, number)
    paused = [row for row in rows if row["searchPause"] == "paused"]
    resumed = [row for row in rows if row["pauses"] and row not in paused]
    assert paused
    assert resumed
    page = visitor.open(f"experiments/{number}")
    expect(page.locator(".legend")).to_contain_text([f"{len(paused)} paused by the search (two bars at the end)"])
    again = sum(row["pauses"] > (row in paused) for row in rows if row["id"] in board["curves"]["trials"])
    expect(page.locator(".legend").last).to_contain_text(f"{again} paused by the search where the ring is, and resumed")
    picture(page, pictures, "pauses-curves")
    page = visitor.open(f"experiments/{number}/trials?trials=paused+by+the+search")
    expect(page.get_by_text(f"{len(paused)} of {len(rows)} trials")).to_be_visible()
    page = visitor.open(f"trials/{paused[0]['id']}")
    expect(page.locator(".detail-title .state")).to_have_text("paused by the search")
    expect(page.locator(".detail-reason").first).to_have_text(paused[0]["why"])
    page = visitor.open(f"experiments/{number}/story?trial={resumed[0]['id']}&of=search")
    page.locator("li", has_text="resumed by the search").get_by_role("link", name="See this decision").first.click()
    expect(page.locator(".event-text")).to_contain_text(f"trial {resumed[0]['id']} was resumed from rung")
    at = int(page.locator(".player-number").inner_text().split()[0])
    page.get_by_role("button", name="One event back").click()
    expect(page.locator(".player-number")).to_contain_text(f"{at - 1} of")
    heads = page.locator(".rung-table thead th").all_inner_texts()
    assert heads[4:6] == ["Paused", "Stopped"]
    picture(page, pictures, "pauses-rungs")
