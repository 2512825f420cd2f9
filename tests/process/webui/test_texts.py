"""Hidden characters and formulas: the page, the master's exports and `det` have one rule each."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

import trainmaster
from tests.support.master import MasterProcess
from tests.support.webui.chromium import visiting
from trainmaster import texts
from trainmaster.cli import render
from trainmaster.master.api import cluster
from trainmaster.master.api.webui import FILES

pytestmark = pytest.mark.browser

FORMULAS = (
    *(
        "=1+1",
        "+1+1",
        "-1+1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1+1",
        "\u200b=1",
        "\ufeff=HYPERLINK(1)",
        "\u00ad-x",
    ),
    *("\uff1d1+1", "\uff0b1", "\uff0d1+1", "\uff20x", "-", "=cmd|' /C calc'!A0", "\u3164@x"),
)
PLAIN = ("", "a", "a=1", "1", "-1", "+2.5", "-1e-5", "a-b", "é", "\u6f22\u5b57", "a,b", 'say "x"', "a;=1", "a\tb")


@pytest.fixture(scope="module")
def page(browser: Browser, master: MasterProcess) -> Iterator[Any]:
    with visiting(browser, master.url) as visit:
        visit.page.goto(f"{master.url}/ui/")
        files = f"{master.url}/ui/a/{FILES.tree().mark}/app/lib"
        yield lambda code, *given: visit.page.evaluate(code, [files, *given])


def test_page_and_det_show_every_default_ignorable_character(page: Any) -> None:
    """The list is the one of the browser's Unicode, which knows the property."""
    ignorable = page("""() => {
        const found = [];
        for (let at = 0; at <= 0x10ffff; at++)
            if (/\\p{Default_Ignorable_Code_Point}/u.test(String.fromCodePoint(at))) found.push(at);
        return found;
    }""")
    assert len(ignorable) > 4000
    shown = page("async ([url]) => { const { HIDDEN } = await import(`${url}/format.js`); const found = [];"
                 "for (let at = 0; at <= 0x10ffff; at++) if (String.fromCodePoint(at).match(HIDDEN)) found.push(at);"
                 "return found; }")  # fmt: skip
    assert set(ignorable) <= set(shown)
    ours = {code for code in range(0x110000) if texts.HIDDEN.fullmatch(chr(code))}
    assert ours == set(shown)
    bidi = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x61C, 0x200E, 0x200F]
    assert {*bidi, *range(32), 0x7F, 0x2028, 0x2029} <= ours
    for name in ("a\u200bb", "\U000e0041", "a\u3164", "\u202egpj.exe", "\u2800"):
        wanted = page("async ([url, text]) => (await import(`${url}/format.js`)).visible(text)", name)
        assert texts.visible(name) == wanted
        assert f" {wanted}" in render.table(["name"], [[name]]).splitlines()[-1]


@pytest.mark.parametrize("text", [*FORMULAS, *PLAIN])
def test_a_cell_is_no_formula_in_any_export(page: Any, text: str) -> None:
    ours = texts.csv_cell(text)
    assert page("async ([url, text]) => (await import(`${url}/files.js`)).textCell(text)", text) == ours
    (cells,) = csv.reader(io.StringIO(f"{ours},last\n", newline=""))
    assert cells == [f"'{text}" if text in FORMULAS else text, "last"]
    out = io.StringIO()
    render._write_csv(out, [text], [[text]])
    assert out.getvalue() == f"{ours}\n{ours}\n"
    assert cluster._csv([text], [[text]]).body.decode() == f"{ours}\n{ours}\n"  # type: ignore[union-attr]
    assert page("async ([url, text]) => (await import(`${url}/files.js`)).csv([text], [[text]])", text) == (
        f"{ours}\r\n{ours}\r\n"
    )


def test_whatever_writes_csv_does_so_by_these_rules() -> None:
    sources = (path.read_text() for path in Path(trainmaster.__path__[0]).rglob("*.py"))
    assert not any("csv.writer" in source or "DictWriter" in source for source in sources)
