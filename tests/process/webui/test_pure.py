"""The pure modules, called in the browser that runs them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser

from tests.support.master import MasterProcess
from tests.support.webui.chromium import visiting
from trainmaster.config.limits import DEFAULTS
from trainmaster.master.api.webui import FILES
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.views import filter_line

pytestmark = pytest.mark.browser
Call = Callable[..., Any]


def test_numbers_are_formatted_with_four_digits(call: Call) -> None:
    wanted = {
        0: "0", 1: "1", 12345: "12\u2009345", 0.5: "0.5000", 0.93121: "0.9312", 123.456: "123.5", -2.5: "−2.500",
        1.2e-5: "1.200e−5", 3.2e9: "3.200e9", 0.00123456: "0.001235", 99999.7: "100000",
    }  # fmt: skip
    assert {value: call("format", "number", value) for value in wanted} == wanted
    assert [call("format", "number", value) for value in (None, math.nan, math.inf, -math.inf)] == [
        *("–", "NaN", "∞", "−∞")
    ]


def test_marks_of_an_axis_have_no_more_digits_than_they_need(call: Call) -> None:
    wanted = {0: "0", 0.2: "0.2", -1.25: "−1.25", 20000: "20\u2009000", 1e-5: "1e−5", 2.5e7: "2.5e7"}
    assert {value: call("format", "tick", value) for value in wanted} == wanted


def test_durations_and_sizes_are_formatted_with_units(call: Call) -> None:
    seconds = {5: "5 s", 65: "1 min 5 s", 3600: "1 h", 11520: "3 h 12 min", 200000: "2 d 7 h"}
    assert {value: call("format", "duration", value) for value in seconds} == seconds
    ago = {0: "now", 5: "5 s ago", 3700: "1 h ago", 90000: "1 d ago", -120: "in 2 min"}
    assert {value: call("format", "ago", 1e12 - value * 1000, 1e12) for value in ago} == ago
    assert call("format", "exact", "2026-07-01T12:00:00Z") == "2026-07-01 14:00:00 UTC+02:00"
    sizes = {5: "5 B", 1500: "1.5 kB", 123456789: "123 MB"}
    assert {value: call("format", "bytes", value) for value in sizes} == sizes


def test_hidden_characters_are_shown(call: Call) -> None:
    assert call("format", "visible", "a\u202eb\u0000c\u200d") == "a‹202E›b‹0000›c‹200D›"
    assert call("format", "visible", "実験 é 🧪") == "実験 é 🧪"
    assert len(call("format", "visible", "x" * 1_000_000)) == 301


LINES = (
    'state:running,paused user:me val_loss<0.3 "two words" -label:"x y" hp.lr>=1e-4',
    "a b  c",
    '"key with space"<3 name:"a:b"',
    "x!=3 y=2 -z",
    "a,b label:a,b,c",
    "日本 label:é",
)


@pytest.mark.parametrize("line", LINES)
def test_the_page_and_the_master_read_a_line_alike(call: Call, line: str) -> None:
    there = [(one.key, one.sign, list(one.values), one.negated) for one in filter_line.terms(DEFAULTS, line)]
    here = [(one["key"], one["sign"], one["values"], one["negated"]) for one in call("filter", "terms", line)]
    assert here == there
    assert call("filter", "terms", call("filter", "without", line, 0)) == call("filter", "terms", line)[1:]


def test_values_are_put_in_and_taken_out(call: Call) -> None:
    assert call("filter", "withValues", "a state:running b", "state", ["paused", "x y"]) == 'a b state:paused,"x y"'
    assert call("filter", "withValues", "a state:running -state:error", "state", []) == "a -state:error"
    assert call("filter", "valuesOf", 'state:a,"b c" state:d -state:e', "state") == ["a", "b c", "d"]
    for odd in ('"', '""', 'a"b', ":", "<3", "-", "--", 'x:"', "a:b:c", "<<>>"):
        call("filter", "terms", odd)  # anything that is being typed
        with suppress(Invalid):
            filter_line.terms(DEFAULTS, odd)


def test_cells_cannot_be_taken_for_formulas(call: Call) -> None:
    rows = [[1, "=1+1", None, -3.5], ['say "hi"', "a,b", True, ["x", "y"]]]
    assert call("files", "csv", ["n", "@t", "c", "d"], rows) == (
        'n,\'@t,c,d\r\n1,\'=1+1,,-3.5\r\n"say ""hi""","a,b",true,"x;y"\r\n'
    )
    assert json.loads(call("files", "json", ["a"], [[1], [None]])) == [{"a": 1}, {"a": None}]
    assert call("files", "shellWord", "it's") == """'it'"'"'s'"""


