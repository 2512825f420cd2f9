"""What the page shows of a search: pauses and resumes, copies, its plan, what another searcher would have found."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.support.webui.chromium import Visit, picture, violations
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


def test_copies_are_drawn_with_what_changed(visitor: Visit, searches: Searches, pictures: Path, axe: str) -> None:
    number = searches.breeding
    board, rows = board_of(visitor, number)
    copies = [row for row in rows if row["parent"]]
    assert copies
    page = visitor.open(f"experiments/{number}/lineage")
    words = f"{len(rows)} trials, {len(copies)} of them copies of others, over epochs."
    expect(page.get_by_role("img", name=re.compile(words))).to_be_visible()
    by_id = {row["id"]: row for row in rows}
    descent = [board["experiment"]["bestTrial"]]
    while (parent_id := by_id[descent[0]]["parent"]) is not None:
        descent.insert(0, parent_id)
    assert page.locator(".rung-table tbody th").all_inner_texts() == list(map(str, descent))
    page.get_by_role("button", name="Save the lineage").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=re.compile("^JSON")).click()
    drawn = {lane["trial"]: lane for lane in json.loads(download.value.path().read_bytes())}
    assert {key: lane["parent"] for key, lane in drawn.items()} == {row["id"]: row["parent"] for row in rows}
    for copy in copies:
        parent = by_id[copy["parent"]]
        changed = {name for name in board["hparams"] if copy[f"hp.{name}"] != parent[f"hp.{name}"]}
        assert all(f"{name} " in drawn[copy["id"]]["changes"] for name in changed)
        assert drawn[copy["id"]]["from"] == copy["unitsFrom"]
    picture(page, pictures, "lineage")
    assert violations(page, axe) == []
    page.get_by_role("combobox", name="over").select_option("hours")
    expect(page.get_by_role("img", name=re.compile("over hours since the first start"))).to_be_visible()
    page = visitor.open(f"trials/{copies[0]['id']}")
    page.get_by_role("link", name=f"trial {copies[0]['parent']}").first.click()
    expect(page.locator(".detail-reason", has_text="Copied by")).to_contain_text(f"trial {copies[0]['id']}")
    page = visitor.open(f"experiments/{searches.small}")
    expect(page.get_by_role("link", name="Rungs")).to_be_visible()
    expect(page.get_by_role("link", name="Lineage")).to_have_count(0)


def test_curves_are_replayed_through_another_searcher(
    visitor: Visit, searches: Searches, pictures: Path, axe: str
) -> None:
    page = visitor.open(f"experiments/{searches.small}/what-if")
    page.get_by_label("Searcher").fill("rondom")
    visitor.expected = ["422", "400"]
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("alert")).to_contain_text("there is no searcher 'rondom'")
    page.get_by_label("Searcher").fill("asha")
    page.get_by_label("Settings").fill("divisor")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Settings takes KEY=VALUE")
    page.get_by_label("Settings").fill("divisor=4")
    page.get_by_label("Simulations").fill("3")
    page.keyboard.press("Enter")
    expect(page.locator(".what-if-outcome")).to_contain_text("slot-hours instead of")
    assert "searcher=asha" in page.url
    rows = [row.split("\t") for row in page.locator(".rung-table tbody tr").all_inner_texts()]
    assert [row[0] for row in rows] == ["as recorded", "asha, median", *(f"simulation {at}" for at in (1, 2, 3))]
    board, _ = board_of(visitor, searches.small)
    assert rows[0][1] == f"{board['experiment']['best']:#.4g}"
    assert float(rows[0][3]) == pytest.approx(board["experiment"]["slotSeconds"] / 3600, rel=0.01)
    assert 0 < float(rows[1][3]) < float(rows[0][3])
    expect(page.locator(".legend")).to_contain_text(["asha, median"])
    picture(page, pictures, "what-if")
    assert violations(page, axe) == []


def test_front_of_two_metrics_lists_what_no_trial_beats(
    visitor: Visit, searches: Searches, pictures: Path, axe: str
) -> None:
    _, rows = board_of(visitor, searches.breeding)
    page = visitor.open(f"experiments/{searches.breeding}/space")
    part = page.get_by_role("region", name="Two metrics")
    lowest = min(rows, key=lambda row: row["last"])["id"]  # the accuracy of the tests' trainings follows from the loss
    shown = part.locator("tbody th")
    expect(shown).to_have_text([str(lowest)])
    part.get_by_role("combobox", name="y", exact=True).select_option("epochs")
    part.get_by_role("combobox", name="Which y is better").select_option("smaller")

    def beats(one: dict[str, Any], other: dict[str, Any]) -> bool:
        return one["last"] <= other["last"] and one["units"] <= other["units"] and one is not other

    front = sorted((row for row in rows if not any(beats(one, row) for one in rows)), key=lambda row: row["last"])
    expect(shown).to_have_text([str(row["id"]) for row in front])
    assert len(front) > 3
    part.scroll_into_view_if_needed()
    picture(page, pictures, "pareto")
    assert violations(page, axe) == []
    part.get_by_role("link", name=str(front[1]["id"]), exact=True).click()
    expect(page).to_have_url(re.compile(f"/ui/trials/{front[1]['id']}$"))


def test_plan_is_shown_against_budget_and_deadline(
    visitor: Visit, searches: Searches, pictures: Path, axe: str
) -> None:
    """The master's answers are scripted: which search has a plan, and what it says."""
    now = dt.datetime.now(dt.UTC)
    plan: dict[str, Any] = {
        "budget": {"maxTrials": 100, "slotHours": 40.0, "deadline": (now + dt.timedelta(hours=5.1)).isoformat()},
        "used": {"trials": 40, "slotHours": 16.9},
        "forecast": {"trials": 52, "slotHours": 31.5, "end": (now + dt.timedelta(hours=7.1)).isoformat()},
        "wait": {"median": 240.0, "jobs": 61},
        "unitSeconds": 41.0,
        "sentences": ["The deadline cannot be met: 38 trials could be trained by then, and 14 could not."],
    }

    board, _ = board_of(visitor, searches.pausing)
    board["experiment"]["planned"] = True
    page = visitor.page
    page.route(re.compile(r"/board\?"), lambda route: route.fulfill(json=board))
    page.route(re.compile("/search-plan$"), lambda route: route.fulfill(json=plan))
    visitor.open(f"experiments/{searches.pausing}")
    part = page.get_by_role("region", name="Plan")
    expect(part.get_by_text("16.90 of 40 slot-hours used, 31.50 expected in the end")).to_be_visible()
    expect(part.get_by_text("deadline in 5 h; end expected in 7 h, 2 h after the deadline")).to_be_visible()
    expect(part.get_by_text(plan["sentences"][0])).to_be_visible()
    expect(part.get_by_text("40 trials of at most 100, 52 expected in the end; 41 s a unit (epochs)")).to_be_visible()
    rows = part.locator(".plan-row")
    assert "over" in (rows.nth(1).get_attribute("class") or "").split()
    shares = [rows.nth(0).locator(f".plan-{name}").bounding_box() for name in ("done", "forecast")]
    whole = rows.nth(0).locator(".plan-bar").bounding_box()
    assert whole
    assert [box and box["width"] / whole["width"] for box in shares] == pytest.approx([16.9 / 40, 31.5 / 40], abs=0.01)
    picture(page, pictures, "plan")
    assert violations(page, axe) == []
    page.route(re.compile("/search-plan$"), lambda route: route.fulfill(status=404, json={"message": "not found"}))
    visitor.expected = ["404"]
    visitor.open(f"experiments/{searches.pausing}/trials")
    expect(page.locator(".plan .no-plan")).to_have_count(1)
    expect(page.locator(".plan")).to_be_hidden()


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
