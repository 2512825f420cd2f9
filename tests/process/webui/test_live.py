"""Pages while something happens: real searches on this machine, masters that go and come back, connections that are
cut, refused or not there, and tabs that nobody sees."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import text

from tests.support.master import (
    MasterProcess,
    files,
    make_folder,
    remove_folder,
    serving,
    wait_ended,
    wait_for,
)
from tests.support.postgres import Postgres
from tests.support.trainings import COUNTING, asha, experiment
from tests.support.webui.chromium import Visit, picture, violations, watching
from tests.support.webui.prefix import Proxy, proxied
from trainmaster.master import authority
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

pytestmark = pytest.mark.browser

CONFIG = """
cluster_name: kestrel
resource_manager: {type: local, slots: 4, poll_interval: 0.5}
"""
TWO = {"name": "random", "metric": "error", "max_trials": 2}
VALUE = {"type": "double", "minval": 1, "maxval": 5}
SAME = "window.stays === true"  # whether the page is still the one that was opened
Start = Callable[..., int]


@pytest.fixture(scope="module")
def site() -> Iterator[MasterProcess]:
    with serving(CONFIG) as process:
        engine = make_engine(EmbeddedServer(process.data).url, pool_size=1)
        with engine.begin() as connection:  # pages ask for what came since, less an overlap of ids
            connection.execute(text("SELECT setval(pg_get_serial_sequence('metrics', 'id'), 5000)"))
        engine.dispose()
        yield process


@pytest.fixture
def proxy(site: MasterProcess) -> Iterator[Proxy]:
    with proxied(site.url) as found:
        yield found


@pytest.fixture
def visitor(visit: Callable[..., Visit], site: MasterProcess) -> Visit:
    found = visit(site.url)
    found.sign_in("determined", site.password)
    return found


@pytest.fixture
def far(proxy: Proxy, visit: Callable[..., Visit], site: MasterProcess) -> Visit:
    """A visitor behind the proxy, who leaves before it goes."""
    found = visit(proxy.url)
    found.sign_in("determined", site.password)
    return found


@pytest.fixture
def start(site: MasterProcess) -> Iterator[Start]:
    """Starts searches; they are killed after the test."""
    client = site.client()
    made: list[int] = []

    def make(searcher: dict[str, Any] | None = None, **hparams: Any) -> int:
        given = {"value": VALUE, "epochs": 8, "pause": 0.2, **hparams}
        made.append(client.create_experiment(experiment(searcher or TWO, **given), files(train__py=COUNTING)).id)
        return made[-1]

    yield make
    for number in made:
        if not client.experiment(number).ended_for_good:
            client.kill(number)
            wait_ended(client, number)


def opened(visit: Visit, path: str) -> Page:
    """The page there, with a mark that is lost if it is loaded again."""
    page = visit.open(path)
    page.evaluate("window.stays = true")
    return page


def says(page: Page, words: str | re.Pattern[str]) -> None:
    """How new it says that it is."""
    expect(page.locator(".freshness")).to_have_text(words)


def _hide(page: Page, *, hidden: bool) -> None:
    """A browser without a window shows every tab: so the page is told otherwise."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def has_ended(page: Page) -> None:
    expect(page.locator(".detail-title")).to_contain_text("completed", timeout=90_000)


def held(page: Page, folder: Path) -> dict[str, dict[float, float]]:
    """The points of each curve that the page has."""
    page.get_by_role("button", name="Save").first.click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="JSON").click()
    file = folder / "held.json"
    download.value.save_as(file)
    rows = json.loads(file.read_text())
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        (_, place), *values = row.items()
        for name, value in values:
            if value is not None:
                found.setdefault(re.sub(r", the best$", "", name), {})[place] = value
    return found


def stored(visit: Visit, number: int) -> dict[str, dict[float, float]]:
    """The same as the API has them."""
    answer = visit.context.request.get(f"{visit.url}/api/x1/experiments/{number}/curves?points=1000")
    assert answer.ok, answer.text()
    grid = answer.json()
    return {
        f"trial {trial}": {x: y for x, y in zip(grid["x"], row, strict=False) if y is not None}
        for trial, row in zip(grid["trials"], grid["y"], strict=True)
    }


def loses_nothing(visit: Visit, page: Page, number: int, folder: Path) -> None:
    """The page holds every point that the master has, and has not been loaded again."""
    has_ended(page)
    truth = stored(visit, number)
    assert sum(len(curve) for curve in truth.values()) > 0
    wait_for(lambda: held(page, folder) == truth, "all points on the page")
    assert page.evaluate(SAME)


