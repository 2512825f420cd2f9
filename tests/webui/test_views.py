"""Home, the page of an experiment and that of a trial, on searches that were really decided."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.master import MasterProcess
from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.searches import Searches, end_searches, make_searches

pytestmark = pytest.mark.browser

TABS = ("", "/trials", "/space", "/story", "/cost", "/config", "/code", "/checkpoints", "/notes")
TRIAL_TABS = ("", "/attempts", "/checkpoints", "/machine", "/environment", "/story")


@pytest.fixture(scope="module")
def searches(master: MasterProcess) -> Iterator[Searches]:
    found = make_searches(master, trials=300)
    yield found
    end_searches(master, found)


def test_home_says_what_runs_and_the_way_to_it(visitor: Visit, searches: Searches, pictures: Path, axe: str) -> None:
    page = visitor.open("")
    expect(page.get_by_role("heading", name=re.compile("^Runs"))).to_be_visible()
    expect(page.get_by_role("heading", name="Pools")).to_be_visible()
    picture(page, pictures, "home")
    assert violations(page, axe) == []
    page.get_by_role("link", name=re.compile("vit-small imagenet")).first.click()
    expect(page).to_have_url(re.compile(f"/ui/experiments/{searches.large}$"))


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


def test_hostile_names_failures_and_experiments_without_trials(
    visitor: Visit, searches: Searches, visit: Callable[..., Visit]
) -> None:
    page = visitor.open(f"experiments/{searches.small}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("<img src=x onerror=alert(1)>")
    page = visitor.open(f"experiments/{searches.failed}")
    expect(page.get_by_text("out of memory").first).to_be_visible()
    page = visitor.open(f"experiments/{searches.empty}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("not begun")
    visitor.expected = ["404"]
    page = visitor.open("experiments/999999")
    expect(page.get_by_role("alert")).to_contain_text("There is no experiment 999999")
