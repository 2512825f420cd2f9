"""The documentation's site: built by `scripts/docs`, served under `/docs/guide`, and searched in a browser."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import expect

from tests.support.master import MasterProcess
from tests.support.webui.chromium import Visit
from tests.support.webui.prefix import KEPT, STRIPPED, behind
from trainmaster.master.http import error_envelope, guide

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    subprocess.run(["bash", ROOT / "scripts/docs"], check=True)


def test_a_master_serves_the_site_to_anybody(master: MasterProcess) -> None:
    with httpx.Client(base_url=f"{master.url}/docs/", follow_redirects=True) as http:
        start = http.get("guide")
        assert (start.status_code, start.url) == (200, f"{master.url}/docs/guide/")  # type: ignore[comparison-overlap]
        assert start.headers["content-type"] == "text/html; charset=utf-8"
        assert start.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert start.headers["x-content-type-options"] == "nosniff"
        assert 'href="../../docs"' in start.text
        assert "docs/guide/" in http.get(f"{master.url}/openapi.json").json()["info"]["description"]
        index = json.loads(http.get("guide/search/search_index.json").content)
        assert {"benchmarks.html", "architecture/locking.html"} <= {entry["location"] for entry in index["docs"]}
        again = http.get("guide/", headers={"If-None-Match": start.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        for name, kind in {"css/theme.css": "text/css", "search/main.js": "text/javascript"}.items():
            assert http.get(f"guide/{name}").headers["content-type"].startswith(kind)


def test_no_path_leads_out_of_the_site(master: MasterProcess) -> None:
    for path in ("../version.py", "%2e%2e/version.py", "css/..%2f..%2fversion.py", "%2fetc/passwd", "none.html", "css"):
        answer = httpx.Request("GET", f"{master.url}/docs/guide/")
        answer.extensions["target"] = f"/docs/guide/{path}".encode()
        with httpx.Client() as http:
            assert http.send(answer).status_code == 404, path


def test_pages_have_no_external_sources_or_inline_scripts() -> None:
    pages = sorted(guide.FOLDER.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        html = page.read_text()
        assert not re.search(r"""<(?:script|link|img)[^>]*(?:src|href)=["'](?:https?:)?//""", html), page
        assert not re.search(r"<script(?![^>]*\ssrc=)|<[^>]+\s(?:style|on[a-z]+)=", html), page


def test_a_site_that_was_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    app = FastAPI()
    error_envelope.install(app)
    app.mount(guide.PATH, guide.Guide(tmp_path / "guide"))

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://master") as http:
            return await http.get(f"{guide.PATH}/")

    with ThreadPoolExecutor(1) as pool:  # the browser's event loop runs in this thread
        answer = pool.submit(asyncio.run, ask()).result()
    assert answer.status_code == 404
    assert "Run `bash scripts/docs` in the checkout." in answer.json()["message"]


@pytest.mark.parametrize("prefix", ["", STRIPPED, KEPT])
def test_its_search_finds_a_page(visit: Callable[..., Visit], master: MasterProcess, prefix: str) -> None:
    with behind(master.url, prefix) as url:
        found = visit(url)
        page = found.page
        page.goto(f"{url}/docs/guide")
        page.get_by_role("link", name="Locks").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        search = page.get_by_role("textbox", name="Search docs")
        search.fill("rendezvous")
        search.press("Enter")
        page.locator("#mkdocs-search-results").get_by_role("link").first.click()
        expect(page.get_by_text("rendezvous", exact=False).first).to_be_visible()
        assert all(one.startswith(f"{url}/docs/guide") for one in found.requests)
        page.goto("about:blank")  # before the proxy goes


def test_guide_and_api_description_link_to_each_other(visit: Callable[..., Visit], master: MasterProcess) -> None:
    page = visit(master.url).page
    page.goto(f"{master.url}/docs/guide/")
    page.get_by_role("link", name="/docs").click()
    page.get_by_role("link", name="guide", exact=True).click()
    expect(page.get_by_role("heading", level=1, name="trainmaster")).to_be_visible()


def test_the_account_menu_opens_the_site(visitor: Visit, master: MasterProcess) -> None:
    page = visitor.open()
    page.get_by_role("button", name="Account").click()
    with page.context.expect_page() as opened:
        page.get_by_role("menuitem", name="Documentation", exact=True).click()
    guide_page = opened.value
    expect(guide_page.get_by_role("heading", level=1, name="trainmaster")).to_be_visible()
    assert guide_page.url == f"{master.url}/docs/guide/"
    guide_page.close()