def test_a_search_grows_on_the_page_and_stopped_trials_fade(
    visitor: Visit, start: Start, tmp_path: Path, pictures: Path, axe: str
) -> None:
    number = start(asha(12, 8), pause=0.3)
    page = opened(visitor, f"experiments/{number}")
    legend = page.locator(".legend:not([aria-hidden])")
    says(page, "live")
    expect(legend).to_contain_text("running", timeout=60_000)
    picture(page, pictures, "live-search")
    assert violations(page, axe) == []
    grown = sum(len(curve) for curve in held(page, tmp_path).values())
    expect(legend).to_contain_text("stopped by the search", timeout=60_000)
    expect(page.locator(".detail-title")).to_contain_text("running")
    loses_nothing(visitor, page, number, tmp_path)
    assert sum(len(curve) for curve in held(page, tmp_path).values()) > grown
    expect(legend).not_to_contain_text("running")
    assert len([one for one in visitor.requests if one.endswith(f"/ui/experiments/{number}")]) == 1


def test_a_table_stays_where_its_reader_is(visitor: Visit, start: Start) -> None:
    number = start(asha(12, 16), pause=0.3)
    visitor.page.set_viewport_size({"width": 1440, "height": 420})
    page = opened(visitor, f"experiments/{number}/trials?sort=id")
    says(page, "live")
    expect(page.locator("tbody tr:not(.spacer)")).to_have_count(12, timeout=60_000)
    page.get_by_role("grid").focus()
    page.keyboard.press("End")
    expect(page.locator("tr.current")).to_be_visible()
    where = page.evaluate("document.querySelector('.table').scrollTop")
    assert where > 0
    before = page.locator(".detail-facts").inner_text()
    expect(page.locator(".detail-facts")).not_to_have_text(before)
    expect(page.locator("tr.current")).to_be_visible()
    assert page.evaluate("document.querySelector('.table').scrollTop") == where


def test_home_list_and_trial_pages_update_live(visitor: Visit, start: Start, site: MasterProcess) -> None:
    home, listed, trial = visitor.page, visitor.context.new_page(), visitor.context.new_page()
    home.goto(f"{visitor.url}/ui/")
    listed.goto(f"{visitor.url}/ui/experiments")
    says(home, "live")
    says(listed, "live")
    number = start(epochs=40)
    expect(home.get_by_role("heading", name=re.compile("^Running"))).to_contain_text("1")
    expect(listed.get_by_role("button", name="List changed: refresh")).to_be_visible()
    first, _ = wait_for(lambda: site.client().trials(number), "the trials")
    trial.goto(f"{visitor.url}/ui/trials/{first.id}")
    says(trial, "live")
    expect(trial.locator(".log-tail")).to_contain_text("starting after epoch 0")
    expect(trial.locator(".detail-facts")).to_contain_text(re.compile("[1-9]\\d? batch"))
    site.client().cancel(number)
    expect(trial.locator(".detail-title")).to_contain_text("canceled")
    expect(home.get_by_role("heading", name="Recently ended")).to_be_visible()


def test_a_master_that_is_killed_and_comes_back(
    visitor: Visit, start: Start, site: MasterProcess, tmp_path: Path, pictures: Path, axe: str
) -> None:
    visitor.expected += ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]
    visitor.expected.append("load preload assets")  # by axe, while the master is away
    number = start(epochs=50)
    page = opened(visitor, f"experiments/{number}")
    says(page, "live")
    expect(page.locator(".detail-facts")).to_contain_text("best error")
    site.kill()
    says(page, re.compile(r"stale since \d\d:\d\d"))
    expect(page.locator(".banner")).to_contain_text("The master has not answered for")
    picture(page, pictures, "live-older")
    assert violations(page, axe) == []
    site.start()
    says(page, "live")
    expect(page.get_by_role("alert")).to_have_count(0)
    loses_nothing(visitor, page, number, tmp_path)


@pytest.fixture
def apart() -> Iterator[tuple[MasterProcess, Postgres]]:
    """A master whose database can be stopped."""
    folder = make_folder()
    postgres = Postgres(folder)
    postgres.start()
    with serving(CONFIG + postgres.configuration()) as process:
        yield process, postgres
    postgres.stop()
    remove_folder(folder)


