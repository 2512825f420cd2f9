"""Pages of an experiment whose owner means no good: markup, invisible characters, NaN, and more than fits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import Visit
from tests.support.webui.searches import Searches, end_searches, make_searches
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

pytestmark = pytest.mark.browser

CONFIG = "cluster_name: kestrel\nresource_manager: {type: local, slots: 4, poll_interval: 5}\n"
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"
HIDDEN = "invoice\u202egpj.exe zero\u200bwidth \u0007"
LONG = "x" * 1_000_000
METRICS = 10_000
NOTES = "\n\n".join(
    [
        "# " + MARKUP,
        HIDDEN,
        "[a link](javascript:alert(3)) [another](data:text/html,x) [fine](https://example.org)",
        "![picture](https://example.org/x.png)",
        "*" * 20_000,
        "[" * 20_000,
        "`" * 20_001,
        "| a | b |\n|---|---|\n" + "| x | y |\n" * 2_000,
        "> " * 5_000 + "deep",
        "    " * 5_000 + "- deep",
        LONG,
    ]
)


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[MasterProcess, Searches]]:
    with serving(CONFIG) as process:
        found = make_searches(process, trials=60)
        _spoil(process, found.small)
        yield process, found
        end_searches(process, found)


def _spoil(master: MasterProcess, experiment: int) -> None:
    """What a job and a person may send at the most, and more of it."""
    numbers = {"type": "number", "count": 3, "min": "NaN", "max": "Infinity", "last": "NaN", "mean": "NaN"}
    names = [f"metric {number}" for number in range(METRICS)]
    names[:3] = [MARKUP, HIDDEN, "y" * 1000]
    hparams = {MARKUP: MARKUP, HIDDEN: HIDDEN, "long": LONG, "deep": {"er": {"still": [1, {"x": None}]}}, "nan": "NaN"}
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        (first, second) = connection.scalars(
            text("SELECT id FROM trials WHERE experiment_id = :id ORDER BY id LIMIT 2"), {"id": experiment}
        ).all()
        connection.execute(
            text("""
                UPDATE trials SET summary_metrics = summary_metrics || CAST(:metrics AS jsonb) WHERE id = :id"""),
            {"metrics": json.dumps({"avg_metrics": dict.fromkeys(names, numbers)}), "id": first},
        )
        connection.execute(
            text("UPDATE trials SET hparams = hparams || CAST(:hparams AS jsonb), reason = :why WHERE id = :id"),
            {"hparams": json.dumps(hparams), "why": MARKUP + HIDDEN.replace("\0", "") + LONG, "id": second},
        )
        connection.execute(
            text("UPDATE allocations SET exit_text = :why, explanation = :why WHERE trial_id = :id"),
            {"why": MARKUP + LONG, "id": second},
        )
        connection.execute(
            text("""
                UPDATE experiments SET notes = :notes, description = :long, labels = CAST(:labels AS jsonb),
                    reason = :why, searcher_metric = searcher_metric WHERE id = :id"""),
            {
                "notes": NOTES,
                "long": HIDDEN + LONG,
                "labels": json.dumps([MARKUP, HIDDEN, *(f"{number} " + "z" * 990 for number in range(498))]),
                "why": MARKUP + LONG,
                "id": experiment,
            },
        )
        connection.execute(
            text("UPDATE story SET why = :why WHERE experiment_id = :id AND trial_id = :trial"),
            {"why": MARKUP + LONG, "id": experiment, "trial": second},
        )
    engine.dispose()


TABS = ("", "/trials", "/space", "/rungs", "/story", "/cost", "/config", "/code", "/checkpoints", "/notes")
TRIAL_TABS = ("", "/attempts", "/checkpoints", "/machine", "/environment", "/story")


def test_every_page_shows_texts_as_texts_and_stays_in_its_window(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]
) -> None:
    master, searches = site
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    board = visitor.context.request.get(f"{master.url}/api/x1/experiments/{searches.small}/board").json()
    first, second = (row[0] for row in board["rows"][:2])
    visitor.page.on("dialog", lambda dialog: visitor.faults.append(f"dialog: {dialog.message}"))
    for path in (
        "",
        "experiments",
        *(f"experiments/{searches.small}{tab}" for tab in TABS),
        *(f"trials/{trial}{tab}" for trial in (first, second) for tab in TRIAL_TABS),
        f"compare?trials={first},{second}&show=all&baseline={first}",
        f"compare?experiments={searches.small},{searches.single}&code={searches.small}..{searches.single}",
    ):
        page = visitor.open(path)
        expect(page.locator("h1, .table").first).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        assert page.locator("main img, main script, main iframe").count() == 0, path
        assert page.locator('a[href^="javascript:"], a[href^="data:"]').count() == 0, path
        for width in (360, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
        assert "\u202e" not in page.locator("main").inner_text(), path
        assert page.evaluate("document.querySelectorAll('*').length") < 30_000, path


def test_ten_thousand_metrics_are_searched_and_chosen(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]
) -> None:
    master, searches = site
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    page = visitor.open(f"experiments/{searches.small}?metric=metric+9999&group=training")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    field = page.get_by_role("combobox", name="Metric")
    expect(field).to_have_value("metric 9999 (training)")
    field.fill("metric 77")
    expect(page.locator("#metrics option")).to_have_count(100)
    field.fill("metric 7777 (training)")
    expect(page).to_have_url(re.compile("metric=metric(\\+|%20)7777"))
