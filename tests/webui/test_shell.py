"""What every page has: serving under any prefix and the policy, signing in and out, places, the jump box."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.support.master import MasterProcess
from tests.support.webui.chromium import Visit, picture
from tests.support.webui.prefix import stripping

pytestmark = pytest.mark.browser


def test_the_page_works_under_a_prefix_that_a_proxy_strips(
    visit: Callable[..., Visit], master: MasterProcess, pictures: Path
) -> None:
    with stripping(master.url) as url:
        found = visit(url)
        page = found.page
        page.goto(f"{url}/")
        expect(page.get_by_label("Name")).to_be_focused()
        assert page.url == f"{url}/ui/"
        picture(page, pictures, "sign-in")
        page.get_by_label("Name").fill("determined")
        page.get_by_label("Password").fill(master.password)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        cookies = {one["name"]: one for one in found.context.cookies()}
        assert cookies["auth"]["path"] == "/rnode/n1/8080"
        assert (cookies["auth"]["httpOnly"], cookies["auth"]["sameSite"]) == (True, "Strict")
        page.reload()
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        page.goto(f"{url}/ui/nothing/like/this")
        expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
        page.get_by_role("main").get_by_role("link", name="Home").click()
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        assert page.url == f"{url}/ui/"
        assert all(one.startswith(f"{url}/") for one in found.requests)
