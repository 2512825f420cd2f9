"""Measures the web page in a real Chromium, beside MLflow and Optuna Dashboard on the same search in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Browser, Page, Request
from playwright.sync_api import TimeoutError as PlaywrightTimeout
from sqlalchemy import text

from benchmarks import live_page
from benchmarks.measure import Deadline, Sample, Unavailable, figure, say
from benchmarks.peers import mlflow, optuna_dashboard
from benchmarks.searched import SearchedTrial, of_board
from tests.support.api.http import Api
from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import FOUND, Visit, chromium, visiting
from tests.support.webui.filled import SIZE, fill
from tests.support.webui.logs import make_log
from tests.support.webui.questions import QUESTIONS, Way
from tests.support.webui.searches import end_searches, make_searches
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

SECTION = "webui"
TRIALS = 1000
TURNS = 3  # first visits of each page; the best one counts, since other work on the machine only adds to it
QUIET = 1.0  # seconds without a request after which a page is whole
LONGEST = 120.0  # seconds for one page
CONFIG = "cluster_name: bench\nresource_manager: {type: local, slots: 4, poll_interval: 5}\n"
FRAMES = 120
LINES = 1_000_000  # of a log
JUMPS = 20

# Scrolls a table, a frame after the other, and returns how long each took in ms.
_SCROLL = """
async frames => {
    const table = document.querySelector(".table");
    const took = [];
    let last = await new Promise(requestAnimationFrame);
    for (let n = 1; n <= frames; n += 1) {
        table.scrollTop = n * 280;
        const now = await new Promise(requestAnimationFrame);
        took.push(now - last);
        last = now;
    }
    return took;
}
"""
Ready = Callable[[Page], object]


@dataclass(frozen=True)
class Cost:
    """What a first visit costs. `content`: seconds until the content is there, `scripts`: bytes of JavaScript over
    the wire until then. Until nothing more is asked for: bytes of `data`, requests, seconds of script, elements."""

    content: float
    scripts: int
    data: int
    requests: int
    script_time: float
    nodes: int

    def __str__(self) -> str:
        return (
            f"content after {figure(self.content)} s, {self.scripts / 1000:,.0f} kB of JavaScript until then; "
            f"{figure(self.script_time)} s of script, {self.nodes:,} elements, {self.data / 1000:,.0f} kB of data, "
            f"{self.requests} requests in all"
        )


def run(deadline: Deadline) -> None:
    if FOUND is None:
        raise Unavailable("there is no Chromium (Debian: apt install chromium)")
    with chromium() as browser:
        trials = _search(browser)
        _list(browser)
        _log_and_questions(browser)
    say(SECTION, "from a report in a job to the page", live_page.latencies(), "wanted: p95 1,000 ms")
    for line in live_page.tabs():
        say(SECTION, *line)
    with chromium() as browser:
        for beside in (_beside_optuna_dashboard, _beside_mlflow):
            if deadline.left <= 0:
                say(SECTION, "the rest", "not measured: the time of this section is over")
                return
            try:
                beside(browser, trials)
            except Unavailable as reason:
                say(SECTION, "beside ours", f"not measured: {reason}")


# -- ours ---------------------------------------------------------------------------------------------------------


def _search(browser: Browser) -> list[SearchedTrial]:
    """Measure the page of a search of a thousand trials. Returns these, for the peers."""
    with serving(CONFIG) as master:
        searches = make_searches(master, trials=TRIALS)
        name = f"experiments/{searches.large}"
        say(
            SECTION,
            f"a search of {TRIALS:,} trials, its curves",
            _cost(browser, f"{master.url}/ui/{name}", _drawn, master),
        )
        say(SECTION, "the same, its trials", _cost(browser, f"{master.url}/ui/{name}/trials", _listed, master))
        say(SECTION, "home, which has no chart", _cost(browser, f"{master.url}/ui/", _home, master))
        entered = {"username": "determined", "password": master.password}
        api = Api(master.url, str(Api(master.url).post("/api/v1/auth/login", entered).json["token"]))
        board = api.get(f"/api/x1/{name}/board?curves=true&x=epochs").json
        end_searches(master, searches)
    return of_board(board)


def _list(browser: Browser) -> None:
    with serving(CONFIG) as master:
        engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
        with engine.begin() as connection:
            fill(connection)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        engine.dispose()
        cost = _cost(browser, f"{master.url}/ui/experiments", _listed, master)
        say(SECTION, f"the list of {SIZE:,} experiments", cost, "wanted: content after 0.8 s")
        page = _signed_in(browser, master)
        page.goto(f"{master.url}/ui/experiments")
        _listed(page)
        frames = page.evaluate(_SCROLL, FRAMES)
        say(SECTION, "a frame while it is scrolled ten rows a frame", Sample(frames, tails=(0.95, 1.0)))
        page.context.close()


def _log_and_questions(browser: Browser) -> None:
    """Measure the log of a million lines, and the ten questions on a site that has it."""
    with serving(CONFIG) as master:
        searches = make_searches(master, trials=TRIALS)
        log = make_log(master, LINES)
        address = f"{master.url}/ui/trials/{log.trial}/log"
        say(SECTION, f"a log of {LINES:,} lines", _cost(browser, address, _read, master), "wanted: content after 0.5 s")
        with visiting(browser, master.url) as visit:
            visit.sign_in("determined", master.password)
            say(SECTION, "the same, a jump to anywhere", _jumps(visit, log.trial), "wanted: 300 ms")
        for question, allowed in QUESTIONS.items():
            with visiting(browser, master.url) as visit:
                visit.sign_in("determined", master.password)
                way = Way(visit, searches)
                way.home()
                way.seconds = 0.0
                question(way)
            what = question.__name__.replace("_", " ")
            say(SECTION, f"question: {what}", f"{way.clicks} clicks of {allowed}", f"{figure(way.seconds)} s at most")
        end_searches(master, searches)


def _jumps(visit: Visit, trial: int) -> Sample:
    """From a press on the strip beside a log to the lines that belong there."""
    page = visit.open(f"trials/{trial}/log")
    _read(page)
    strip = page.locator(".log-strip canvas").bounding_box()
    assert strip
    times = []
    for number in range(JUMPS):
        share = (number * 7919 % 97 + 1) / 99
        first = page.locator(".log-text").first.inner_text()
        begun = time.monotonic()
        page.mouse.click(strip["x"] + strip["width"] / 2, strip["y"] + share * strip["height"])
        page.wait_for_function(
            "before => { const line = document.querySelector('.log-text'); return line && line.innerText !== before; }",
            arg=first,
        )
        times.append((time.monotonic() - begun) * 1000)
    return Sample(times, tails=(0.95, 1.0))


def _read(page: Page) -> None:
    page.locator(".log-text").first.wait_for()


def _drawn(page: Page) -> None:
    page.locator(".uplot canvas").first.wait_for()


def _listed(page: Page) -> None:
    page.locator("tbody tr .state").first.wait_for()


def _home(page: Page) -> None:
    page.locator(".item-list").first.wait_for()


# -- peers --------------------------------------------------------------------------------------------------------


def _beside_optuna_dashboard(browser: Browser, trials: list[SearchedTrial]) -> None:
    with optuna_dashboard.serving(trials) as address:
        name = f"Optuna Dashboard {optuna_dashboard.VERSION}"
        plotted = lambda page: page.locator(".js-plotly-plot .main-svg").first.wait_for()  # noqa: E731
        say(SECTION, f"{name}, the page of the same {len(trials):,} trials", _cost(browser, address, plotted))


def _beside_mlflow(browser: Browser, trials: list[SearchedTrial]) -> None:
    with mlflow.serving() as server:
        address = server.fill(trials)
        name = f"MLflow {mlflow.VERSION}"
        listed = lambda page: page.get_by_text("trial ").first.wait_for()  # noqa: E731
        say(SECTION, f"{name}, the list of the same {len(trials):,} runs", _cost(browser, address, listed))
        drawn = lambda page: page.locator(".js-plotly-plot .main-svg").first.wait_for()  # noqa: E731
        charts = f"{address}?compareRunsMode=CHART"
        say(SECTION, f"{name}, their charts", _cost(browser, charts, drawn))


# -- a visit ------------------------------------------------------------------------------------------------------


def _cost(browser: Browser, address: str, ready: Ready, master: MasterProcess | None = None) -> Cost:
    """The best of some first visits."""
    return min((_visit(browser, address, ready, master) for _ in range(TURNS)), key=lambda cost: cost.content)


def _visit(browser: Browser, address: str, ready: Ready, master: MasterProcess | None) -> Cost:
    page = browser.new_page() if master is None else _signed_in(browser, master)
    page.set_default_timeout(LONGEST * 1000)
    finished: list[Request] = []
    page.on("requestfinished", lambda request: finished.append(request))
    performance = page.context.new_cdp_session(page)
    performance.send("Performance.enable")
    try:
        begun = time.monotonic()
        page.goto(address, wait_until="commit")
        ready(page)
        content, until_then = time.monotonic() - begun, len(finished)
        while True:
            known = len(finished)
            page.wait_for_timeout(QUIET * 1000)
            if len(finished) == known or time.monotonic() > begun + LONGEST:
                break
        found = {one["name"]: one["value"] for one in performance.send("Performance.getMetrics")["metrics"]}
        return Cost(
            content=content,
            scripts=sum(_size(one) for one in finished[:until_then] if one.resource_type == "script"),
            data=sum(_size(one) for one in finished if one.resource_type in ("fetch", "xhr", "other")),
            requests=len(finished),
            script_time=found["ScriptDuration"],
            nodes=int(found["Nodes"]),
        )
    except PlaywrightTimeout as error:
        raise Unavailable(f"{address} did not show its content: {str(error).splitlines()[0]}") from None
    finally:
        page.context.close()


def _size(request: Request) -> int:
    """Bytes of an answer's body, as they came over the wire."""
    return request.sizes()["responseBodySize"]


def _signed_in(browser: Browser, master: MasterProcess) -> Page:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    answer = page.context.request.post(
        f"{master.url}/session",
        data={"username": "determined", "password": master.password},
        headers={"X-Trainmaster": "page"},
    )
    assert answer.ok, answer.text()
    return page
