"""Trials and experiments side by side: the ways there, what is shown, and that the address holds all of it."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.master import MasterProcess, files
from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.filled_search import config
from tests.support.webui.searches import Searches

pytestmark = pytest.mark.browser


@pytest.fixture
def visitor(searcher: Visit) -> Visit:
    return searcher


def best_of(visitor: Visit, experiment: int, how_many: int) -> list[int]:
    """The trials with the best values, the best one first."""
    answer = visitor.context.request.get(f"{visitor.url}/api/x1/experiments/{experiment}/board")
    board: dict[str, Any] = answer.json()
    rows = [dict(zip(board["columns"], row, strict=True)) for row in board["rows"]]
    ranked = sorted((row for row in rows if row["best"] is not None), key=lambda row: float(row["best"]))
    return [int(row["id"]) for row in ranked[:how_many]]


def heads(page: Page) -> list[str]:
    return page.locator(".compare-column .compare-title a").all_inner_texts()


def row(page: Page, name: str) -> list[str]:
    return page.get_by_role("row", name=re.compile(f"^{re.escape(name)}")).get_by_role("cell").all_inner_texts()


def test_comparison_shows_what_differs_between_trials(
    visitor: Visit, searches: Searches, pictures: Path, axe: str
) -> None:
    ids = best_of(visitor, searches.large, 3)
    page = visitor.open(f"compare?trials={','.join(map(str, ids))}")
    expect(page.get_by_role("heading", level=1)).to_have_text("3 trials compared")
    expect(page.locator(".compare-column")).to_have_count(3)
    assert heads(page) == [f"trial {one}" for one in ids]
    expect(page.get_by_role("row", name=re.compile("^lr"))).to_be_visible()
    assert page.get_by_role("row", name=re.compile("^image_size")).count() == 0
    best = [float(one) for one in row(page, "best val_loss")]
    assert best == sorted(best)
    expect(page.locator(".compare-scroll .best").first).to_be_visible()
    expect(page.get_by_text(f"All ran the code of experiment {searches.large}.")).to_be_visible()
    picture(page, pictures, "compare-trials")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert violations(page, axe) == []
    page.emulate_media(color_scheme="light")
    page.get_by_role("button", name="show identical rows").click()
    expect(page.get_by_role("row", name=re.compile("^image_size"))).to_be_visible()
    page.reload()
    expect(page.get_by_role("row", name=re.compile("^image_size"))).to_be_visible()


def test_keyboard_alone_orders_columns_and_sets_baseline(visitor: Visit, searches: Searches) -> None:
    ids = best_of(visitor, searches.large, 3)
    page = visitor.open(f"compare?trials={','.join(map(str, ids))}")
    expect(page.locator(".compare-column")).to_have_count(3)
    page.get_by_role("link", name=f"trial {ids[2]}").focus()
    page.keyboard.press("Alt+ArrowLeft")
    expect(page).to_have_url(re.compile(f"trials={ids[0]}%2C{ids[2]}%2C{ids[1]}$"))
    expect(page.locator(".compare-column .compare-title a").nth(1)).to_have_text(f"trial {ids[2]}")
    expect(page.get_by_role("link", name=f"trial {ids[2]}")).to_be_focused()
    page.get_by_role("button", name=f"Move trial {ids[1]} to the left").press("Enter")
    expect(page.locator(".compare-column .compare-title a").nth(1)).to_have_text(f"trial {ids[1]}")
    page.get_by_role("button", name=f"Baseline: trial {ids[0]}").press("Enter")
    expect(page).to_have_url(re.compile(f"baseline={ids[0]}"))
    cells = row(page, "best val_loss")
    assert "+" not in cells[0]
    assert re.search(r"\+\d\.\d+(e−\d+)? \(\+\d", cells[1])
    page.get_by_role("button", name=f"Remove trial {ids[2]}").press("Enter")
    expect(page.locator(".compare-column")).to_have_count(2)
    page.get_by_label("Number of another trial").fill(str(ids[2]))
    page.keyboard.press("Enter")
    expect(page.locator(".compare-column")).to_have_count(3)
    page.go_back()
    expect(page.locator(".compare-column")).to_have_count(2)


def test_a_column_is_dragged(visitor: Visit, searches: Searches) -> None:
    ids = best_of(visitor, searches.large, 3)
    page = visitor.open(f"compare?trials={','.join(map(str, ids))}")
    expect(page.locator(".compare-column")).to_have_count(3)
    page.locator(".compare-column .compare-subtitle").nth(0).drag_to(
        page.locator(".compare-column .compare-subtitle").nth(2)
    )
    expect(page).to_have_url(re.compile(f"trials={ids[1]}%2C{ids[2]}%2C{ids[0]}$"))


def test_experiments_with_their_code(
    visitor: Visit, searches: Searches, site: tuple[MasterProcess, Searches], pictures: Path, axe: str
) -> None:
    client = site[0].client()
    other = client.create_experiment(
        config(name="changed"), files(train__py="print('more')\n", data__py="x = 1\n"), activate=False
    ).id
    page = visitor.open(f"compare?experiments={searches.small},{other},{searches.single}")
    expect(page.locator(".compare-column")).to_have_count(3)
    expect(page.get_by_role("row", name=re.compile("^searcher.name"))).to_be_visible()
    page.get_by_role("button", name=f"Differences between experiments {searches.small} and {other}").click()
    expect(page.get_by_text("2 files differ")).to_be_visible()
    page.get_by_role("button", name="train.py").click()
    expect(page.locator(".source.diff")).to_contain_text("print('more')")
    picture(page, pictures, "compare-code")
    assert violations(page, axe) == []
    shown = page.url
    page.reload()
    expect(page.locator(".source.diff")).to_contain_text("print('more')")
    assert page.url == shown


def test_three_clicks_from_home(visitor: Visit) -> None:
    page = visitor.open("")
    page.get_by_role("link", name="Experiments").first.click()
    grid = page.get_by_role("grid")
    grid.get_by_role("checkbox").nth(1).click()
    grid.get_by_role("checkbox").nth(2).click()
    expect(page.get_by_role("link", name="Compare")).to_be_visible()
    page.keyboard.press("c")
    expect(page.get_by_role("heading", level=1)).to_have_text("2 experiments compared")


def test_marked_trials_lead_there(visitor: Visit, searches: Searches) -> None:
    ids = best_of(visitor, searches.large, 2)
    for tab in ("trials", "curves"):
        page = visitor.open(f"experiments/{searches.large}/{tab}?marks={ids[0]},{ids[1]}")
        page.get_by_role("link", name="Compare", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("2 trials compared")


def test_it_is_exported(visitor: Visit, searches: Searches) -> None:
    ids = best_of(visitor, searches.large, 2)
    page = visitor.open(f"compare?trials={ids[0]},{ids[1]}&show=all")
    page.get_by_role("button", name="Export the comparison").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=re.compile("^CSV")).click()
    head, *rows = csv.reader(io.StringIO(download.value.path().read_text()))
    assert head == ["part", "name", f"trial {ids[0]}", f"trial {ids[1]}"]
    assert ["hyperparameters", "image_size", "224", "224"] in rows
    page.get_by_role("button", name=re.compile("^Save val_loss")).click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=re.compile("^CSV")).click()
    assert download.value.path().read_text().startswith(f"batches,trial {ids[0]},trial {ids[1]}")


def test_missing_trial_is_named_and_second_is_asked_for(visitor: Visit, searches: Searches) -> None:
    (one,) = best_of(visitor, searches.large, 1)
    page = visitor.open(f"compare?trials={one},999999")
    expect(page.get_by_text("There is no trial 999999")).to_be_visible()
    expect(page.locator(".compare-column")).to_have_count(1)
    page = visitor.open("compare")
    expect(page.get_by_text("Mark 2 to 20 experiments")).to_be_visible()
    page = visitor.open(f"compare?trials={one}")
    expect(page.get_by_text("Add a second trial to compare.")).to_be_visible()
