"""What people may do, and what two of them do at once: a viewer sees no action that would be refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.api.http import Api
from tests.support.api.people import PASSWORD, enter, give, person
from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import Visit
from tests.support.webui.searches import Searches, end_searches, make_searches

pytestmark = pytest.mark.browser

CONFIG = """
cluster_name: kestrel
resource_manager: {type: local, slots: 4, poll_interval: 5}
security: {authz: {type: rbac}}
"""
VIEWER, EDITOR = 4, 5
# Words of buttons and menu items that change something; the others read, show, mark, sort, save a file or copy.
CHANGES = re.compile(
    r"^(activate|pause|cancel|kill|archive|unarchive|delete|edit|move|resources|priority|label|fork|continue|go on|"
    r"rerun|retry|register|save view|write notes|tensorboard)\b",
    re.IGNORECASE,
)
MENUS = ("Actions", "Actions for marked experiments", re.compile("^Actions for experiment"))


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[MasterProcess, Searches]]:
    with serving(CONFIG) as process:
        chief = Api(process.url, enter(process.url, "admin", process.password).json["token"])
        (user,) = chief.get("/api/v1/users", name="determined").json["users"]
        give(chief, EDITOR, user["id"])
        found = make_searches(process, trials=40)
        yield process, found
        end_searches(process, found)


def offered(page: Page) -> set[str]:
    """The actions that change something, of buttons and in menus."""
    found = set(page.get_by_role("main").get_by_role("button").all_inner_texts())
    for name in MENUS:
        for button in page.get_by_role("button", name=name).all():
            button.click()
            found |= {text.splitlines()[0] for text in page.get_by_role("menuitem").all_inner_texts() if text}
            page.keyboard.press("Escape")
    return {text for text in found if CHANGES.match(text)}


def places(searches: Searches, trial: int) -> list[tuple[str, str]]:
    tabs = ("", "/trials", "/story", "/cost", "/config", "/code", "/checkpoints", "/notes")
    trial_tabs = ("", "/attempts", "/checkpoints", "/environment")
    return [
        ("", "h1"),
        ("experiments", "tbody .id"),
        *((f"experiments/{searches.single}{tab}", ".tab > *") for tab in tabs),
        *((f"trials/{trial}{tab}", ".tab > *") for tab in trial_tabs),
    ]


def test_a_viewer_sees_no_action_and_an_owner_does(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]
) -> None:
    master, searches = site
    chief = Api(master.url, enter(master.url, "admin", master.password).json["token"])
    ada = person(chief)
    give(chief, VIEWER, ada.id)
    trial = chief.get(f"/api/x1/experiments/{searches.single}/board").json["rows"][0][0]
    seen: dict[str, dict[str, set[str]]] = {"viewer": {}, "owner": {}}
    for who, name, password in (("viewer", ada.name, PASSWORD), ("owner", "determined", master.password)):
        visitor = visit(master.url)  # an answer with 403 is an error in its console, which fails the test
        visitor.sign_in(name, password)
        for path, there in places(searches, trial):
            page = visitor.open(path)
            expect(page.locator(there).first).to_be_attached()
            if path == "experiments":
                page.get_by_role("button", name="Mark all").click()
            seen[who][path] = offered(page)
    assert {path: actions for path, actions in seen["viewer"].items() if actions} == {}
    wanted = ("", "experiments", f"experiments/{searches.single}", f"trials/{trial}")
    assert all(seen["owner"][path] for path in wanted), seen["owner"]


def test_user_without_workspace_sees_error_and_no_name(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]
) -> None:
    master, searches = site
    chief = Api(master.url, enter(master.url, "admin", master.password).json["token"])
    eve = person(chief)
    visitor = visit(master.url)
    visitor.sign_in(eve.name, PASSWORD)
    visitor.expected += ["status of 404", "status of 403"]
    page = visitor.open(f"experiments/{searches.single}")
    expect(page.get_by_role("alert")).to_contain_text("none of your roles gives")
    page = visitor.open("experiments")
    expect(page.get_by_role("main")).not_to_contain_text("one long training")


def test_edit_of_notes_changed_in_another_tab_shows_alert(
    visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]
) -> None:
    master, searches = site
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    first = visitor.open(f"experiments/{searches.empty}/notes")
    second = visitor.context.new_page()
    second.goto(first.url)
    for page in (first, second):
        page.get_by_role("button", name=re.compile("^(Write notes|Edit)$")).click()
        page.get_by_role("textbox", name=re.compile("^Notes")).fill("mine")
    second.get_by_role("textbox", name=re.compile("^Notes")).fill("# theirs")
    second.get_by_role("button", name="Save").click()
    expect(second.get_by_role("heading", name="theirs")).to_be_visible()
    expect(first.get_by_role("alert")).to_contain_text("Somebody else has changed these notes")
    expect(first.get_by_role("heading", name="theirs")).to_be_visible()
    first.get_by_role("button", name="Save").click()
    expect(first.get_by_text("mine", exact=True)).to_be_visible()


def test_kill_from_two_tabs_informs_both(visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]) -> None:
    master, searches = site
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    pages = [visitor.open(f"experiments/{searches.empty}"), visitor.context.new_page()]
    pages[1].goto(pages[0].url)
    for page in pages:
        page.get_by_role("button", name="Actions").click()
        page.get_by_role("menuitem", name="Kill").click()
        expect(page.get_by_role("dialog")).to_be_visible()
    for page in pages:
        page.get_by_role("dialog").get_by_role("button", name="Kill").click()
        expect(page.get_by_role("status").get_by_text(re.compile("Kill requested|has ended"))).to_be_visible()
    for page in pages:
        expect(page.locator(".detail-head .state")).to_contain_text("canceled")
