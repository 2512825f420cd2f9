"""The page of usage: who used the slots, and which nodes lost jobs."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import Visit, picture, violations
from tests.support.webui.searches import Searches, end_searches, make_searches

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[MasterProcess, Searches]]:
    with serving("cluster_name: kestrel\nresource_manager: {type: local, slots: 4, poll_interval: 5}\n") as process:
        found = make_searches(process, trials=100)
        yield process, found
        end_searches(process, found)


@pytest.mark.parametrize("width", [1440, 360])
def test_usage_is_shown_by_day_user_pool_and_node(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches], pictures: Path, axe: str, width: int
) -> None:
    master, searches = site
    visitor = visit(master.url, width=width)
    visitor.sign_in("determined", master.password)
    page = visitor.open("usage")
    expect(page.get_by_role("grid", name="Slot-hours by user").get_by_text("determined")).to_be_visible()
    expect(page.get_by_role("grid", name="Nodes that lost jobs")).to_be_visible()
    assert violations(page, axe) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width == 1440:
        picture(page, pictures, "usage")
    usage = visitor.context.request.get(f"{master.url}/api/x1/usage").json()
    used = (searches.large, searches.small, searches.pausing, searches.breeding, searches.single, searches.failed)
    boards = [
        visitor.context.request.get(f"{master.url}/api/x1/experiments/{one}/board").json()["experiment"] for one in used
    ]
    # What runs counts up to the minute on a board.
    assert usage["slotSeconds"] == pytest.approx(sum(one["slotSeconds"] for one in boards), rel=0.01)
    assert usage["slotSeconds"] == pytest.approx(sum(day["slotSeconds"] for day in usage["days"]), rel=1e-6)
    assert [one["name"] for one in usage["users"]] == ["determined"]
    labels = {one["name"]: one["slotSeconds"] for one in usage["labels"]}
    assert labels["vit"] == labels["paper"]
    lost: Counter[str] = Counter()
    for trial in visitor.context.request.get(f"{master.url}/api/v1/experiments/{searches.large}/trials").json()[
        "trials"
    ]:
        attempts = visitor.context.request.get(f"{master.url}/api/x1/trials/{trial['id']}/attempts").json()["attempts"]
        lost.update(one["nodes"][0] for one in attempts if one["outcome"] == "infrastructure")
    told = {one["node"]: one["jobs"] for one in usage["nodes"]}
    assert lost
    assert all(told[node] >= jobs for node, jobs in lost.items())


def test_the_days_are_the_address(visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]) -> None:
    master, _ = site
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    page = visitor.open()
    page.get_by_role("link", name="Usage").click()
    page.get_by_role("button", name="Last month").click()
    month = (dt.datetime.now(dt.UTC).date().replace(day=1) - dt.timedelta(days=1)).replace(day=1)
    expect(page).to_have_url(re.compile(f"first={month}"))
    page.reload()
    expect(page.get_by_role("button", name="Last month")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="JSON").click()
    assert isinstance(json.loads(Path(download.value.path()).read_text()), list)
    visitor.expected.append("status of 400")
    page = visitor.open("usage?first=2026-02-01&last=2026-01-01")
    expect(page.get_by_role("alert")).to_contain_text("The last day must not lie before the first")
