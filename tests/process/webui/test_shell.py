"""What every page has: serving under any prefix and the policy, signing in and out, places, the jump box."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Route, expect

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.master import MasterProcess
from tests.support.webui.chromium import Visit, picture, until, violations
from tests.support.webui.prefix import KEPT, STRIPPED, behind

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("prefix", [STRIPPED, KEPT])
def test_the_page_works_under_the_prefix_of_a_portal(
    visit: Callable[..., Visit], master: MasterProcess, pictures: Path, prefix: str
) -> None:
    with behind(master.url, prefix) as url:
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
        assert cookies["auth"]["path"] == prefix
        assert (cookies["auth"]["httpOnly"], cookies["auth"]["sameSite"]) == (True, "Strict")
        page.reload()
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        page.goto(f"{url}/ui/nothing/like/this")
        expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
        page.get_by_role("main").get_by_role("link", name="Home").click()
        expect(page.get_by_role("heading", name="Home")).to_be_visible()
        assert page.url == f"{url}/ui/"
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        assert all(one.startswith(f"{url}/") for one in found.requests)
        page.goto("about:blank")  # before the proxy goes


def test_a_link_from_a_terminal_signs_in_with_one_press(
    visit: Callable[..., Visit], master: MasterProcess, pictures: Path
) -> None:
    link = master.det("ui", "experiments").stdout.strip()
    found = visit(master.url)
    page = found.page
    page.goto(link)
    button = page.get_by_role("button", name="Sign in as determined")
    expect(button).to_be_focused()
    picture(page, pictures, "sign-in-by-link")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/ui/experiments$"))
    expect(page.get_by_role("button", name="Account: ")).to_have_text("determined")
    assert "ticket" not in page.url
    found.expected.append("status of 401")  # of what the page asked for while it left, and of the link's second use
    page.get_by_role("button", name="Account").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_label("Name")).to_be_visible()
    page.goto(link)
    expect(page.get_by_text("The ticket is not valid")).to_be_visible()


def test_sign_in_link_names_new_and_current_user(visitor: Visit, master: MasterProcess) -> None:
    """A colleague's link would lead into the colleague's account."""
    admin = Api(master.url, log_in(master, "admin"))
    ticket = admin.post("/api/x1/tickets", {"purpose": "page"}).json["ticket"]
    page = visitor.page
    page.goto(f"{master.url}/ui/sign-in#ticket={ticket}")
    expect(page.get_by_text("This link signs in admin.")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_text("You are signed in as determined, and would switch to admin.")
    visitor.page.reload()  # looking has not spent it
    expect(page.get_by_role("button", name="Sign in as admin")).to_be_visible()
    body = {"ticket": ticket, "look": True}
    assert admin.call("POST", "/session", body).status == 403  # not from a page
    page_header = {"X-Trainmaster": "page"}
    assert admin.call("POST", "/session", body, headers=page_header).json["user"]["username"] == "admin"
    for wrong in ("x", "", admin.post("/api/x1/tickets", {"purpose": "live"}).json["ticket"]):
        assert admin.call("POST", "/session", {**body, "ticket": wrong}, headers=page_header).status == 401


def test_sign_in_reports_wrong_password_and_enforces_wait(
    visit: Callable[..., Visit], master: MasterProcess, pictures: Path
) -> None:
    found = visit(master.url)
    found.expected += ["status of 401", "status of 429"]
    page = found.open("experiments")
    page.get_by_label("Name").fill("determined")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("The user name or the password is wrong.")
    picture(page, pictures, "sign-in-wrong")
    page.route(re.compile("/session$"), lambda route: route.fulfill(status=429, headers={"Retry-After": "7"}, json={}))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text(re.compile(r"Try again in \d s"))
    expect(page.get_by_role("button", name="Sign in")).to_be_disabled()


def test_ended_session_asks_for_password_in_dialog_over_page(
    visitor: Visit, master: MasterProcess, pictures: Path
) -> None:
    visitor.expected += ["status of 401", "net::ERR_FAILED"]
    page = visitor.open("experiments")
    expect(page.get_by_text(re.compile("experiments$"))).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    visitor.context.clear_cookies()
    page.get_by_role("button", name="mine", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("Your session has ended")).to_be_visible()
    picture(page, pictures, "session-ended")
    # Who uses the page is asked again when a master comes back: the page stays as it is behind the question.
    visitor.context.route(re.compile("/(api|session)"), lambda route: route.abort())
    dialog.get_by_label("Password").fill(master.password)
    dialog.get_by_role("button", name="Sign in").click()
    expect(dialog.get_by_role("alert")).to_have_text("The master does not answer.")
    visitor.context.unroute(re.compile("/(api|session)"))
    expect(page.locator(".banner")).to_have_count(0)
    expect(page.get_by_role("button", name="mine", exact=True, include_hidden=True)).to_have_count(1)
    dialog.get_by_role("button", name="Sign in").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="mine", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("gridcell", name="admin")).to_have_count(0)
    page.wait_for_url(re.compile("user%3Ame"))


def test_late_call_during_sign_out_opens_no_password_dialog(visitor: Visit) -> None:
    visitor.expected.append("status of 401")
    page = visitor.open("experiments")
    expect(page.get_by_text(re.compile("experiments$"))).to_be_visible()
    leaving: list[tuple[Route, APIResponse]] = []

    def hold(route: Route) -> None:
        if route.request.method == "DELETE":
            leaving.append((route, route.fetch()))
        else:
            route.continue_()

    page.route(re.compile("/session$"), hold)
    page.get_by_role("button", name="Account").click()
    page.get_by_role("menuitem", name="Sign out").click()
    until(page, lambda: bool(leaving))
    with page.expect_response(lambda answer: answer.status == 401):
        page.get_by_role("button", name="mine", exact=True).click()
    page.evaluate("() => new Promise(done => setTimeout(done, 100))")  # a dialog would be there
    expect(page.get_by_role("dialog")).to_have_count(0)
    route, answer = leaving[0]
    route.fulfill(response=answer)
    expect(page.get_by_label("Name")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_sign_out_of_ended_session_succeeds(visitor: Visit) -> None:
    visitor.expected.append("status of 401")
    page = visitor.open("experiments")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    visitor.context.clear_cookies()
    page.get_by_role("button", name="Account").click()
    page.get_by_role("menuitem", name="Sign out").click()
    expect(page.get_by_label("Name")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_banner_shows_how_long_master_has_not_answered(visitor: Visit, pictures: Path) -> None:
    visitor.expected.append("net::ERR_FAILED|status of 502")
    page = visitor.open("experiments")
    expect(page.get_by_text(re.compile("experiments$"))).to_be_visible()
    visitor.context.route(re.compile("/(api|session)"), lambda route: route.abort())
    page.get_by_role("button", name="mine", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The master has not answered for")
    picture(page, pictures, "master-away")
    visitor.context.unroute(re.compile("/(api|session)"))
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_text(re.compile("experiments$"))).to_be_visible()


def test_the_jump_box_leads_anywhere(visitor: Visit, full: MasterProcess, pictures: Path) -> None:
    page = visitor.open()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.keyboard.press("Control+k")
    box = page.get_by_role("dialog").get_by_role("combobox")
    expect(box).to_be_focused()
    page.keyboard.type("wind forecast 6")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("wind forecast 6")
    picture(page, pictures, "jump")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/experiments/\d+$"))
    page.keyboard.press("Control+k")
    expect(box).to_be_focused()
    page.keyboard.type("77")
    expect(page.get_by_role("dialog").get_by_role("option").first).to_contain_text("experiment 77")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/experiments/77$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog").get_by_text("filter the table")).to_be_visible()
    picture(page, pictures, "keys")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_theme_is_kept_and_comes_with_the_page(visitor: Visit) -> None:
    page = visitor.open()
    page.get_by_role("button", name="Theme").click()
    page.get_by_role("menuitemcheckbox", name="Dark").click()
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert dark == "rgb(20, 23, 27)"
    page.route("**/app/main.js", lambda route: route.abort())
    visitor.expected.append("net::ERR_FAILED")
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == dark


def test_outdated_page_reloads_after_upgrade(visitor: Visit) -> None:
    visitor.expected.append("status of 404")
    page = visitor.open()
    expect(page.get_by_role("heading", name="Home")).to_be_visible()
    page.route("**/app/pages/experiments.js", lambda route: route.fulfill(status=404), times=1)
    page.get_by_role("link", name="Experiments").first.click()
    expect(page.get_by_role("searchbox", name="Filter experiments")).to_be_visible()


def test_outdated_tab_reloads_after_upgrade(visitor: Visit, full: MasterProcess) -> None:
    visitor.expected.append("status of 404")
    page = visitor.open("experiments/77")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.route("**/app/pages/experiment_notes.js", lambda route: route.fulfill(status=404), times=1)
    page.get_by_role("link", name="Notes").click()
    expect(page.get_by_text("No notes yet")).to_be_visible()


def test_a_message_of_the_site_stands_above_every_page(
    visit: Callable[..., Visit], master: MasterProcess, pictures: Path
) -> None:
    admin = master.client("admin")
    admin.policies.set_message("Down on Friday <b>noon</b>", "2020-01-01T00:00:00Z")
    try:
        page = visit(master.url).open()
        expect(page.get_by_text("Down on Friday <b>noon</b>")).to_be_visible()
        picture(page, pictures, "message")
    finally:
        admin.policies.clear_message()


@pytest.mark.parametrize(("width", "theme"), [(360, "dark"), (1440, "light")])
def test_pages_are_for_everybody(
    visit: Callable[..., Visit], full: MasterProcess, axe: str, pictures: Path, theme: str, width: int
) -> None:
    found = visit(full.url, width=width, theme=theme)
    page = found.open()
    expect(page.get_by_label("Name")).to_be_visible()
    assert violations(page, axe) == []
    found.sign_in("determined", full.password)
    for path, there in (("", "h1"), ("experiments", "tbody .id"), ("experiments/77", "h1"), ("nothing", "h1")):
        found.open(path)
        expect(page.locator(there).first).to_be_visible()
        assert violations(page, axe) == [], path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.screenshot(path=pictures / f"nothing-{width}.png")
    found.open("experiments")
    expect(page.locator("tbody .id").first).to_be_visible()
    if width == 360:
        picture(page, pictures, "experiments-narrow")
        page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Columns").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert violations(page, axe) == [], "dialog"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Export").click()
    assert violations(page, axe) == [], "menu"
