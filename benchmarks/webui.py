"""Measures the web page in a real Chromium, beside MLflow and Optuna Dashboard on the same runs in the same run.

Each view is opened twice in a fresh context, with nothing cached; the better time counts. Bytes of JavaScript are those
on the wire. Script is the processor time that Chromium spends in it, from the address to the content.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from playwright.sync_api import Browser, BrowserContext, Page
from sqlalchemy import text

from benchmarks.ingest import reports_a_second
from benchmarks.measure import Deadline, Unavailable, figure, say
from benchmarks.peers import mlflow, optuna_dashboard
from benchmarks.webui_data import Run, runs_of
from tests.support.master import MasterProcess, files, make_folder, remove_folder
from tests.support.webui import filled, filled_search
from tests.support.webui.chromium import FOUND, chromium
from tests.support.webui.long_log import fill_log
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

SECTION = "webui"
TRIALS = 1000
LINES = 1_000_000
TABS = 200
SECONDS = 20.0  # for which tabs are looked at
WAIT = 120_000  # ms until a page has its content
CONFIG = """
cluster_name: bench
limits: {connection_rate: 100000}
resource_manager: {type: local, slots: 1, poll_interval: 5}
"""


@dataclass(frozen=True)
class Visit:
    """What one view of a page took."""

    seconds: float
    script: float  # seconds
    kilobytes: float  # of JavaScript, on the wire
    data: float  # kB of everything else
    requests: int
    nodes: int

    def __str__(self) -> str:
        return (
            f"content after {figure(self.seconds)} s, {figure(self.script)} s of script, {figure(self.kilobytes)} kB of "
            f"JavaScript, {figure(self.data)} kB of other things, {self.requests} requests, {self.nodes:,} elements"
        )


def run(deadline: Deadline) -> None:
    """Raises Unavailable."""
    if FOUND is None:
        raise Unavailable("there is no Chromium (Debian: apt install chromium)")
    folder = make_folder()
    master = MasterProcess(folder, CONFIG).start()
    try:
        search, task, runs = _filled(master)
        with chromium() as browser:
            _ours(browser, master, search, task)
            if deadline.left > 180:
                _optuna(browser, runs)
            if deadline.left > 180:
                _mlflow(browser, runs)
        _tabs(master)
    finally:
        master.clean_up()
        remove_folder(folder)


def _filled(master: MasterProcess) -> tuple[int, str, list[Run]]:
    """Ten thousand experiments, a search, and a long log. Returns the search, the log's task, the search's runs."""
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        filled.fill(connection)
    client = master.client()
    made = client.create_experiment(
        filled_search.config(trials=TRIALS), files(train__py=filled_search.TRAINING), activate=False
    )
    with engine.begin() as connection:
        filled_search.fill_search(connection, made.id)
        task = fill_log(connection, LINES)
        runs = runs_of(connection, made.id)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
    return made.id, task, runs


# -- views ----------------------------------------------------------------------------------------------------------


def _ours(browser: Browser, master: MasterProcess, search: int, task: str) -> None:
    def signed_in(context: BrowserContext) -> None:
        context.request.post(
            f"{master.url}/session",
            data={"username": "determined", "password": master.password},
            headers={"X-Trainmaster": "page", "Content-Type": "application/json"},
        )

    views: dict[str, tuple[str, str]] = {
        "10,000 experiments": ("experiments", "tbody tr:not(.pending) a"),
        f"an experiment of {TRIALS:,} trials": (f"experiments/{search}", ".chart canvas"),
        f"the space of {TRIALS:,} trials": (f"experiments/{search}/space", ".parallel canvas"),
        f"a log of {LINES:,} lines": (f"tasks/{task}/log", "[data-line]"),
    }
    for name, (path, content) in views.items():
        found = _better(browser, f"{master.url}/ui/{path}", content, signed_in)
        say(SECTION, name, found)


def _optuna(browser: Browser, runs: Sequence[Run]) -> None:
    name = f"Optuna Dashboard {optuna_dashboard.VERSION}, the same {len(runs):,} trials"
    try:
        with optuna_dashboard.serving(runs) as address:
            say(SECTION, name, _better(browser, address, ".js-plotly-plot"))
    except Unavailable as reason:
        say(SECTION, name, reason)


def _mlflow(browser: Browser, runs: Sequence[Run]) -> None:
    name = f"MLflow {mlflow.VERSION}, the same {len(runs):,} runs, its first 100 rows"
    try:
        with mlflow.serving() as server:
            experiment = server.log_search([(run.hparams, run.steps, run.values) for run in runs])
            address = f"http://127.0.0.1:{server.port}/#/experiments/{experiment}/runs"
            say(SECTION, name, _better(browser, address, "[role=row] a[href*='/runs/']"))
    except Unavailable as reason:
        say(SECTION, name, reason)


def _better(
    browser: Browser, address: str, content: str, prepare: Callable[[BrowserContext], None] = lambda _: None
) -> Visit:
    return min((_visit(browser, address, content, prepare) for _ in range(2)), key=lambda visit: visit.seconds)


def _visit(browser: Browser, address: str, content: str, prepare: Callable[[BrowserContext], None]) -> Visit:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        prepare(context)
        page = context.new_page()
        sizes: list[tuple[str, int]] = []
        page.on(
            "requestfinished",
            lambda request: sizes.append((request.resource_type, request.sizes()["responseBodySize"])),
        )
        session = context.new_cdp_session(page)
        session.send("Performance.enable")
        began = time.monotonic()
        page.goto(address, wait_until="commit")
        page.locator(content).first.wait_for(timeout=WAIT)
        _painted(page)
        took = time.monotonic() - began
        measured = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        nodes = page.evaluate("document.querySelectorAll('*').length")
        script = sum(size for kind, size in sizes if kind == "script")
        return Visit(
            seconds=took,
            script=measured["ScriptDuration"],
            kilobytes=script / 1000,
            data=sum(size for _, size in sizes) / 1000 - script / 1000,
            requests=len(sizes),
            nodes=nodes,
        )
    finally:
        context.close()


def _painted(page: Page) -> None:
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")


# -- open tabs ------------------------------------------------------------------------------------------------------


def _tabs(master: MasterProcess) -> None:
    """What open tabs that follow a list and an experiment cost the master, and reporting beside them."""
    alone = reports_a_second(SECONDS)
    before = _memory(master.pid)
    with _followers(master) as followers:
        used, began = _processor(master.pid), time.monotonic()
        time.sleep(SECONDS)
        share = (_processor(master.pid) - used) / (time.monotonic() - began)
        grown = _memory(master.pid) - before
        say(
            SECTION,
            f"{TABS} open tabs",
            f"{figure(grown)} MB, {figure(share * 100)} % of a core",
            "at most 30 MB and 10 % wanted",
        )
        del followers
    beside = reports_a_second(SECONDS, tabs=TABS)
    say(SECTION, "single reports beside them", f"{figure(beside)} a second, without {figure(alone)}", "95 % wanted")


@contextlib.contextmanager
def _followers(master: MasterProcess) -> Iterator[object]:
    from tests.support.webui.followers import following

    with following(master, TABS) as found:
        yield found


def _memory(pid: int) -> float:
    """MB."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _processor(pid: int) -> float:
    """Seconds."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
