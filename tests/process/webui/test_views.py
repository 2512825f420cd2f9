"""Home, the page of an experiment and that of a trial, on searches that were really decided."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.searches import Searches

pytestmark = pytest.mark.browser

TABS = ("", "/trials", "/space", "/rungs", "/story", "/cost", "/config", "/code", "/checkpoints", "/notes")
TRIAL_TABS = ("", "/attempts", "/checkpoints", "/machine", "/environment", "/story")


@pytest.fixture
def visitor(searcher: Visit) -> Visit:
    return searcher


def test_home_lists_running_experiments_with_links(
    visitor: Visit, searches: Searches, pictures: Path, axe: str
) -> None:
    page = visitor.open("")
    expect(page.get_by_role("heading", name=re.compile("^Running"))).to_be_visible()
    expect(page.get_by_role("heading", name="Pools")).to_be_visible()
    picture(page, pictures, "home")
    assert violations(page, axe) == []
    page.get_by_role("link", name=re.compile("one long training")).first.click()
    expect(page).to_have_url(re.compile(f"/ui/experiments/{searches.single}$"))


@pytest.mark.parametrize("tab", TABS)
def test_each_view_of_an_experiment_is_an_address(
    visitor: Visit, searches: Searches, pictures: Path, axe: str, tab: str
) -> None:
    page = visitor.open(f"experiments/{searches.large}{tab}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("vit-small imagenet")
    expect(page.locator(".tabs [aria-current]")).to_have_count(1)
    expect(page.locator(".tab").locator("canvas, table, .story, .source, .empty, .facts").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    picture(page, pictures, f"experiment-{tab.strip('/') or 'curves'}")
    assert violations(page, axe) == []


@pytest.mark.parametrize("tab", TRIAL_TABS)
def test_each_view_of_a_trial_is_an_address(
    visitor: Visit, searches: Searches, pictures: Path, axe: str, tab: str
) -> None:
    best = visitor.context.request.get(f"{visitor.url}/api/x1/experiments/{searches.large}/board").json()
    trial = best["experiment"]["bestTrial"]
    page = visitor.open(f"trials/{trial}{tab}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"Trial {trial}")
    expect(page.locator(".tab").locator("canvas, table, .story, .source, .empty, .facts").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    picture(page, pictures, f"trial-{tab.strip('/') or 'metrics'}")
    assert violations(page, axe) == []


def test_a_table_of_trials_is_as_high_as_the_window(visitor: Visit, searches: Searches) -> None:
    page = visitor.open(f"experiments/{searches.large}/trials")
    expect(page.locator("tbody tr .state").first).to_be_visible()
    assert page.evaluate("document.querySelectorAll('*').length") < 3000
    bottom, room = page.evaluate("[document.querySelector('.table').getBoundingClientRect().bottom, innerHeight]")
    assert bottom <= room
    page.get_by_role("grid").focus()
    page.keyboard.press("End")
    expect(page.locator("tr.current")).to_be_visible()


def test_hostile_names_failures_and_experiments_without_trials(visitor: Visit, searches: Searches) -> None:
    page = visitor.open(f"experiments/{searches.small}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x onerror=alert(1)>")
    page = visitor.open(f"experiments/{searches.failed}")
    expect(page.get_by_text("out of memory").first).to_be_visible()
    page = visitor.open(f"experiments/{searches.empty}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("not begun")
    visitor.expected = ["404"]
    page = visitor.open("experiments/999999")
    expect(page.get_by_role("alert")).to_contain_text("There is no experiment 999999")


def test_board_ranks_savings_and_curves_agree(visitor: Visit, searches: Searches) -> None:
    def ask(path: str) -> Any:
        answer = visitor.context.request.get(f"{visitor.url}/api/x1/{path}")
        assert answer.ok, answer.text()
        return answer.json()

    board = ask(f"experiments/{searches.small}/board?curves=true&x=epochs")
    head = board["experiment"]
    rows = [dict(zip(board["columns"], row, strict=True)) for row in board["rows"]]
    by_id = {row["id"]: row for row in rows}
    for number, bracket in enumerate(board["brackets"]):
        for below, above in pairwise(bracket["rungs"]):
            assert set(above["trials"]) <= set(below["trials"])
            known = [value for value in below["values"] if value is not None]
            assert known == sorted(known)
            assert below["cut"] == known[max(len(below["values"]) // 3, 1) - 1]
        assert all(by_id[trial]["bracket"] == number for rung in bracket["rungs"] for trial in rung["trials"])
    stopped = [row for row in rows if row["stop"] == "searcher" and row["units"] < head["maxTime"]]
    saved = sum((head["maxTime"] - row["units"]) * row["secondsPerUnit"] * head["slots"] for row in stopped)
    assert stopped
    assert head["secondsSaved"] == pytest.approx(saved, rel=1e-3)
    assert head["slotSeconds"] == pytest.approx(sum(row["slotSeconds"] for row in rows), rel=1e-3)
    assert head["best"] == min(row["best"] for row in rows if row["best"] is not None)
    assert board["constants"] == {"image_size": 224}
    curves = board["curves"]
    assert (curves["metric"], curves["xName"], curves["whole"]) == ("val_loss", "epochs", True)
    for trial, last, values in zip(curves["trials"], curves["last"], curves["y"], strict=True):
        assert curves["x"][len(values) - 1] == last <= by_id[trial]["units"]  # less where the last value was none
    events = ask(f"experiments/{searches.small}/story?limit=5")
    assert events["more"]
    assert len(events["events"]) == 5
    following = ask(f"experiments/{searches.small}/story?limit=1&after={events['events'][-1]['id']}")
    assert following["events"][0]["id"] > events["events"][-1]["id"]
    last = ask(f"experiments/{searches.small}/story?limit=3&newest=true")["events"]
    assert [one["id"] for one in last] == sorted((one["id"] for one in last), reverse=True)
    earlier = ask(f"experiments/{searches.small}/story?limit=1&newest=true&before={last[-1]['id']}")["events"]
    assert earlier[0]["id"] < last[-1]["id"]
    stops = ask(f"experiments/{searches.small}/story?limit=10000&subject=search")["events"]
    assert {one["subject"] for one in stops} == {"search"}
    assert len([one for one in stops if one["event"] == "Stop"]) >= len(stopped)
    longest = max(rows, key=lambda row: row["attempts"])
    attempts = ask(f"trials/{longest['id']}/attempts")["attempts"]
    assert len(attempts) == longest["attempts"]
    for before, after in pairwise(attempts):
        assert before["ended"] <= after["started"]
        if before["trainedTo"] is not None and after["trainedFrom"] is not None:  # some ended before they reported
            assert before["trainedTo"] < after["trainedFrom"]
    lost = [one["lostSteps"] for one in attempts if one["outcome"] != "infrastructure"]
    assert not any(lost), "only a failed node loses steps"
    assert (
        ask(f"trials/{longest['id']}/curves?metrics=validation:val_loss&points=2")["curves"][0]["metric"] == "val_loss"
    )
    assert len(ask(f"experiments/{searches.small}/checkpoints")["rows"]) == head["checkpoints"]


@pytest.mark.parametrize(
    ("path", "button", "columns"),
    [
        ("experiments/{large}/space", "Save the parallel coordinates", ["id", "hp.lr"]),
        ("experiments/{large}/space", "Save the scatter", ["id", "best"]),
        ("trials/{trial}/attempts", "Save the drawing of jobs", ["job", "part", "from", "to"]),
    ],
)
def test_a_drawing_is_saved_for_a_paper_with_its_data(
    visitor: Visit, searches: Searches, path: str, button: str, columns: list[str]
) -> None:
    board = visitor.context.request.get(f"{visitor.url}/api/x1/experiments/{searches.large}/board").json()
    page = visitor.open(path.format(large=searches.large, trial=board["experiment"]["bestTrial"]))

    def saved(kind: str) -> bytes:
        page.get_by_role("button", name=button).click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=re.compile(f"^{kind}")).click()
        return Path(download.value.path()).read_bytes()

    root = ElementTree.fromstring(saved("SVG, one column"))
    assert root.get("width") == "85mm"
    values = json.loads(root.findtext("{http://www.w3.org/2000/svg}metadata", ""))
    assert set(columns) <= set(values[0])
    assert visitor.url in root.findtext("{http://www.w3.org/2000/svg}desc", "")
    picture = saved("PNG")
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == pytest.approx(2 * 170 / 25.4 * 96, abs=2)
    assert len(saved("CSV").splitlines()) == len(values) + 1


def test_a_trial_again_with_another_rate(visitor: Visit, searches: Searches, pictures: Path, axe: str) -> None:
    board = visitor.context.request.get(f"{visitor.url}/api/x1/experiments/{searches.single}/board").json()
    page = visitor.open(f"trials/{board['rows'][0][0]}")
    page.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Rerun").click()
    dialog = page.get_by_role("dialog")
    rate = dialog.get_by_role("textbox", name="lr")
    expect(rate).to_have_value("0.001")
    rate.fill("fast")
    rate.press("Enter")
    expect(dialog.get_by_role("alert")).to_have_text('lr: expected a number such as 0.001 or 1e-3, not "fast".')
    picture(page, pictures, "trial-again")
    assert violations(page, axe) == []
    rate.fill("1e-2")
    rate.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("one long training (trial ")
    made = int(page.url.rpartition("/")[2])
    config = visitor.context.request.get(f"{visitor.url}/api/v1/experiments/{made}").json()["config"]
    assert config["searcher"]["name"] == "single"
    assert config["hyperparameters"]["lr"] == {"type": "const", "val": 0.01}
    assert config["hyperparameters"]["optimizer"]["name"] == {"type": "const", "val": "adamw"}
