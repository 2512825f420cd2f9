"""Ten questions that people open the page with, asked with a mouse from home on; each is a way that counts its clicks.

The site that they are asked of has a search that has ended, a training that waits, a failed one with a long log, and
nodes that lost jobs.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from playwright.sync_api import Locator, Page, expect

from tests.support.webui.chromium import Visit
from tests.support.webui.searches import MEMORY, Searches


@dataclass
class Way:
    """A way through the page. `clicks` so far; `seconds`: the longest from a click to its content."""

    visit: Visit
    searches: Searches
    clicks: int = 0
    seconds: float = 0.0
    _clicked: float = field(default_factory=time.monotonic)

    @property
    def page(self) -> Page:
        return self.visit.page

    def click(self, what: Locator) -> None:
        what.first.wait_for()
        self._clicked = time.monotonic()
        what.first.click()
        self.clicks += 1

    def sees(self, what: Locator) -> None:
        expect(what.first).to_be_visible()
        self.seconds = max(self.seconds, time.monotonic() - self._clicked)

    def home(self) -> None:
        self._clicked = time.monotonic()
        self.visit.open()
        self.sees(self.page.locator(".item-list"))


def what_runs_waits_or_failed(way: Way) -> None:
    for title in ("Needs you", "Running", "Queued"):
        way.sees(way.page.get_by_role("heading", name=re.compile(f"^{title}")))
    way.sees(way.page.get_by_text(MEMORY))


def why_does_it_wait_and_until_when(way: Way) -> None:
    waits = way.page.locator(".item-list", has=way.page.get_by_role("heading", name=re.compile("^Queued")))
    way.sees(waits.get_by_text(re.compile(r"\(Slurm: ")))
    way.sees(waits.get_by_text(re.compile("expected to start in")))


def why_did_a_trial_end(way: Way) -> None:
    board = way.visit.context.request.get(f"{way.visit.url}/api/x1/experiments/{way.searches.small}/board").json()
    rows = [dict(zip(board["columns"], row, strict=True)) for row in board["rows"]]
    trial = next(row["id"] for row in rows if row["stop"] == "searcher" and row["state"] == "COMPLETED")
    way.click(way.page.get_by_role("button", name=re.compile("^Jump to")))
    way.page.get_by_role("combobox", name=re.compile("^Number or name of an experiment")).fill(str(trial))
    way.click(way.page.get_by_role("option", name=re.compile(f"^Trial {trial}")))
    way.sees(way.page.get_by_text(re.compile("The trial saved its work and left")))


def is_the_best_trial_still_improving(way: Way) -> None:
    way.click(way.page.locator(".item-list").get_by_title(re.compile(r"^trial \d+, the best$")))
    way.sees(way.page.locator(".chart canvas"))


def what_did_stopping_save(way: Way) -> None:
    way.click(way.page.get_by_role("link", name=re.compile("invoice")))
    way.click(way.page.get_by_role("link", name="Cost", exact=True))
    way.sees(way.page.get_by_text(re.compile(r"slot-hours \(\d+\s% of the cost without early stopping")))


def first_error_in_a_long_log(way: Way) -> None:
    failed = way.page.locator(".item-list li", has_text="a long log")
    way.click(failed.get_by_role("link", name=re.compile("^first error of trial")))
    way.sees(way.page.get_by_text(re.compile("needle: CUDA error")))


def what_differs_between_two(way: Way) -> None:
    way.click(way.page.get_by_role("link", name="Experiments", exact=True))
    boxes = way.page.get_by_role("row").get_by_role("checkbox")
    way.click(boxes.nth(1))
    way.click(boxes.nth(2))
    way.page.keyboard.press("c")
    way.sees(way.page.get_by_role("heading", name="Differences"))


def the_same_again_with_another_rate(way: Way) -> None:
    ended = way.page.locator(".item-list li", has_text="vit-small imagenet")
    way.click(ended.get_by_title(re.compile(r"^trial \d+, the best$")))
    way.click(way.page.get_by_role("button", name="Actions"))
    way.click(way.page.get_by_role("menuitem", name=re.compile("^Rerun")))
    rate = way.page.get_by_role("dialog").get_by_role("textbox", name="lr")
    rate.fill("0.02")
    rate.press("Enter")
    way.sees(way.page.get_by_role("heading", level=1, name=re.compile(r"\(trial \d+\)")))


def which_node_breaks_jobs(way: Way) -> None:
    way.click(way.page.get_by_role("link", name="Usage", exact=True))
    way.sees(way.page.get_by_role("grid", name="Nodes that lost jobs").get_by_text(re.compile("NODE_FAIL")))


def who_used_the_gpus_last_month(way: Way) -> None:
    way.click(way.page.get_by_role("link", name="Usage", exact=True))
    way.click(way.page.get_by_role("button", name="Last month"))
    last = dt.datetime.now(dt.UTC).date().replace(day=1) - dt.timedelta(days=1)
    way.sees(way.page.get_by_text(re.compile("Nobody used a slot in these days|determined")))
    expect(way.page).to_have_url(re.compile(f"last={last}"))


# Each with the clicks that it may take.
QUESTIONS: dict[Callable[[Way], None], int] = {
    what_runs_waits_or_failed: 0,
    why_does_it_wait_and_until_when: 0,
    why_did_a_trial_end: 2,
    is_the_best_trial_still_improving: 1,
    what_did_stopping_save: 2,
    first_error_in_a_long_log: 3,
    what_differs_between_two: 3,
    the_same_again_with_another_rate: 3,
    which_node_breaks_jobs: 1,
    who_used_the_gpus_last_month: 2,
}
