"""A real Chromium for the tests of the web page: one browser a run, and nothing tolerated in its console. Tests that
look at the page in the same way use one context after the other, with nothing left in it but the page's files."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    WebError,
    expect,
    sync_playwright,
)

FOUND = shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS = ("--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none")
TIMEOUT = 20_000  # ms; on a busy machine
expect.set_options(timeout=TIMEOUT)
PICTURES = "TRAINMASTER_PICTURES"  # names a folder that pictures of the pages are written to


@contextmanager
def chromium() -> Iterator[Browser]:
    assert FOUND
    sandbox = () if os.getuid() else ("--no-sandbox",)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=[*ARGUMENTS, *sandbox])
        yield browser
        browser.close()


# The policy of the page forbids what Playwright's own waiting for a function does.
_CONTENT = """() => new Promise(done => {
    const look = () =>
        document.querySelector("#page > *") && !document.querySelector(".loading") ? done() : setTimeout(look, 20);
    look();
})"""


@dataclass
class Visit:
    """A browser's context with one page. `url`: the master's root, without a slash at its end. `expected`: patterns of
    console errors that the test is about."""

    context: BrowserContext
    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, path: str = "") -> Page:
        """Open an address below `/ui/` and wait until its content is there."""
        self.page.goto(f"{self.url}/ui/{path}")
        self.page.evaluate(_CONTENT)  # looks often; `expect` does once or twice a second
        return self.page

    def sign_in(self, user: str, password: str) -> None:
        """Signs in without the form."""
        answer = self.context.request.post(
            f"{self.url}/session",
            data={"username": user, "password": password},
            headers={"X-Trainmaster": "page", "Content-Type": "application/json"},
        )
        assert answer.ok, answer.text()

    def unexpected(self) -> list[str]:
        return [one for one in self.faults if not any(re.search(pattern, one) for pattern in self.expected)]


@dataclass(frozen=True)
class Look:
    """What a visitor's window is like."""

    width: int = 1440
    height: int = 900
    theme: str = "light"


def new_context(browser: Browser, look: Look) -> BrowserContext:
    context = browser.new_context(
        viewport={"width": look.width, "height": look.height},
        color_scheme="dark" if look.theme == "dark" else "light",
        reduced_motion="reduce",
        locale="en-GB",
        timezone_id="Europe/Berlin",
    )
    context.set_default_timeout(TIMEOUT)
    return context


@contextmanager
def visiting(browser: Browser, url: str, look: Look | None = None) -> Iterator[Visit]:
    """A first visit, in a context of its own."""
    context = new_context(browser, look or Look())
    try:
        with watching(context, url) as visit:
            yield visit
    finally:
        context.close()


@contextmanager
def watching(context: BrowserContext, url: str) -> Iterator[Visit]:
    """A visit in a context; any error in its console, violation of the policy or request to another origin fails the
    test at the end."""
    page = context.new_page()
    visit = Visit(context, page, url)
    own = urlsplit(url).netloc

    def said(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            visit.faults.append(f"console {message.type}: {message.text} ({message.location.get('url', '')})")

    def asked(request: Request) -> None:
        visit.requests.append(request.url)
        if urlsplit(request.url).scheme not in ("data", "blob") and urlsplit(request.url).netloc != own:
            visit.faults.append(f"request elsewhere: {request.url}")

    def failed(error: WebError) -> None:
        visit.faults.append(f"uncaught: {error.error}")

    context.on("console", said)
    context.on("request", asked)
    context.on("weberror", failed)
    yield visit
    # A violation of the policy is in the console; what was asked for last may still be on its way there.
    if not page.is_closed():
        page.evaluate("() => new Promise(done => setTimeout(done))")
    context.remove_listener("console", said)
    context.remove_listener("request", asked)
    context.remove_listener("weberror", failed)
    assert visit.unexpected() == [], visit.unexpected()


def until(page: Page, found: Callable[[], bool]) -> None:
    """Waits until the page has done something that a handler of the test notes; handlers run meanwhile."""
    for _ in range(200):
        if found():
            return
        page.wait_for_timeout(50)
    raise AssertionError("waited 10 s in vain")


class Contexts:
    """Contexts of a browser that visits use one after the other: the page's files stay in the browser, as they do at
    home; its cookies, its storage, its tabs and what a test has routed do not. A failed test's context is closed."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._idle: dict[Look, list[BrowserContext]] = {}

    @contextmanager
    def visiting(self, url: str, **look: Any) -> Iterator[Visit]:
        idle = self._idle.setdefault(Look(**look), [])
        context = idle.pop() if idle else new_context(self._browser, Look(**look))
        try:
            with watching(context, url) as visit:
                yield visit
            _forget(visit)
        except BaseException:
            context.close()
            raise
        idle.append(context)


def _forget(visit: Visit) -> None:
    context = visit.context
    context.unroute_all(behavior="ignoreErrors")
    context.clear_permissions()
    context.clear_cookies()
    page = context.new_page()
    for other in context.pages:
        if other != page:
            other.close()
    storage = {"origin": visit.url, "storageTypes": "local_storage"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", storage)
    page.close()


def picture(page: Page, folder: Path, name: str, themes: Sequence[str] = ("light", "dark")) -> None:
    """Writes pictures of the page in both themes, for eyes: where TRAINMASTER_PICTURES asks for them."""
    if not os.environ.get(PICTURES):
        return
    for theme in themes:
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")  # canvases too
        page.screenshot(path=folder / f"{name}-{theme}.png")
    page.emulate_media(color_scheme="light")


def violations(page: Page, axe: str) -> list[str]:
    """What axe finds of WCAG 2.2 AA, as `rule: element`; of contrast in the other theme too."""
    page.evaluate(axe)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    found = _run_axe(page, {"type": "tag", "values": tags})
    other, this = ("light", "dark") if page.evaluate(_IS_DARK) else ("dark", "light")
    page.emulate_media(color_scheme=other)  # type: ignore[arg-type]
    found += [f"{other} theme: {one}" for one in _run_axe(page, {"type": "rule", "values": ["color-contrast"]})]
    page.emulate_media(color_scheme=this)  # type: ignore[arg-type]
    return found


_IS_DARK = "matchMedia('(prefers-color-scheme: dark)').matches"


def _run_axe(page: Page, only: dict[str, object]) -> list[str]:
    # To name what passes takes most of the time.
    found = page.evaluate("only => axe.run(document, { runOnly: only, resultTypes: ['violations'] })", only)
    return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]
