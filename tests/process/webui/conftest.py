"""A master with a filled database, and a Chromium that visits it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser
from sqlalchemy import text

from tests.support.master import MasterProcess, serving
from tests.support.webui.chromium import FOUND, PICTURES, Contexts, Visit, chromium, visiting
from tests.support.webui.filled import fill
from tests.support.webui.searches import Searches, end_searches, make_searches
from trainmaster.master.api.webui import FILES
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

Call = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent.parent
LOCK = ROOT / "scripts/webui/vendor.lock"
USUAL_CACHE = Path("/var/cache/trainmaster") if os.getuid() == 0 else Path.home() / ".cache/trainmaster"
CACHE = Path(os.environ.get("TRAINMASTER_CACHE") or USUAL_CACHE)
QUIET = """
cluster_name: kestrel
resource_manager: {type: local, slots: 1, poll_interval: 5}
"""


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One for all tests of this folder. Not for longer: Playwright's event loop runs as long as it does, and others'
    tests could start none."""
    if FOUND is None:
        pytest.skip("There is no Chromium (Debian: apt install chromium).")
    with chromium() as found:
        yield found


@pytest.fixture(scope="package")
def master() -> Iterator[MasterProcess]:
    with serving(QUIET) as process:
        yield process


@pytest.fixture(scope="package")
def full(master: MasterProcess) -> MasterProcess:
    """The same master, with ten thousand experiments."""
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        fill(connection)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
    return master


@pytest.fixture(scope="package")
def contexts(browser: Browser) -> Contexts:
    return Contexts(browser)


@pytest.fixture
def visit(contexts: Contexts) -> Iterator[Callable[..., Visit]]:
    """Begins visits; what is wrong with one fails the test."""
    with ExitStack() as stack:
        yield lambda url, **look: stack.enter_context(contexts.visiting(url, **look))


@pytest.fixture
def first_visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """The same, each in a context of its own: for what cannot be undone in one."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(visiting(browser, url))


@pytest.fixture
def visitor(visit: Callable[..., Visit], master: MasterProcess) -> Visit:
    """A visit of the user `determined`."""
    found = visit(master.url)
    found.sign_in("determined", master.password)
    return found


@pytest.fixture(scope="package")
def site() -> Iterator[tuple[MasterProcess, Searches]]:
    """Another master, with searches that were really decided: tests of `master` count what that one has."""
    with serving(QUIET.replace("slots: 1", "slots: 4")) as process:
        found = make_searches(process, trials=300)
        yield process, found
        end_searches(process, found)


@pytest.fixture
def searches(site: tuple[MasterProcess, Searches]) -> Searches:
    return site[1]


@pytest.fixture
def searcher(visit: Callable[..., Visit], site: tuple[MasterProcess, Searches]) -> Visit:
    """A visit of the user `determined` to the master with the searches."""
    found = visit(site[0].url)
    found.sign_in("determined", site[0].password)
    return found


@pytest.fixture(scope="session")
def axe() -> str:
    """The program that checks a page's accessibility; it is fetched once."""
    file = CACHE / "webui-tests" / hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12] / "axe.js"
    if not file.exists():
        if shutil.which("npm") is None:
            pytest.skip("axe-core is fetched with npm, which is not here.")
        subprocess.run([ROOT / "scripts/vendor", "--tests", file.parent], check=True, capture_output=True)
    return file.read_text()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures of the pages are written: TRAINMASTER_PICTURES names a folder to keep them in."""
    folder = Path(os.environ.get(PICTURES) or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def run(browser: Browser, master: MasterProcess) -> Any:
    """`run("format", "async ([url, x]) => ...", 0.5)`: code that gets the address of a module of lib/."""
    with visiting(browser, master.url) as visit:
        visit.page.goto(f"{master.url}/ui/")
        files = f"{master.url}/ui/a/{FILES.tree().mark}/app/lib"

        def evaluated(module: str, code: str, *arguments: Any) -> Any:
            return visit.page.evaluate(code, [f"{files}/{module}.js", *arguments])

        yield evaluated


@pytest.fixture(scope="module")
def call(run: Call) -> Call:
    """`call("format", "number", 0.5)`: a function of a module of lib/."""

    def called(module: str, name: str, *arguments: Any) -> Any:
        code = "async ([url, name, given]) => (await import(url))[name](...given)"
        return run(module, code, name, list(arguments))

    return called
