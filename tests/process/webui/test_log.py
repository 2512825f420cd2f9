"""The page of a log: any part of it at once, and nothing in it that does harm."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Page, Route, WebSocketRoute, expect

from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import Visit, picture, until, violations
from tests.support.webui.logs import ERROR_EVERY, FIRST_ERROR, FilledLog, end_log, make_log
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.logs.log_store import NewLogLine
from trainmaster.master.services.store import Store

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


HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "invoice\u202egpj.exe and \u0007 bell",
    "\x1b]8;;http://evil.example\x07click here\x1b]8;;\x07 \x1b[2J\x1b[1;31mred\x1b[0m \x1b[38;5;208morange\x1b[0m",
    "downloading 10%\rdownloading 100%",
    "two\nlines\tand a tab",
    "x" * 1_000_000,
)


@pytest.fixture(scope="module")
def hostile(site: tuple[MasterProcess, FilledLog]) -> Iterator[FilledLog]:
    """Another trial, which still runs and has written what nobody should."""
    found = make_log(site[0], 20, failed=False)
    write(site[0], found, HOSTILE)
    yield found
    end_log(site[0], found)


def write(master: MasterProcess, log: FilledLog, lines: Sequence[str]) -> None:
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with Store(engine).transaction() as session:
        log_store.append(session, log.task, None, [NewLogLine(line) for line in lines])
    engine.dispose()


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


def opened(visitor: Visit, log: FilledLog, query: str = "") -> Page:
    page = visitor.open(f"trials/{log.trial}/log{query}")
    expect(page.locator(".log-text").first).to_be_visible()
    return page


def test_matches_are_counted_and_gone_through(visitor: Visit, log: FilledLog, pictures: Path) -> None:
    page = opened(visitor, log)
    page.keyboard.press("/")
    page.keyboard.type("NEEDLE")
    expect(page.locator(".log-count")).to_have_text("1 of 2")
    expect(page.locator(".log-line.chosen mark")).to_have_text("needle")
    picture(page, pictures, "log-search")
    page.keyboard.press("Enter")
    expect(page.locator(".log-count")).to_have_text("2 of 2")
    expect(page.locator(".log-line.chosen")).to_contain_text(f"line {FIRST_ERROR + ERROR_EVERY} ")
    page.keyboard.press("Enter")  # and again from the beginning
    expect(page.locator(".log-line.chosen")).to_contain_text(f"line {FIRST_ERROR} ")
    page.keyboard.press("Shift+Enter")
    expect(page.locator(".log-count")).to_have_text("2 of 2")
    page.get_by_role("button", name="Regular expression").click()
    page.get_by_role("searchbox", name="Search the log").fill("need.e: CUDA")
    expect(page.locator(".log-count")).to_have_text("1 of 2")
    page.get_by_role("searchbox", name="Search the log").fill("(")
    visitor.expected = ["400"]
    expect(page.locator(".log-view [role=alert]")).to_contain_text("'(' is not a regular expression")


def test_a_view_of_a_log_is_an_address(visitor: Visit, log: FilledLog) -> None:
    page = opened(visitor, log, "?level=warning&rank=1,5")
    expect(page.locator(".log-foot")).to_contain_text("26 lines")
    assert all(re.search("the loader is slow|needle", text) for text in shown(page))
    page = opened(visitor, log, "?node=node1&q=epoch 50 &only=1")
    expect(page.locator(".log-foot")).to_contain_text("250 lines")
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator(".log-foot")).to_contain_text("998 lines")
    page = opened(visitor, log, "?q=line 5000 &time=start")
    line = page.locator(".log-line.chosen")
    expect(line).to_contain_text("line 5000 ")
    expect(line.locator(".log-time")).to_contain_text("+0:00:49.9")
    before, address = shown(page), page.url
    page.goto(address)
    expect(page.locator(".log-line.chosen")).to_contain_text("line 5000 ")
    assert shown(page) == before


def test_scroll_position_is_kept_in_address(visitor: Visit, log: FilledLog) -> None:
    page = opened(visitor, log)
    expect(page.get_by_text("End of log")).to_be_visible()
    page.locator(".log-scroller").hover()
    page.mouse.wheel(0, -3000)
    expect(page).to_have_url(re.compile(r"\?top=\d+$"))
    expect(page.get_by_role("button", name="To the end ↓")).to_be_visible()
    first = shown(page)[1]
    page.goto(page.url)
    expect(page.locator(".log-text").first).to_be_visible()
    expect(page.locator(".log-text").filter(has_text=first)).to_be_visible()
    page.get_by_role("button", name="To the end ↓").click()
    expect(page.locator(".log-line").last).to_contain_text(f"line {LINES} ")
    expect(page).to_have_url(re.compile(r"/log$"))


def test_the_strip_leads_anywhere(visitor: Visit, log: FilledLog) -> None:
    page = opened(visitor, log)
    strip = page.get_by_role("img", name="In the log: 2 errors, 100 warnings")
    box = strip.bounding_box()
    assert box
    strip.click(position={"x": 10, "y": box["height"] / 2})
    expect(page.locator(".log-text").filter(has_text=re.compile(r"line 50\d\d\d "))).not_to_have_count(0)
    page.get_by_role("button", name="Save or copy").click()
    page.get_by_role("menuitem", name="Errors and matches as a table").click()
    rows = page.get_by_role("dialog").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("1")  # a warning, an error or both
    leads = rows.nth(50).get_by_role("button")
    number = leads.inner_text().replace("\u2009", "")
    leads.click()
    expect(page.locator(".log-number").get_by_text(number, exact=True)).to_be_visible()


def test_ranks_stand_side_by_side(visitor: Visit, log: FilledLog, pictures: Path, axe: str) -> None:
    page = opened(visitor, log, "?rank=0,3,5&side=1")
    expect(page.locator(".log-heads")).to_contain_text("rank 0rank 3rank 5")
    expect(page.locator(".log-foot")).to_contain_text("37\u2009500 lines")
    columns = {round(box["x"]) for one in page.locator(".log-text").all()[:12] for box in [one.bounding_box()] if box}
    assert len(columns) == 3
    picture(page, pictures, "log-side-by-side")
    assert violations(page, axe) == []


def test_the_keyboard_alone_reads_a_log(visitor: Visit, log: FilledLog) -> None:
    page = opened(visitor, log)
    page.locator(".log-scroller").focus()
    page.keyboard.press("Home")
    expect(page.locator(".log-text").first).to_contain_text("line 1 ")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".log-line.chosen")).to_contain_text("line 2 ")
    page.keyboard.press("k")
    expect(page.locator(".log-line.chosen")).to_contain_text("line 1 ")
    page.keyboard.press("Escape")
    expect(page.locator(".log-line.chosen")).to_have_count(0)
    page.keyboard.press("w")
    expect(page.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("End")
    expect(page.locator(".log-line").last).to_contain_text(f"line {LINES} ")


def test_a_log_fits_a_telephone(
    visit: Callable[..., Visit], site: tuple[MasterProcess, FilledLog], pictures: Path, axe: str
) -> None:
    visitor = visit(site[0].url, width=360, height=740)
    visitor.sign_in("determined", site[0].password)
    page = opened(visitor, site[1])
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    picture(page, pictures, "log-narrow")
    assert violations(page, axe) == []


def test_the_lines_are_saved_as_text(visitor: Visit, log: FilledLog) -> None:
    page = opened(visitor, log, "?level=error")
    page.get_by_role("button", name="Save or copy").click()
    with page.expect_download() as saved:
        page.get_by_role("menuitem", name="Lines as text").click()
    lines = saved.value.path().read_text().splitlines()
    assert [line.partition("|| ")[2] for line in lines] == [
        f"ERROR: [rank={number % 8}] line {number} needle: CUDA error: out of memory"
        for number in (FIRST_ERROR, FIRST_ERROR + ERROR_EVERY)
    ]


def test_hostile_log_text_is_shown_harmlessly(visitor: Visit, hostile: FilledLog, pictures: Path) -> None:
    page = opened(visitor, hostile)
    texts = page.locator(".log-text")
    expect(texts.filter(has_text="<script>")).to_have_text("<img src=x onerror=alert(1)><script>alert(2)</script>")
    expect(texts.filter(has_text="invoice")).to_have_text("invoice‹202E›gpj.exe and ‹0007› bell")
    coloured = texts.filter(has_text="click here")
    expect(coloured).to_have_text("click here red orange")
    expect(coloured.locator("a")).to_have_count(0)
    expect(coloured.locator(".ansi-1.ansi-bold")).to_have_text("red")
    assert coloured.locator(".ansi-208").evaluate("one => getComputedStyle(one).color") == "rgb(255, 135, 0)"
    expect(texts.filter(has_text="downloading")).to_have_text("downloading 100%")
    expect(texts.filter(has_text="a tab")).to_have_text("two‹000A›lines    and a tab")
    long = texts.filter(has_text="xxxxx")
    assert len(long.inner_text()) < 4100
    picture(page, pictures, "log-hostile")
    page.keyboard.press("w")
    expect(page.locator(".log-scroller.wraps")).to_be_visible()
    picture(page, pictures, "log-wrapped")
    page.locator(".log-scroller").hover()
    page.mouse.wheel(0, -150)
    page.mouse.wheel(0, -150)
    expect(texts.first).to_contain_text("line 1 ")  # lines are higher, and all can be reached
    page.locator(".log-scroller").focus()
    page.keyboard.press("End")
    long.get_by_role("button", name=re.compile("show all")).click()
    expect(long).to_contain_text("[cut: the line had 1000000 characters]")


@pytest.fixture
def live(site: tuple[MasterProcess, FilledLog]) -> Iterator[FilledLog]:
    """A log of 300 lines, of a trial that still runs."""
    found = make_log(site[0], 300, failed=False)
    yield found
    end_log(site[0], found)


def test_new_lines_are_followed_unless_reader_has_scrolled_up(
    visitor: Visit, site: tuple[MasterProcess, FilledLog], live: FilledLog
) -> None:
    master, _ = site
    page = opened(visitor, live)
    expect(page.get_by_text("Following")).to_be_visible()
    write(master, live, ["one more"])
    expect(page.locator(".log-line").last).to_contain_text("one more")
    page.locator(".log-scroller").focus()
    page.keyboard.press("Home")
    expect(page.locator(".log-text").first).to_contain_text("line 1 ")
    write(master, live, [f"new {number}" for number in range(1234)])
    wait = page.get_by_role("button", name="1\u2009234 new lines ↓")
    expect(wait).to_be_visible()
    expect(page.locator(".log-text").first).to_contain_text("line 1 ")  # nothing has moved
    expect(page.locator(".log-foot")).to_contain_text("301 lines")
    wait.click()
    expect(page.locator(".log-line").last).to_contain_text("new 1233")
    write(master, live, [f"fast {number}" for number in range(5000)])
    expect(page.locator(".log-line").last).to_contain_text("fast 4999")
    page.get_by_role("button", name="4\u2009800 lines skipped, show").click()
    expect(page.locator(".log-text").filter(has_text=re.compile(r"^fast 0$"))).to_be_visible()


def test_lines_that_come_while_others_are_read_are_read_too(
    visitor: Visit, site: tuple[MasterProcess, FilledLog], live: FilledLog
) -> None:
    """The hint of the new line comes before the answer to the first reading, which has not got it."""
    page, held, hints = visitor.page, list[tuple[Route, APIResponse]](), list[str]()
    page.route(
        re.compile(r"/log\?"), lambda route: held.append((route, route.fetch())) if not held else route.continue_()
    )
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: hints.append(str(frame))))
    page.goto(f"{visitor.url}/ui/trials/{live.trial}/log")
    until(page, lambda: bool(held) and any(f"log:{live.task}" in one for one in hints))
    hints.clear()
    write(site[0], live, ["one more"])
    until(page, lambda: any(f"log:{live.task}" in one for one in hints))
    route, answer = held[0]
    route.fulfill(response=answer)
    expect(page.locator(".log-line").last).to_contain_text("one more")


def test_log_known_before_first_message_is_followed(
    visitor: Visit, site: tuple[MasterProcess, FilledLog], live: FilledLog
) -> None:
    """The page of a trial has said by then what it follows; it hears of the trial's log later."""
    page, said, boards = visitor.page, list[str](), list[Route]()
    held, free = list[Callable[[], None]](), threading.Event()

    def between(socket: WebSocketRoute) -> None:
        master = socket.connect_to_server()

        def to_master(message: str | bytes) -> None:
            said.append(str(message))
            master.send(message)

        def to_page(message: str | bytes) -> None:
            if free.is_set():
                socket.send(message)
            else:
                held.append(partial(socket.send, message))

        socket.on_message(to_master)
        master.on_message(to_page)

    page.route_web_socket(re.compile("/live$"), between)
    page.route(re.compile("/board$"), lambda route: boards.append(route), times=1)
    page.goto(f"{visitor.url}/ui/trials/{live.trial}/log")
    until(page, lambda: bool(said and held and boards))
    assert f"log:{live.task}" not in said[0]
    boards[0].continue_()
    until(page, lambda: f"log:{live.task}" in said[-1])
    free.set()
    for send in held:
        send()
    expect(page.get_by_text("Following")).to_be_visible()
    write(site[0], live, ["one more"])
    expect(page.locator(".log-line").last).to_contain_text("one more")


def test_log_loads_when_unreachable_master_returns(visitor: Visit, log: FilledLog) -> None:
    page, away = visitor.page, re.compile(r"/log\?|/info$")
    visitor.expected.append("net::ERR_FAILED")
    page.route(away, lambda route: route.abort())
    page.goto(f"{visitor.url}/ui/trials/{log.trial}/log")
    sentence = page.locator(".log-view [role=alert]")
    expect(sentence).to_have_text("The master does not answer.")
    page.unroute(away)
    expect(page.locator(".log-line").last).to_contain_text(f"line {LINES} ")
    expect(sentence).to_have_count(0)


def test_a_task_of_its_own_has_a_log(visit: Callable[..., Visit], site: tuple[MasterProcess, FilledLog]) -> None:
    master = site[0]
    task = master.client().tasks.launch("command", {"entrypoint": ["true"], "description": "say hello"})
    visitor = visit(master.url)
    visitor.sign_in("determined", master.password)
    page = visitor.open(f"tasks/{task['id']}/log")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Log of command")
    expect(page.locator(".log-text").first).to_be_visible()
    visitor.expected = ["404"]
    page = visitor.open("tasks/none/log")
    expect(page.get_by_role("alert")).to_contain_text("There is no task none")
