"""The list of experiments on a filled database: the address is its state, the keyboard does everything."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.master import MasterProcess, wait_for
from tests.support.webui.chromium import Visit, picture
from tests.support.webui.filled import HOSTILE, SIZE

pytestmark = pytest.mark.browser


@pytest.fixture
def listed(visitor: Visit, full: MasterProcess) -> Page:
    page = visitor.open("experiments")
    expect(page.get_by_text(re.compile("\\d\u2009\\d{3} experiments"))).to_be_visible()
    return page


def ids(page: Page) -> list[int]:
    """Of the rows that are drawn."""
    return [int(text) for text in page.locator("tbody tr .id").all_inner_texts()]


def test_ten_thousand_are_a_page_of_few_elements_that_scrolls(listed: Page, pictures: Path) -> None:
    assert listed.evaluate("document.querySelectorAll('*').length") < 3000
    assert ids(listed)[0] == SIZE
    picture(listed, pictures, "experiments")
    listed.locator(".table").evaluate("element => element.scrollTo(0, 5000 * 28)")
    expect(listed.locator(".id", has_text=str(SIZE - 5000)).first).to_be_visible()
    assert listed.evaluate("document.querySelectorAll('*').length") < 3000
    # Reload leads to the same rows.
    wait_for(lambda: listed.evaluate("history.state && history.state.scroll > 0"), "the place to be remembered")
    listed.reload()
    expect(listed.locator(".id", has_text=str(SIZE - 5000)).first).to_be_visible()


def test_hostile_names_show_hidden_characters_as_text(listed: Page) -> None:
    listed.locator(".table").evaluate("element => element.scrollTo(0, 8 * 28)")
    shown = " ".join(listed.locator("tbody tr").all_inner_texts())
    assert HOSTILE[0] in shown
    assert "invoice‹202E›gpj.exe" in shown
    assert "zero‹200B›width and ‹0007› bell" in shown
    assert "🧪" in shown
    assert listed.locator("main img").count() == 0


def test_filter_is_kept_in_address_however_it_is_set(visitor: Visit, listed: Page, pictures: Path) -> None:
    visitor.expected.append("status of 400")  # of the line that cannot be read
    field = listed.get_by_role("searchbox", name="Filter experiments")
    listed.keyboard.press("/")
    expect(field).to_be_focused()
    listed.keyboard.type("label:paper val_loss<0.5")
    listed.keyboard.press("Enter")
    listed.wait_for_url(re.compile(r"filter=label%3Apaper\+val_loss%3C0\.5"))
    expect(listed.get_by_role("button", name="Remove label:paper")).to_be_visible()
    listed.get_by_role("button", name=re.compile("^failed")).click()
    listed.wait_for_url(re.compile("state%3Aerror"))
    expect(listed.locator("tbody .state").first).to_have_text("failed")
    picture(listed, pictures, "experiments-filtered")
    tree = listed.get_by_role("main").aria_snapshot()
    listed.reload()
    expect(listed.locator("tbody .state").first).to_have_text("failed")
    assert _without_ages(listed.get_by_role("main").aria_snapshot()) == _without_ages(tree)
    listed.go_back()
    expect(field).to_have_value("label:paper val_loss<0.5")
    listed.get_by_role("button", name="Remove label:paper").click()
    expect(field).to_have_value("val_loss<0.5")
    field.fill('"open')
    expect(listed.get_by_role("alert")).to_have_text("filter: a quotation mark is not closed.")
    field.fill("no such experiment anywhere")
    expect(listed.get_by_text("No experiment matches this filter.")).to_be_visible()
    listed.get_by_role("button", name="Clear filter").click()
    expect(listed.locator("tbody .id").first).to_be_visible()


def _without_ages(tree: str) -> str:
    return re.sub(r"\d+ (s|min|h) ago", "ago", tree)


def test_a_head_sorts_and_shift_sorts_by_several(listed: Page) -> None:
    listed.get_by_role("button", name="Trials").click()
    listed.wait_for_url(re.compile("sort=-trials"))
    expect(listed.get_by_role("columnheader", name="Trials")).to_have_attribute("aria-sort", "descending")
    listed.get_by_role("button", name="Best").click(modifiers=["Shift"])
    listed.wait_for_url(re.compile("sort=-trials%2Cbest"))
    rows = listed.locator("tbody tr:not(.spacer)")
    expect(rows.first.locator("td").nth(4)).to_have_text("300")
    listed.get_by_role("button", name="Started").click()
    expect(listed.locator("tbody .id").first).to_have_text(str(SIZE))


def test_the_keyboard_moves_marks_and_opens(listed: Page, pictures: Path) -> None:
    for key in ("j", "x", "j", "j", "x"):
        listed.keyboard.press(key)
    expect(listed.get_by_text("2 marked")).to_be_visible()
    expect(listed.locator("tr[aria-selected=true] .id")).to_have_text([str(SIZE), str(SIZE - 2)])
    # Marks survive scrolling.
    listed.get_by_role("grid").focus()
    listed.keyboard.press("End")
    expect(listed.locator("tbody .id").last).to_have_text("1")
    listed.keyboard.press("Home")
    expect(listed.locator("tr[aria-selected=true]")).to_have_count(2)
    picture(listed, pictures, "experiments-marked")
    listed.keyboard.press("Enter")
    listed.wait_for_url(re.compile(f"experiments/{SIZE}$"))
    listed.go_back()
    listed.keyboard.press("g")
    listed.keyboard.press("h")
    expect(listed.get_by_role("heading", name="Home")).to_be_visible()


def test_action_says_first_what_it_will_skip(listed: Page, pictures: Path) -> None:
    field = listed.get_by_role("searchbox")
    field.fill("id>9900 state:completed,paused archived:any")
    field.press("Enter")
    # Until then the rows of the line before are there, all ten thousand of them.
    expect(listed.get_by_text(re.compile(r"^\d\d experiments$"))).to_be_visible()
    listed.get_by_role("button", name="Mark all").click()
    listed.get_by_role("button", name="Actions for marked experiments").click()
    picture(listed, pictures, "experiments-actions")
    listed.get_by_role("menuitem", name="Archive …", exact=True).click()
    dialog = listed.get_by_role("dialog")
    expect(dialog.get_by_text("are not yours")).to_be_visible()
    picture(listed, pictures, "experiments-preview")
    dialog.get_by_role("button", name=re.compile("^Archive")).click()
    expect(listed.get_by_text(re.compile("Archive: done for"))).to_be_visible()
    expect(dialog).to_have_count(0)


def test_all_rows_are_saved_and_the_command_is_copied(
    visitor: Visit, listed: Page, full: MasterProcess, tmp_path: Path
) -> None:
    visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for kind in ("CSV", "JSON"):
        listed.get_by_role("button", name="Export").click()
        with listed.expect_download() as download:
            listed.get_by_role("menuitem", name=kind).click()
        download.value.save_as(tmp_path / kind)
    with (tmp_path / "CSV").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == SIZE - archived(listed)
    assert rows[0]["id"] == str(SIZE)
    assert "'" + HOSTILE[4] in [row["name"] for row in rows]
    assert len(json.loads((tmp_path / "JSON").read_text())) == len(rows)
    field = listed.get_by_role("searchbox")
    field.fill("label:paper user:me")
    field.press("Enter")
    listed.wait_for_url(re.compile("paper"))
    listed.get_by_role("button", name="Export").click()
    listed.get_by_role("menuitem", name="Copy as det").click()
    expect(listed.get_by_text("Copied: det experiment find 'label:paper user:me'")).to_be_visible()
    assert listed.evaluate("navigator.clipboard.readText()") == "det experiment find 'label:paper user:me'"
    told = full.det("experiment", "find", "--csv", "label:paper user:me").stdout
    assert len(told.splitlines()) - 1 == int(re.sub(r"\D", "", listed.locator(".list-foot > span").first.inner_text()))


def archived(page: Page) -> int:
    total = page.locator(".list-foot > span").first.inner_text()
    return SIZE - int(re.sub(r"\D", "", total))


def test_columns_and_views_are_kept(listed: Page, pictures: Path) -> None:
    listed.get_by_role("button", name="Columns").click()
    dialog = listed.get_by_role("dialog")
    for name in ("hp.lr", "f1"):
        field = dialog.get_by_label("Add a column")
        field.fill(name)
        field.press("Enter")
    dialog.get_by_role("button", name="Labels: remove").click()
    picture(listed, pictures, "experiments-columns")
    dialog.get_by_role("button", name="Apply").click()
    expect(listed.get_by_role("columnheader", name="lr")).to_be_visible()
    expect(listed.get_by_role("columnheader", name="f1")).to_be_visible()
    listed.get_by_role("button", name="Views").click()
    dialog.get_by_label("Save the current view as").fill("with rates")
    dialog.get_by_label("Save the current view as").press("Enter")
    expect(dialog.get_by_role("button", name="with rates", exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    listed.goto(listed.url.partition("?")[0])
    listed.get_by_role("button", name="Views").click()
    dialog.get_by_role("button", name="with rates", exact=True).click()
    expect(listed.get_by_role("columnheader", name="lr")).to_be_visible()


def test_an_empty_master_says_the_next_step(visit: Callable[..., Visit], visitor: Visit, pictures: Path) -> None:
    visitor.page.route(
        "**/experiments/table*", lambda route: route.fulfill(json={"columns": [], "rows": [], "total": 0, "states": {}})
    )
    visitor.open("experiments")
    expect(visitor.page.get_by_text("det experiment create config.yaml")).to_be_visible()
    picture(visitor.page, pictures, "experiments-none")
