"""No text of somebody else's keeps the page busy: neither an expression nor a function of it takes more than its share.

An expression that looks at each character again for each other one takes a minute for the longest text, and a
thousandth of a second otherwise: so the deadline is generous.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.master import MasterProcess
from tests.support.webui.chromium import visiting
from tests.support.webui.expressions import APP, expressions, of_page
from trainmaster.master.api.webui import FILES

pytestmark = pytest.mark.browser

LONGEST = 200_000  # characters: notes
DEADLINE = 1.0  # seconds for LONGEST characters, and for more of them in proportion; 0.2 on an idle machine
# What no text of somebody else's reaches.
OURS = {
    r"/\B(?=(\d{3})+$)/g": "the digits of a number",
    r"/(\d+(?:\.\d+)?)px/": "the page's own fonts",
    r"/\bbold\b|\b[67]00\b/": "the page's own fonts",
}
ESCAPES = {
    "s": " ",
    "S": "a",
    "d": "1",
    "D": "a",
    "w": "a",
    "W": "-",
    "t": "\t",
    "r": "\r",
    "n": "\n",
    "b": " ",
    "B": "a",
}
PAIRS = 9  # units that are combined with each other

# Functions of lib/ that read texts which somebody else wrote, with the longest of them. Each takes a text of its own
# size, made of units.
READERS = {
    "markdown.blocks": ("(text) => f(text)", 200_000),
    "markdown.spans": ("(text) => f(text)", 200_000),
    "ansi.pieces": ("(text) => f(text)", 131_072),
    "ansi.plain": ("(text) => f(text)", 131_072),
    "diff.difference": ("(text) => f(text, text.slice(7) + 'x')", 1_000_000),
    "yaml.yaml": ("(text) => f({ [text]: text, list: [text, [text]], lines: text.split('\\n') })", 1_000_000),
    "files.csv": ("(text) => f([text], [[text], text.split(',')])", 1_000_000),
    "files.json": ("(text) => f([text], [[text], text.split(',')])", 1_000_000),
    "files.textCell": ("(text) => f(text)", 1_000_000),
    "files.shellWord": ("(text) => f(text)", 1_000_000),
    "filter.terms": ("(text) => f(text)", 100_000),
    "filter.quoted": ("(text) => f(text)", 1_000_000),
    "filter.valuesOf": ("(text) => f(text, 'a')", 100_000),
    "filter.withValues": ("(text) => f(text, 'a', [text])", 100_000),
    "filter.without": ("(text) => f(text, 0)", 100_000),
    "format.visible": ("(text) => f(text) + f(text, 1e9)", 200_000),
    "format.exact": ("(text) => f(text)", 1_000_000),
    "format.ago": ("(text) => f(text, 0)", 1_000_000),
    "format.plural": ("(text) => f(2, text)", 1_000_000),
    "hparams.fieldsOf": ("(text) => f({ [text]: text, deep: { [text]: [text] } })", 1_000_000),
    "hparams.parseFields": ("(text) => f([{ path: [text], text, type: 'text' }])", 1_000_000),
    "lineage.changeText": ("(text) => f([{ name: text, before: text, after: [text] }])", 1_000_000),
    "log_text.logQueryOf": ("(text) => f(new URLSearchParams({ q: text, rank: text }).toString())", 100_000),
    "log_text.listParam": ("(text) => f(new URLSearchParams({ rank: text }), 'rank')", 100_000),
    "log_text.toggled": ("(text) => f(text.split(','), text)", 100_000),
    "log_text.matchesIn": (
        "(text) => f(text, text.slice(0, 50)).length + f(text, text.slice(0, 1000) + '!').length",
        131_072,
    ),
    "log_text.splitAtMatches": ("(text) => f([{ text, style: '' }], [[1, 3], [5, 9]])", 131_072),
    "pareto.smallerIsLikely": ("(text) => f(text)", 1_000_000),
    "states.stateLook": ("(text) => f(text)", 1_000_000),
    "states.hasEnded": ("(text) => f(text)", 1_000_000),
    "svg_pen.escaped": ("(text) => f(text)", 1_000_000),
    "what_if.argumentsOf": ("(text) => f(1, { searcher: { name: text, [text]: text }, workers: null })", 1_000_000),
    "what_if.requestOf": (
        "(text) => f({ searcher: text, settings: text, ...Object.fromEntries("
        "['workers', 'seeds', 'delay', 'spread', 'deaths'].map(key => [key, text])) })",
        100_000,
    ),
    "trials.shortReason": ("(text) => f({ why: text, state: text })", 1_000_000),
}
# Functions that take numbers, or whose texts are only compared with others, copied, or shown by one of those above.
NO_TEXTS = {
    "actions": "preview previewByName",
    "free_pools": "poolsWithRoom",
    "ansi": "paletteColour",
    "attempt_timeline": "timelineOf",
    "axes": "kindsOf scaleOf numeric rangeText rangePlaces inside",
    "comparison": "moveItem rowsOf delta formatValue bestColumn cellsOf",
    "curves": "mergeCurves unitOnAxis",
    "format": "number tick count percent bytes duration",
    "hparams": "parseField",
    "importance": "importance",
    "lineage": "hasCopies lanesOf changesOf descentOf",
    "live_state": "initialState reduce",
    "log_text": "stamp",
    "log_window": "lastTop scrollHeight scrollOffset topAfter visibleRange topToCentre topToReveal piecesOf stripRows",
    "pareto": "paretoFront",
    "plan": "hoursBar deadlineBar moment basisOf",
    "rungs": "eventsOf arrivalsAt momentOf leader nextEvent sentence valueAxis sceneOf",
    "savings": "savings costCurves regret",
    "series": "areIntegers smoothed positive extent ticks logTicks",
    "what_if": "bestOf secondsTo median bestCurves medianCurve outcome",
    "svg": "svgOf csvOf jsonOf",
    "svg_pen": "paperWidth",
    "trials": "stoppedEarly stateOf lookOf trialLabel curvePoints sampled",
}
EXPORTED = re.compile(r"^export (?:async )?function (\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def page(browser: Browser, master: MasterProcess) -> Iterator[tuple[Any, str]]:
    with visiting(browser, master.url) as visit:
        visit.page.goto(f"{master.url}/ui/")
        yield visit.page, f"{master.url}/ui/a/{FILES.tree().mark}/app/lib"


def units(source: str) -> list[str]:
    """Each delimiter and each word of an expression, and what its classes take."""
    body = source[1 : source.rindex("/")]
    found = [chr(int(code, 16)) for code in re.findall(r"\\u\{?([0-9a-f]{2,6})", body)]
    body = re.sub(r"\\u(\{[0-9a-f]+\}|[0-9a-f]{4})", "", body)
    found += [ESCAPES.get(one, one) for one in re.findall(r"\\(.)", body)]
    body = re.sub(r"\\.", "", body)
    found += re.findall(r"[A-Za-z]{2,}", body)
    found += [one for one in body if not one.isalnum()]
    return list(dict.fromkeys([*found, "a", " "]))


TOKEN = re.compile(r"\\u\{?[0-9a-f]+\}?|\\.|\[(?:\\.|[^\]\\])*\]|\(\?[=!:]|\{\d+(?:,\d*)?\}|.")


def beginnings(source: str) -> list[str]:
    """What each alternative of an expression may begin with, up to each of its parts: `[`, `[a`, `[a]`, `[a](`."""
    found = []
    text = ""
    for token in TOKEN.findall(source[1 : source.rindex("/")]):
        if token == "|":
            text = ""
        elif token.startswith("["):
            text += "a" if token.startswith("[^") else ESCAPES.get(token[2], token[2]) if token[1] == "\\" else token[1]
        elif token.startswith("\\"):
            text += ESCAPES.get(token[1], token[1]) if token[1] != "u" else ""
        elif token not in "()^$*+?" and not token.startswith(("(?", "{")):
            text += "a" if token == "." else token
        found.append(text)
    return [one for one in dict.fromkeys(found) if one]


def hostile(parts: list[str], more: list[str]) -> list[list[Any]]:
    """Texts, as units that are repeated and an end that fits to nothing."""
    found: list[list[Any]] = [[[one], end] for one in (*parts, *more) for end in ("", "\u0001!x")]
    short = parts[:PAIRS]
    for one in short:
        for other in short:
            if one != other:
                found += [[[one + other], "\u0001"], [[one, other], "\u0001"]]
    return found


_RUN = """
async ([source, flags, texts, longest]) => {
    const wrong = [];
    for (const [parts, end] of texts) {
        const text = parts.map(part => part.repeat(Math.ceil(longest / part.length / parts.length))).join("") + end;
        const wanted = new RegExp(source, flags);
        const began = performance.now();
        if (flags.includes("g")) text.replace(wanted, ""); else wanted.exec(text);
        const took = performance.now() - began;
        if (took > 1000) { wrong.push([parts, took]); break; }
    }
    return wrong;
}
"""


def test_scanner_finds_only_regular_expressions() -> None:
    source = r"""
    // no /comment/
    const a = /one/g, b = x / 2 / y; /* /no/ */
    const s = "/no/" + `/no/${c.replace(/two[/"]`/u, '/no/')}`;
    if (/three/.test(a)) return /four\//;
    call(/five/, b => /six/);
    """
    assert list(expressions(source)) == ["/one/g", '/two[/"]`/u', "/three/", r"/four\//", "/five/", "/six/"]


