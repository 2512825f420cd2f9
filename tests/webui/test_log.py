"""The page of a log: any part of it at once, and nothing in it that does harm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.logs import ERROR_EVERY, FIRST_ERROR, FilledLog, make_log

pytestmark = pytest.mark.browser

CONFIG = """
cluster_name: kestrel
resource_manager: {type: local, slots: 1, poll_interval: 5}
"""
LINES = 100_000


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[MasterProcess, FilledLog]]:
    """A master of its own, with one long log of a trial that failed."""
    with serving(CONFIG) as process:
        yield process, make_log(process, LINES)


@pytest.fixture
def visitor(visit: Callable[..., Visit], site: tuple[MasterProcess, FilledLog]) -> Visit:
    found = visit(site[0].url)
    found.sign_in("determined", site[0].password)
    return found


@pytest.fixture
def log(site: tuple[MasterProcess, FilledLog]) -> FilledLog:
    return site[1]


def shown(page: Page) -> list[str]:
    return page.locator(".log-text").all_inner_texts()


def test_a_log_opens_at_its_end(visitor: Visit, log: FilledLog, pictures: Path, axe: str) -> None:
    page = visitor.open(f"trials/{log.trial}/log")
    expect(page.locator(".log-line").last).to_contain_text(f"line {LINES} ")
    expect(page.locator(".log-foot")).to_contain_text("100\u2009000 lines")
    picture(page, pictures, "log")
    assert violations(page, axe) == []


def test_the_first_error_is_found_from_home(visitor: Visit, log: FilledLog, pictures: Path) -> None:
    page = visitor.open("")
    page.get_by_role("link", name="first error").first.click()
    expect(page.locator(".log-line.chosen")).to_contain_text(f"line {FIRST_ERROR} needle: CUDA error: out of memory")
    expect(page).to_have_url(re.compile(rf"/ui/trials/{log.trial}/log\?line=\d+$"))
    picture(page, pictures, "log-error")


def test_matches_are_counted_and_gone_through(visitor: Visit, log: FilledLog, pictures: Path) -> None:
    page = visitor.open(f"trials/{log.trial}/log")
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(page.locator(".log-count")).to_have_text("1 of 2")
    expect(page.locator(".log-line.chosen mark")).to_have_text("needle")
    picture(page, pictures, "log-search")
    page.keyboard.press("Enter")
    expect(page.locator(".log-count")).to_have_text("2 of 2")
    expect(page.locator(".log-line.chosen")).to_contain_text(f"line {FIRST_ERROR + ERROR_EVERY} ")
