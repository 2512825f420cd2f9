"""The chart, in a page of its own: lines, scales, files for a paper, and its table."""

from __future__ import annotations

import csv
import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.support.webui.chromium import Visit, picture, violations
from trainmaster.master.api.webui import FILES

pytestmark = pytest.mark.browser

# A chart in the place of the page's content.
SHOW = """async ([files, data]) => {
    const { render } = await import(files + "vendor/preact/preact.js");
    const { Chart } = await import(files + "app/ui/chart.js");
    const { tags } = await import(files + "app/ui/tags.js");
    const main = document.getElementById("main");
    main.replaceChildren();
    const charts = [Chart({ data, cursor: "one" }), Chart({ data, cursor: "one", log: true })];
    render(tags.div({ class: "page" }, charts), main);
}"""


def curves(count: int, points: int) -> dict[str, Any]:
    xs = [100 * (at + 1) for at in range(points)]
    noise = [math.sin(at * 12.9898) * 0.02 for at in range(points)]
    series = [
        {
            "name": f"trial {n} <b>& co",
            "y": [
                None
                if n == 2 and at > points // 2
                else math.exp(-at / (points / (n + 2))) + 0.01 * n + noise[at] / (n + 1)
                for at in range(points)
            ],
            "faded": n == 2,
            "bold": n == 0,
        }
        for n in range(count)
    ]
    return {"label": "val_loss of experiment 5", "xTitle": "batches", "yTitle": "val_loss", "x": xs, "series": series}


@pytest.fixture
def chart(visitor: Visit) -> Page:
    page = visitor.open()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.evaluate(SHOW, [f"{visitor.url}/ui/a/{FILES.tree().mark}/", curves(5, 200)])
    expect(page.locator(".u-over")).to_have_count(2)
    return page


def test_lines_are_drawn_and_charts_share_their_cursor(chart: Page, pictures: Path, axe: str) -> None:
    chart.locator(".u-over").first.hover(position={"x": 300, "y": 80})
    values = chart.locator(".legend-value")
    expect(values.first).not_to_be_empty()
    assert values.nth(0).inner_text() == values.nth(5).inner_text()
    picture(chart, pictures, "chart")
    assert violations(chart, axe) == []
    # Of one colour less: what is drawn follows the theme.
    chart.emulate_media(color_scheme="dark")
    chart.get_by_role("slider").first.fill("0.9")
    chart.get_by_role("button", name="log").first.click()
    picture(chart, pictures, "chart-smoothed")


def test_its_values_are_a_table(chart: Page, pictures: Path) -> None:
    chart.get_by_role("button", name="Table").first.click()
    grid = chart.get_by_role("grid", name="val_loss of experiment 5")
    expect(grid).to_have_attribute("aria-rowcount", "201")
    expect(grid.get_by_role("gridcell", name="1.010").first).to_be_visible()
    picture(chart, pictures, "chart-table")


def test_it_is_saved_for_a_paper_with_its_data(chart: Page, pictures: Path) -> None:
    for item in ("PNG", "SVG, one column", "SVG, two columns", "CSV"):
        chart.get_by_role("button", name="Save").first.click()
        with chart.expect_download() as download:
            chart.get_by_role("menuitem", name=item).click()
        download.value.save_as(pictures / f"saved-{item.replace(', ', '-').replace(' ', '-')}")
    svg = ET.fromstring((pictures / "saved-SVG-one-column").read_text())
    space = "{http://www.w3.org/2000/svg}"
    pixels = float((svg.get("viewBox") or "").split()[2])
    (size,) = {float(text.get("font-size", "0")) for text in svg.iter(f"{space}text")}
    assert svg.get("width") == "85mm"
    assert size * 85 / pixels * 72 / 25.4 == pytest.approx(8, abs=0.01), "points of the type on paper"
    assert len([path for path in svg.iter(f"{space}path") if path.get("d", "").count("L") > 20]) == 5
    inside = list(csv.reader((svg.findtext(f"{space}metadata") or "").splitlines()))
    outside = list(csv.reader((pictures / "saved-CSV").read_text().splitlines()))
    assert inside == outside
    assert (len(outside), outside[0][1], outside[1][0]) == (201, "trial 0 <b>& co", "100")
    assert "/ui/" in (svg.findtext(f"{space}desc") or "")
    assert (pictures / "saved-PNG").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_thousand_lines_are_drawn_in_one_go(visitor: Visit, pictures: Path) -> None:
    page = visitor.open()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.evaluate(SHOW, [f"{visitor.url}/ui/a/{FILES.tree().mark}/", curves(1000, 100)])
    expect(page.locator(".u-over")).to_have_count(2)
    expect(page.get_by_text("1000 lines").first).to_be_visible()
    assert page.evaluate("document.querySelectorAll('*').length") < 500
    picture(page, pictures, "chart-thousand", ["light"])