def test_series_are_smoothed_and_scales_are_round(call: Call) -> None:
    assert call("series", "smoothed", [2, None, 2, 2], 0.9) == pytest.approx([2, None, 2, 2])
    assert call("series", "smoothed", [1, 3], 0) == [1, 3]
    assert call("series", "ticks", 0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert call("series", "ticks", -3, 17, 4) == [0, 5, 10, 15]
    assert call("series", "logTicks", 0.02, 300) == [0.1, 1, 10, 100]
    assert call("series", "logTicks", 1, 30) == [1, 2, 5, 10, 20]
    assert call("series", "extent", [[None, 3, 1], []]) == [1, 3]


def test_action_preview_counts_skipped_experiments(call: Call) -> None:
    subjects = [
        {"id": 1, "state": "RUNNING", "archived": False, "editable": True},
        {"id": 2, "state": "COMPLETED", "archived": False, "editable": True},
        {"id": 3, "state": "PAUSED", "archived": False, "editable": False},
    ]
    found = call("actions", "previewByName", "pause", subjects)
    assert found == {"ids": [1], "skipped": [["have ended", 1], ["are not yours", 1]]}


def test_waiting_experiment_sees_other_pools_with_room(call: Call) -> None:
    def pool(name: str, free: int, *, rests: str = "", accelerator: str = "A100") -> dict[str, Any]:
        return {"name": name, "slots": 8, "used": 8 - free, "rests": rests, "accelerator": accelerator}

    pools = [
        pool("own", 8),
        pool("busy", 3),
        pool("free", 4),
        pool("freer", 8),
        pool("cpu", 8, accelerator=""),
        pool("paused", 8, rests="three jobs in a row failed to start"),
        pool("freest", 8),
    ]
    found = call("free_pools", "poolsWithRoom", {"pool": "own", "slots": 4}, pools)
    assert found == [{"name": "freer", "free": 8}, {"name": "freest", "free": 8}]
    assert call("free_pools", "poolsWithRoom", {"pool": "own", "slots": 0}, pools) == []
    assert call("free_pools", "poolsWithRoom", {"pool": "gone", "slots": 1}, pools) == []


def test_a_hyperparameter_has_the_scale_of_its_configuration(call: Call) -> None:
    rows = [{"id": n, "hp.dropout": value, "hp.lr": value} for n, value in enumerate((0.001, 0.1, 0.6))]
    kinds = call("axes", "kindsOf", {"hparamTypes": {"dropout": "double", "lr": "log"}})
    logs = {name: call("axes", "scaleOf", name, rows, kinds)["log"] for name in ("hp.dropout", "hp.lr")}
    assert logs == {"hp.dropout": False, "hp.lr": True}
    assert call("axes", "scaleOf", "hp.dropout", rows)["log"]  # of which nothing is configured


def test_svg_pen_writes_canvas_drawing_as_svg(browser: Browser, master: MasterProcess) -> None:
    with visiting(browser, master.url) as visit:
        visit.page.goto(f"{master.url}/ui/")
        svg = visit.page.evaluate(
            """async url => {
                const { SvgPen, paperWidth } = await import(url);
                const pen = new SvgPen(paperWidth(85), 100);
                pen.save();
                pen.translate(10, 20);
                pen.rotate(-Math.PI / 2);
                pen.fillText("<b> & loss", 1, 2);
                pen.restore();
                pen.beginPath();
                pen.moveTo(0, 0);
                pen.lineTo(10.126, 5);
                pen.arc(5, 5, 3, 0, 7);
                pen.stroke();
                pen.globalAlpha = 0.5;
                pen.fillRect(1, 2, 3, 4);
                return pen.file({ millimetres: 85, title: "a <title>", source: "x", metadata: '[{"a": 1}]' });
            }""",
            f"{master.url}/ui/a/{FILES.tree().mark}/app/lib/svg_pen.js",
        )
    root = ElementTree.fromstring(svg)
    assert (root.get("width"), root.get("viewBox")) == ("85mm", "0 0 361 100")
    space = "{http://www.w3.org/2000/svg}"
    words = root.find(f"{space}text")
    assert words is not None
    assert (words.text, words.get("transform")) == ("<b> & loss", "translate(10 20) rotate(-90)")
    line = root.find(f"{space}path")
    assert line is not None
    assert line.get("d") == "M0 0L10.13 5M8 5a3 3 0 1 0 -6 0a3 3 0 1 0 6 0"
    box = root.find(f"{space}rect")
    assert box is not None
    assert (box.get("width"), box.get("opacity")) == ("3", "0.5")
    assert json.loads(root.findtext(f"{space}metadata", "")) == [{"a": 1}]


RACE = {
    "columns": [*("at", "bracket", "rung", "trial", "value", "decision", "rank", "of", "keep", "cut", "story")],
    "first": 1,
    "rows": [
        [10, 0, 0, 7, 0.5, "goes on", 1, 1, 1, 0.5, None],
        [11, 1, 0, 8, 0.9, "goes on", 1, 1, 1, 0.9, None],
        [12, 0, 0, 9, 0.7, "stopped", 2, 2, 1, 0.5, 40],
        [13, 0, 1, 7, 0.4, "top", 1, 1, 1, None, 41],
        [14, 0, 0, 10, None, "failed", 3, 3, 1, 0.5, 42],
        [15, 0, 0, 11, 0.3, "goes on", 1, 4, 2, 0.5, None],
    ],
}


def test_race_moment_contains_only_earlier_arrivals(call: Call) -> None:
    events = call("rungs", "eventsOf", RACE)
    assert [one["number"] for one in events] == [1, 2, 3, 4, 5, 6]

    def looks(at: int) -> list[tuple[list[tuple[int, str]], float | None]]:
        moment = call("rungs", "momentOf", events, 0, [1, 3], at, True)
        return [([(dot["event"]["trial"], dot["look"]) for dot in rung["dots"]], rung["cut"]) for rung in moment]

    assert looks(0) == [([], None), ([], None)]
    assert looks(2) == [([(7, "running")], 0.5), ([], None)]
    assert looks(3) == [([(7, "running"), (9, "stopped")], 0.5), ([], None)]
    assert looks(4) == [([(7, "passed"), (9, "stopped")], 0.5), ([(7, "top")], None)]
    assert looks(6)[0] == ([(7, "passed"), (9, "stopped"), (10, "failed"), (11, "running")], 0.5)
    moment = call("rungs", "momentOf", events, 0, [1, 3], 6, True)
    assert call("rungs", "leader", moment)["event"]["trial"] == 7, "the best of the highest rung"
    larger = call("rungs", "momentOf", events, 0, [1, 3], 6, False)
    assert larger[0]["best"]["event"]["trial"] == 9


def test_race_shows_pauses_and_resumes(run: Call) -> None:
    code = """async ([url, race]) => {
        const rungs = await import(url);
        const events = rungs.eventsOf(race);
        const looks = [1, 3, 4].map(at =>
            rungs.momentOf(events, 0, [1, 3], at, true)[0].dots.map(dot => [dot.event.trial, dot.look]));
        const words = { clock: "12:03:11", units: 9, unit: "epochs" };
        return [looks, rungs.arrivalsAt(events, 0), rungs.sentence(events[2], words), events[3].arrival];
    }"""
    rows = [
        [10, 0, 0, 7, 0.5, "paused", 1, 1, 0, 0.5, 40],
        [11, 0, 0, 8, 0.9, "paused", 2, 2, 1, 0.5, 41],
        [12, 0, 0, 7, 0.5, "resumed", 1, 2, 1, 0.5, 42],
        [13, 0, 0, 8, 0.9, "stopped", 2, 2, 1, 0.5, 43],
    ]
    looks, arrivals, words, arrival = run("rungs", code, RACE | {"rows": rows})
    assert looks == [
        [[7, "paused"]], [[7, "running"], [8, "paused"]], [[7, "running"], [8, "stopped"]],
    ]  # fmt: skip
    assert (arrivals, arrival) == (2, 2)
    assert words == (
        "At 12:03:11 trial 7 was resumed from rung 1 (9 epochs): rank 1 of 2, value 0.5000, cutoff 0.5000; 1 continues."
    )


def test_rung_events_are_described_in_sentences(call: Call) -> None:
    events = call("rungs", "eventsOf", RACE)
    told = {"clock": "12:03:11", "units": 9, "unit": "epochs"}
    assert [call("rungs", "sentence", events[at], told) for at in (0, 2, 3, 4)] == [
        "At 12:03:11 trial 7 reached rung 1 (9 epochs) and continues: "
        "rank 1 of 1, value 0.5000, cutoff 0.5000; 1 continues.",
        "At 12:03:11 trial 9 was stopped at rung 1 (9 epochs): rank 2 of 2, value 0.7000, cutoff 0.5000; 1 continues.",
        "At 12:03:11 trial 7 reached the top, rung 2 (9 epochs): rank 1 of 1, value 0.4000; it is complete.",
        "At 12:03:11 trial 10 failed at rung 1 (9 epochs): it counts as the worst of 3.",
    ]


def test_race_dots_keep_their_places_over_time(run: Call) -> None:
    code = """async ([url, race]) => {
        const rungs = await import(url);
        const events = rungs.eventsOf(race);
        const axis = rungs.valueAxis(events, 0, false);
        return [3, 6].map(at => {
            const moment = rungs.momentOf(events, 0, [1, 3], at, true);
            const box = { left: 0, top: 0, right: 200, bottom: 116 };
            const scene = rungs.sceneOf(moment, [4, 1], axis, box, "epochs");
            return {
                dots: scene.dots.map(one => [one.dot.event.trial, one.x, Math.round(one.y)]),
                cuts: scene.cuts.map(one => Math.round(one.now)),
            };
        });
    }"""
    early, late = run("rungs", code, RACE)
    assert early == {"dots": [[7, 18.5, 50], [9, 39.5, 0]], "cuts": [50]}
    assert late["dots"] == [[7, 18.5, 50], [9, 39.5, 0], [10, 60.5, 108], [11, 81.5, 100], [7, 150, 75]]


def test_comparison_orders_columns_and_formats_deltas(call: Call) -> None:
    assert call("comparison", "moveItem", [1, 2, 3], 2, 0) == [3, 1, 2]
    assert call("comparison", "moveItem", [1, 2, 3], 0, 9) == [2, 3, 1]
    assert call("comparison", "delta", 0.6, 0.5) == "+0.1000 (+20\u2009%)"
    assert call("comparison", "delta", 3, 4) == "−1 (−25\u2009%)"
    assert [call("comparison", "delta", *pair) for pair in ((1, 1), ("a", 1), (1, None), (2, 0))] == ["", "", "", "+2"]
    row = {"part": "values", "name": "best loss", "values": [0.5, None, 0.2], "differs": True}
    assert [call("comparison", "bestColumn", row, "loss", smaller) for smaller in (True, False)] == [2, 0]
    assert call("comparison", "bestColumn", {**row, "differs": False}, "loss", True) == -1
    assert [call("comparison", "formatValue", value) for value in (None, 1234, 0.5, ["a", "b"], True)] == [
        *("–", "1\u2009234", "0.5000", "a, b", "true")
    ]


ESC = "\x1b"
ANSI = {
    "plain": [("plain", "")],
    f"{ESC}[31mred{ESC}[0m and {ESC}[1;94mblue{ESC}[22m": [
        ("red", "ansi-1"),
        (" and ", ""),
        ("blue", "ansi-12 ansi-bold"),
    ],
    f"{ESC}[38;5;208mx{ESC}[48;5;17my{ESC}[39;49mz": [("x", "ansi-208"), ("y", "ansi-208 ansi-on-17"), ("z", "")],
    f"{ESC}[38;2;255;0;0mx{ESC}[m": [("x", "ansi-196")],
    f"{ESC}[38:5:9mx": [("x", "ansi-9")],
    f"{ESC}[7;32mx": [("x", "ansi-on-2")],
    f"{ESC}[2J{ESC}[10;5Hx{ESC}[?25l{ESC}7{ESC}(By": [("xy", "")],
    f"{ESC}]0;title\x07x{ESC}]8;;http://evil.example{ESC}\\y{ESC}]8;;{ESC}\\": [("xy", "")],
    f"{ESC}]8;;http://never.ends": [],
    f"x{ESC}[3": [("x", "")],
    f"x{ESC}": [("x", "")],
    "10%\r20%\r": [("20%", "")],
    f"{ESC}[38;5;999mx{ESC}[38;7mz": [("xz", "")],
    "": [],
}


def test_ansi_colours_are_kept_and_other_escapes_dropped(call: Call) -> None:
    found = {text: [(one["text"], one["style"]) for one in call("ansi", "pieces", text)] for text in ANSI}
    assert found == ANSI
    assert call("ansi", "plain", f"a{ESC}[31mb") == "ab"
    colours = [call("ansi", "paletteColour", number) for number in (16, 196, 231, 232, 255)]
    assert colours == ["rgb(0, 0, 0)", "rgb(255, 0, 0)", "rgb(255, 255, 255)", "rgb(8, 8, 8)", "rgb(238, 238, 238)"]


def test_a_scroll_bar_reaches_every_line(call: Call) -> None:
    view = 720  # forty lines
    for total in (0, 10, 40, 41, 5_000, 444_000, 1_000_000, 30_000_000):
        scale = {"total": total, "view": view}
        height, last = call("log_window", "scrollHeight", scale), call("log_window", "lastTop", scale)
        assert view <= height <= 8_000_000 + view
        assert last == max(0, total - 40)
        assert call("log_window", "topAfter", scale, 0, 0, height) == last
        assert call("log_window", "topAfter", scale, last, height - view, 0) == 0
        for share in (0.1, 0.5, 0.77):
            top = round(last * share)
            bar = call("log_window", "scrollOffset", scale, top)
            found = call("log_window", "topAfter", scale, 0, bar + 10_000, bar)
            assert found == pytest.approx(top, abs=1e-6 * max(1, total))
            # A turn of the wheel moves by what is seen, however long the log is.
            if 10 < top < last - 10:
                assert call("log_window", "topAfter", scale, top, bar, bar + 90) == pytest.approx(top + 5, abs=1e-3)
    wrapped = {"total": 10, "view": view, "wraps": True}
    assert call("log_window", "lastTop", wrapped) == 9
    assert call("log_window", "scrollHeight", wrapped) == 9 * 18 + view
    assert call("log_window", "visibleRange", wrapped, 8.5) == [0, 10]
    assert call("log_window", "visibleRange", {"total": 1000, "view": view}, 10.5) == [10, 51]
    assert call("log_window", "topToCentre", {"total": 1000, "view": view}, 500) == 480.5
    assert call("log_window", "topToCentre", {"total": 1000, "view": view}, 5) == 0
    assert [call("log_window", "topToReveal", {"total": 1000, "view": view}, 100, at) for at in (90, 120, 140)] == [
        *(90, 100, 101)
    ]
    assert call("log_window", "stripRows", [0, 3, 0, 1], 2) == [3, 1]
    assert call("log_window", "stripRows", [5, 0], 4) == [5, 5, 0, 0]


def test_page_address_becomes_log_query(call: Call) -> None:
    asked = "level=error&rank=0,-1&node=n1&job=t.1&stream=stderr&since=2026-01-01&q=a b&regex=1&only=1&other=1"
    assert call("log_text", "logQueryOf", asked) == {
        "filter": "levels=ERROR&levels=CRITICAL&rankIds=0&rankIds=-1&agentIds=n1&allocationIds=t.1&stdtypes=stderr"
        "&timestampAfter=2026-01-01",
        "search": "searchText=a+b&enableRegex=true&onlyMatches=true",
    }
    assert call("log_text", "logQueryOf", "level=&rank=&only=1") == {"filter": "", "search": ""}
    assert call("log_text", "toggled", ["a", "b"], "a") == ["b"]
    assert call("log_text", "toggled", ["a"], "b") == ["a", "b"]


def test_times_of_lines(call: Call) -> None:
    at, began = 1_767_225_600 + 3725.25, 1_767_225_600
    assert call("log_text", "stamp", at, "", began, 0) == "01-01 02:02:05"
    assert call("log_text", "stamp", at, "start", began, 0) == "+1:02:05.2"
    assert call("log_text", "stamp", at, "ago", began, at + 65) == "−1 min 5 s"
    assert call("log_text", "stamp", at, "none", began, 0) == ""


def test_search_matches_are_split_out_of_log_text(call: Call) -> None:
    assert call("log_text", "matchesIn", "Loss a loss", "LOSS") == [[0, 4], [7, 11]]
    assert call("log_text", "matchesIn", "aaa", "aa") == [[0, 2]]
    assert call("log_text", "matchesIn", "abc", "") == []
    parts = call(
        "log_text", "splitAtMatches", [{"text": "abc", "style": "x"}, {"text": "def", "style": ""}], [[1, 4], [5, 6]]
    )
    assert [(one["text"], one["style"], one["isMatch"]) for one in parts] == [
        ("a", "x", False), ("bc", "x", True), ("d", "", True), ("e", "", False), ("f", "", True),
    ]  # fmt: skip
