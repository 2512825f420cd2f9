"""The program of `scripts/picture`: the page of the demo's experiment as a PNG file."""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path

import demo
from playwright.sync_api import expect

from tests.support.webui.chromium import chromium, visiting

WIDTH, HEIGHT = 1280, 800


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/picture", description="The page of the demo's experiment.")
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    shown = demo.Demo(Path(tempfile.mkdtemp(prefix="trainmaster-picture-")))
    try:
        status = demo.run(shown)
        if status:
            return status
        assert shown.master is not None
        with chromium() as browser, visiting(browser, shown.url, width=WIDTH, height=HEIGHT) as visit:
            page = visit.page
            page.goto(demo.page_of(shown.master, 1))
            page.get_by_role("button", name="Sign in by this link").click()
            expect(page).to_have_url(re.compile("/experiments/1$"))
            expect(page.locator("canvas").first).to_be_visible()
            page.wait_for_load_state("networkidle")
            file.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=file)
    finally:
        shown.stop()
        demo.remove(shown.folder)
    print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