def test_page_expressions_are_fast_on_hostile_repetitions(page: tuple[Any, str]) -> None:
    visit, _ = page
    found = sorted({one for entries in of_page().values() for one in entries})
    assert len(found) > 40
    wrong = {}
    for expression in found:
        if expression in OURS:
            continue
        end = expression.rindex("/")
        answer = visit.evaluate(
            _RUN,
            [expression[1:end], expression[end + 1 :], hostile(units(expression), beginnings(expression)), LONGEST],
        )
        if answer:
            wrong[expression] = answer
    assert wrong == {}
    assert set(OURS) <= set(found)
    assert not [path for path in APP.rglob("*.js") if "RegExp(" in path.read_text()]


def test_every_function_of_lib_is_tried_or_reads_no_texts() -> None:
    exported = {
        f"{path.stem}.{name}" for path in (APP / "lib").glob("*.js") for name in EXPORTED.findall(path.read_text())
    }
    other = {f"{module}.{name}" for module, names in NO_TEXTS.items() for name in names.split()}
    assert exported == set(READERS) | other


@pytest.mark.parametrize("name", READERS)
def test_a_function_that_reads_others_texts_takes_no_time(page: tuple[Any, str], name: str) -> None:
    visit, files = page
    module, function = name.split(".")
    code, longest = READERS[name]
    delimiters = units("/" + "".join(one[1:].rpartition("/")[0] for one in of_page().get(f"lib/{module}.js", ())) + "/")
    parts = list(dict.fromkeys([*delimiters, "\n", ",", "\\", "* ", "| a ", "[a](", "**a", "http://", "- "]))
    run = f"""
    async ([url, name, parts, longest, deadline]) => {{
        const f = (await import(url))[name];
        const call = {code};
        const wrong = [];
        for (const part of parts) {{
            const text = part.repeat(Math.ceil(longest / part.length)) + "\\u0001";
            let took = Infinity;  // the best of three, where the machine is busy
            for (let n = 0; n < 3 && took > deadline; n++) {{
                const began = performance.now();
                call(text);
                took = Math.min(took, performance.now() - began);
            }}
            if (took > deadline) wrong.push([part, took]);
            if (wrong.length > 2) break;
        }}
        return wrong;
    }}
    """
    deadline = DEADLINE * 1000 * max(1, longest / LONGEST)
    assert visit.evaluate(run, [f"{files}/{module}.js", function, parts, longest, deadline]) == []


def test_difference_of_unlike_texts_is_fast(page: tuple[Any, str]) -> None:
    visit, files = page
    run = """
    async url => {
        const { difference } = await import(url);
        const before = Array.from({ length: 20000 }, (_, at) => `a${at}`).join("\\n");
        const after = Array.from({ length: 20000 }, (_, at) => `${at % 3 ? "a" : "b"}${at}`).join("\\n");
        const began = performance.now();
        const found = difference(before, after);
        return [performance.now() - began, found.length];
    }
    """
    took, lines = visit.evaluate(run, f"{files}/diff.js")
    assert lines >= 20_000
    assert took < DEADLINE * 1000
