"""The rung race, on searches that were really decided: what it shows of a moment is what the search knew then."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import text

from tests.support.master import MasterProcess
from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.searches import Searches
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

pytestmark = pytest.mark.browser

WHY = re.compile(r"rung (\d+) \((\d+) epochs\): rank (\d+) of (\d+) on val_loss, the best (\d+) go on$")


@pytest.fixture
def visitor(searcher: Visit) -> Visit:
    return searcher


def ask(visitor: Visit, path: str) -> Any:
    answer = visitor.context.request.get(f"{visitor.url}/api/x1/{path}")
    assert answer.ok, answer.text()
    return answer.json()


def events_of(visitor: Visit, experiment: int) -> list[dict[str, Any]]:
    race = ask(visitor, f"experiments/{experiment}/rungs")
    assert race["total"] == len(race["rows"])
    return [
        {"number": number, **dict(zip(race["columns"], row, strict=True))} for number, row in enumerate(race["rows"], 1)
    ]


def test_each_decision_is_the_one_that_the_story_tells(visitor: Visit, searches: Searches) -> None:
    events = events_of(visitor, searches.large)
    assert [one["at"] for one in events] == sorted(one["at"] for one in events)
    stopped = {one["story"]: one for one in events if one["decision"] == "stopped"}
    story = ask(visitor, f"experiments/{searches.large}/story?limit=10000")["events"]
    stops = [one for one in story if (one["subject"], one["event"]) == ("search", "Stop")]
    told = [(one, found) for one in stops if (found := WHY.search(one["why"]))]
    assert len(told) == len(stopped) > 50
    for one, found in told:
        event = stopped[one["id"]]
        rung, _, rank, of, keep = map(int, found.groups())
        assert (event["rung"] + 1, event["rank"], event["of"], event["keep"]) == (rung, rank, of, keep)
        assert event["trial"] == one["trial"]
        assert event["at"] == pytest.approx(one["at"], abs=0.01)
        assert event["value"] > event["cut"]
    board = ask(visitor, f"experiments/{searches.large}/board")
    for number, bracket in enumerate(board["brackets"]):
        for at, rung in enumerate(bracket["rungs"]):
            here = [one for one in events if (one["bracket"], one["rung"]) == (number, at)]
            assert {one["trial"] for one in here} == set(rung["trials"])
            if here:
                assert here[-1]["cut"] == rung["cut"]


def test_search_of_earlier_release_is_ordered_by_its_times(
    visitor: Visit, searches: Searches, site: tuple[MasterProcess, Searches]
) -> None:
    """Its snapshot has no order of arrivals."""
    before = events_of(visitor, searches.small)
    engine = make_engine(EmbeddedServer(site[0].data).url, pool_size=1)
    with engine.begin() as connection:
        search = connection.scalar(text("SELECT search FROM experiments WHERE id = :id"), {"id": searches.small})
        for bracket in search["method"]["brackets"]:
            assert bracket.pop("arrived")
        without = text("UPDATE experiments SET search = CAST(:search AS jsonb) WHERE id = :id")
        connection.execute(without, {"search": json.dumps(search), "id": searches.small})
    engine.dispose()
    assert events_of(visitor, searches.small) == before


def told(page: Page) -> str:
    return page.locator(".event-text").inner_text()


def test_stop_shows_rank_and_cutoff_of_its_moment(visitor: Visit, searches: Searches, pictures: Path, axe: str) -> None:
    events = events_of(visitor, searches.large)
    stops = [one for one in events if one["decision"] == "stopped" and one["rung"] == 1]
    stop = stops[len(stops) // 2]
    page = visitor.open(f"experiments/{searches.large}/rungs?trial={stop['trial']}")
    expect(page.locator(".rung-race canvas")).to_be_visible()
    words = told(page)
    assert f"trial {stop['trial']} was stopped at rung 2" in words
    assert f"rank {stop['rank']} of {stop['of']}, value {stop['value']:#.4g}, cutoff {stop['cut']:#.4g}" in words
    row = page.locator(".rung-table tbody tr").nth(1).locator("td")
    here = [
        one
        for one in events
        if one["number"] <= stop["number"] and (one["bracket"], one["rung"]) == (stop["bracket"], 1)
    ]
    assert row.nth(1).inner_text() == str(len(here)) == str(stop["of"])
    assert row.nth(3).inner_text() == str(sum(one["decision"] == "stopped" for one in here))
    assert row.nth(5).inner_text() == f"{stop['cut']:#.4g}"
    picture(page, pictures, "rungs-stop")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert violations(page, axe) == []
    page.emulate_media(color_scheme="light")
    page.reload()
    expect(page.locator(".event-text")).to_have_text(words)


def test_arrows_step_and_shift_goes_from_stop_to_stop(visitor: Visit, searches: Searches, pictures: Path) -> None:
    mine = [one for one in events_of(visitor, searches.large) if one["bracket"] == 0]
    page = visitor.open(f"experiments/{searches.large}/rungs?bracket=1&at={mine[20]['number']}")
    expect(page.locator(".rung-race canvas")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(re.compile(f"at={mine[21]['number']}$"))
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(f"at={mine[20]['number']}$"))
    following = next(one for one in mine[21:] if one["decision"] == "stopped")
    page.keyboard.press("Shift+ArrowRight")
    expect(page).to_have_url(re.compile(f"at={following['number']}$"))
    assert f"trial {following['trial']} was stopped" in told(page)
    page.keyboard.press(" ")  # nothing may move here: it goes to the next stop
    after = next(one for one in mine if one["number"] > following["number"] and one["decision"] == "stopped")
    expect(page).to_have_url(re.compile(f"at={after['number']}$"))


def test_it_plays_to_the_end(visitor: Visit, searches: Searches) -> None:
    mine = [one for one in events_of(visitor, searches.small) if one["bracket"] == 0]
    visitor.page.emulate_media(reduced_motion="no-preference")
    page = visitor.open(f"experiments/{searches.small}/rungs?bracket=1&at={mine[0]['number']}&speed=100")
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page).to_have_url(re.compile(f"at={mine[-1]['number']}(&|$)"))
    assert f"trial {mine[-1]['trial']}" in told(page)
    page.keyboard.press("Tab")
    page.locator("h2").first.click()
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile(f"at={mine[-2]['number']}(&|$)"))


def test_it_is_saved_as_pictures_and_tables(visitor: Visit, searches: Searches, pictures: Path) -> None:
    events = events_of(visitor, searches.large)
    mine = [one for one in events if one["bracket"] == 0]
    page = visitor.open(f"experiments/{searches.large}/rungs")
    expect(page.locator(".rung-race canvas")).to_be_visible()
    picture(page, pictures, "rungs-end")
    found = {}
    for name in ("CSV", "JSON", "SVG, one column", "PNG"):
        page.get_by_role("button", name="Save the rung race").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=re.compile(f"^{name}")).click()
        found[name] = download.value.path().read_bytes()
    lines = found["CSV"].decode().splitlines()
    assert lines[0].startswith("number,at,bracket,rung,trial,value,decision")
    assert len(lines) == len(mine) + 1
    assert found["JSON"].decode().count('"number"') == len(mine)
    assert found["SVG, one column"].count(b"&quot;number&quot;") == len(mine)
    failed = sum(one["decision"] == "failed" for one in mine)
    circles = re.findall(rb"a(?:2\.5|3|6) \S+ 0 1 0 -", found["SVG, one column"])
    assert len(circles) == len(mine) - failed
    assert found["PNG"].startswith(b"\x89PNG")


def test_the_way_there_from_the_story_and_the_trial(visitor: Visit, searches: Searches) -> None:
    stop = next(one for one in events_of(visitor, searches.small) if one["decision"] == "stopped")
    for path in (f"experiments/{searches.small}/story?trial={stop['trial']}", f"trials/{stop['trial']}"):
        page = visitor.open(path)
        page.get_by_role("link", name="See this decision in the rung race").first.click()
        expect(page.locator(".event-text")).to_contain_text(f"trial {stop['trial']} was stopped")


def test_page_says_when_search_has_no_rungs(visitor: Visit, searches: Searches) -> None:
    page = visitor.open(f"experiments/{searches.single}/rungs")
    expect(page.get_by_text("does not compare trials at rungs")).to_be_visible()