def test_page_reports_unreachable_database_and_recovers(
    apart: tuple[MasterProcess, Postgres], visit: Callable[..., Visit], pictures: Path, axe: str
) -> None:
    process, postgres = apart
    client = process.client()
    number = client.create_experiment(experiment(TWO, value=VALUE), files(train__py=COUNTING)).id
    wait_ended(client, number)
    trial = client.trials(number)[0].id
    visitor = visit(process.url)
    visitor.expected += ["status of 503", "load preload assets"]  # these by axe, while the database is away
    visitor.expected.append("was preloaded using link preload but not used")  # the shell's first call, refused too
    visitor.sign_in("determined", process.password)
    page = opened(visitor, f"experiments/{number}")
    has_ended(page)
    says(page, "live")
    postgres.stop()
    # A page that asks for nothing hears it with the next sign of life of its connection, which comes every 20 s.
    expect(page.locator(".banner")).to_contain_text("The database has not answered for", timeout=45_000)
    says(page, re.compile(r"stale since \d\d:\d\d"))
    picture(page, pictures, "live-no-database")
    first = visitor.context.new_page()  # knows nothing yet
    first.goto(f"{process.url}/ui/trials/{trial}/log")
    expect(first.locator(".banner")).to_have_text(
        re.compile(r"^The database has not answered for .+\. The page retries automatically\. Jobs continue to run\.$")
    )
    picture(first, pictures, "live-no-database-first")
    assert violations(first, axe) == []
    postgres.start()
    for one in (page, first):
        expect(one.get_by_role("alert")).to_have_count(0)
    says(page, "live")
    expect(first.locator(".log-scroller")).to_contain_text("starting after epoch 0")
    assert page.evaluate(SAME)


def test_a_connection_that_is_cut_loses_no_point(
    far: Visit, proxy: Proxy, start: Start, tmp_path: Path, pictures: Path
) -> None:
    far.expected.append("WebSocket connection to .* closed before receiving a handshake")
    number = start(asha(6, 16))
    page = opened(far, f"experiments/{number}")
    for times in (1, 2, 3):
        says(page, "live")
        wait_for(lambda so_far=times: proxy.opened >= so_far, "another connection")  # type: ignore[misc]
        proxy.cut()
    says(page, "live")
    loses_nothing(far, page, number, tmp_path)


def test_where_no_connection_passes_the_page_asks(
    far: Visit, proxy: Proxy, start: Start, tmp_path: Path, pictures: Path
) -> None:
    far.expected.append("WebSocket connection to")
    proxy.sockets = False
    number = start(epochs=30)
    page = opened(far, f"experiments/{number}")
    says(page, "every 5 s")
    picture(page, pictures, "live-asking")
    loses_nothing(far, page, number, tmp_path)
    assert proxy.opened == 0


def test_an_older_master_is_asked(visitor: Visit, start: Start, tmp_path: Path) -> None:
    """One that gives no tickets for this."""
    visitor.expected.append("status of 400")
    visitor.context.route("**/api/x1/tickets", lambda route: route.fulfill(status=400, json={}))
    number = start()
    page = opened(visitor, f"experiments/{number}")
    says(page, "every 5 s")
    loses_nothing(visitor, page, number, tmp_path)


def test_hidden_tab_disconnects_and_catches_up_when_shown(
    proxy: Proxy, first_visit: Callable[..., Visit], start: Start, site: MasterProcess, tmp_path: Path
) -> None:
    far = first_visit(proxy.url)
    far.sign_in("determined", site.password)
    number = start(epochs=30)
    far.page.clock.install()  # for the whole context
    page = opened(far, f"experiments/{number}")
    says(page, "live")
    expect(page.locator(".detail-facts")).to_contain_text("best error")
    _hide(page, hidden=True)
    page.clock.fast_forward(61_000)
    wait_for(lambda: proxy.passing == 0, "the end of the connection")
    asked = len(far.requests)
    wait_ended(site.client(), number)
    assert far.requests[asked:] == []
    expect(page.locator(".detail-title")).to_contain_text("running")
    _hide(page, hidden=False)
    says(page, "live")
    loses_nothing(far, page, number, tmp_path)
    assert proxy.opened == 2


@pytest.fixture
def secure() -> Iterator[MasterProcess]:
    """A master that speaks TLS alone."""
    folder = make_folder()
    authority.init(folder / "tls", ["127.0.0.1"])
    names = {"cert": authority.CERT, "key": authority.KEY, "ca": authority.CA}
    section = json.dumps({key: str(folder / "tls" / name) for key, name in names.items()})
    process = MasterProcess(
        folder, f"{CONFIG}\nsecurity: {{tls: {section}}}", certificate=folder / "tls" / authority.CA
    )
    yield process.start()
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


def test_a_page_over_tls_is_live_too(browser: Browser, secure: MasterProcess) -> None:
    context = browser.new_context(ignore_https_errors=True)  # Chromium has its own list of authorities
    sockets: list[str] = []
    context.on("page", lambda page: page.on("websocket", lambda socket: sockets.append(socket.url)))
    with watching(context, secure.url) as visit:
        visit.sign_in("determined", secure.password)
        page = visit.open("")
        says(page, "live")
        client = secure.client()
        made = client.create_experiment(experiment(TWO, value=VALUE, epochs=40, pause=0.2), files(train__py=COUNTING))
        expect(page.get_by_role("heading", name=re.compile("^Running"))).to_contain_text("1")
        client.kill(made.id)
        wait_ended(client, made.id)
    assert sockets == [f"wss{secure.url[5:]}/api/x1/live"]
    context.close()
