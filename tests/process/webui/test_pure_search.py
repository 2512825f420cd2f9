"""The pure modules of searches, called in the browser that runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.browser
Call = Callable[..., Any]


def test_trials_are_told_apart_by_who_holds_them(call: Call) -> None:
    head = {"maxTime": 9}
    wanted = {
        ("ACTIVE", "", ""): ("ACTIVE", "live"),
        ("PAUSED", "", ""): ("PAUSED", "live"),
        ("PAUSED", "", "paused"): ("PAUSED_BY_SEARCH", "paused"),
        ("ACTIVE", "", "resumed"): ("ACTIVE", "live"),
        ("COMPLETED", "searcher", ""): ("STOPPED", "stopped"),
        ("COMPLETED", "", ""): ("COMPLETED", "ended"),
        ("ERROR", "", ""): ("ERROR", "failed"),
    }
    for (state, stop, pause), found in wanted.items():
        row = {"state": state, "stop": stop, "searchPause": pause, "units": 3}
        assert (call("trials", "stateOf", row, head), call("trials", "lookOf", row, head)) == found


def test_copies_are_below_what_they_are_copied_from(call: Call) -> None:
    def row(number: int, parent: int | None, started: float, **values: Any) -> dict[str, Any]:
        found = {"id": number, "parent": parent, "started": started, "ended": started + 3600, "units": 9}
        return found | {"unitsFrom": 1 if parent is None else 4, **values}

    rows = [
        row(1, None, 0, **{"hp.lr": 0.1, "hp.name": "sgd"}),
        row(2, None, 0),
        row(3, 1, 1800, **{"hp.lr": 0.12, "hp.name": "sgd"}),
        row(4, 3, 3600, **{"hp.lr": 0.12, "hp.name": "adam"}),
        row(5, 77, 0),  # of a trial that is gone
    ]
    found = call("lineage", "lanesOf", rows, ["lr", "name"], {"units": True, "now": 9999})
    lanes = {lane["id"]: lane for lane in found["lanes"]}
    assert list(lanes) == [1, 3, 4, 2, 5]
    assert [lanes[number]["from"] for number in (1, 3, 4)] == [0, 4, 4]
    assert lanes[4]["changes"] == [{"name": "name", "before": "sgd", "after": "adam"}]
    assert call("lineage", "changeText", lanes[3]["changes"]) == "lr 0.1000 → 0.1200"
    assert [lane["id"] for lane in call("lineage", "descentOf", found["lanes"], 4)] == [1, 3, 4]
    hours = call("lineage", "lanesOf", rows, [], {"units": False, "now": 9999})["lanes"]
    assert [(lane["from"], lane["to"]) for lane in hours[:3]] == [(0, 1), (0.5, 1.5), (1, 2)]
    many = call("lineage", "lanesOf", [row(at, at - 1 or None, 0) for at in range(1, 5001)], [], {"units": True})
    assert (len(many["lanes"]), many["left"]) == (300, 4700)


def test_what_another_searcher_would_have_found(call: Call) -> None:
    form = {"searcher": "asha", "settings": "divisor=2 metric=loss", "workers": "", "seeds": "", "deaths": ""}
    form |= {"delay": "60", "spread": "0.5"}
    request: dict[str, Any] = {"searcher": {"name": "asha", "divisor": 2, "metric": "loss"}}
    request |= {"workers": None, "seeds": 5}
    request |= {"delay": 60, "delay_spread": 0.5, "deaths": 0}
    assert call("what_if", "requestOf", form) == {"request": request}
    assert call("what_if", "argumentsOf", 7, request) == [
        *("det", "search", "what-if", "7", "--searcher", "asha", "--set", "divisor=2", "--set", "metric=loss"),
        *("--queue-delay", "60:0.5", "--seeds", "5"),
    ]
    refused = {
        "settings": ("divisor", 'Settings takes KEY=VALUE, such as divisor=3, not "divisor".'),
        "workers": ("many", 'Workers takes a number, not "many".'),
    }
    for key, (text, sentence) in refused.items():
        assert call("what_if", "requestOf", form | {key: text}) == {"sentence": sentence}
    empty = call("what_if", "requestOf", form | {"searcher": " ", "settings": ""})
    assert empty == {"sentence": "Name a searcher, or a setting that is to be another."}

    def run(*bests: tuple[float, float], seconds: float = 100) -> dict[str, Any]:
        return {"bests": bests, "seconds": seconds, "slotSeconds": seconds * 4, "trials": 3, "lengths": []}

    recorded = run((0, 0.5), (50, 0.2))
    runs = [run((10, 0.2)), run((20, 0.4), (90, 0.1)), run((30, 0.6), seconds=40)]
    answer = {"runs": runs, "recorded": recorded, "smallerIsBetter": True}
    found = call("what_if", "outcome", answer)
    assert found == {
        "target": 0.2, "best": 0.2, "seconds": 100, "slotSeconds": 400, "trials": 3, "reached": 50, "never": 1,
    }  # fmt: skip
    larger = call("what_if", "outcome", answer | {"smallerIsBetter": False})
    assert (larger["reached"], larger["never"]) == (20, 0)
    curves = call("what_if", "bestCurves", runs)
    at = dict(zip(curves["x"], zip(*curves["y"], strict=True), strict=True))
    assert (at[0], at[20], at[90]) == ((None, None, None), (0.2, 0.4, None), (0.2, 0.1, None))
    middle = dict(zip(curves["x"], call("what_if", "medianCurve", curves["y"]), strict=True))
    assert (middle[0], middle[30], middle[90], middle[100]) == (None, 0.4, 0.2, 0.2)


PLAN: dict[str, Any] = {
    "budget": {"maxTrials": 100, "slotHours": 200, "deadline": "2026-11-27T12:00:00Z"},
    "used": {"trials": 34, "slotHours": 50},
    "forecast": {"trials": 80, "slotHours": 150, "end": "2026-11-27T10:00:00Z"},
    "wait": {"median": 300, "jobs": 34},
    "unitSeconds": 62,
    "sentences": [],
}


def test_plan_is_drawn_in_shares_of_its_limits(call: Call) -> None:
    hours = call("plan", "hoursBar", PLAN)
    assert hours == {
        "done": 0.25, "forecast": 0.75, "limit": 1, "over": False,
        "text": "50 of 200 slot-hours used, 150 expected in the end",
    }  # fmt: skip
    more = call("plan", "hoursBar", PLAN | {"forecast": {"trials": None, "slotHours": 400, "end": None}})
    assert (more["done"], more["forecast"], more["limit"], more["over"]) == (0.125, 1, 0.5, True)
    assert call("plan", "hoursBar", PLAN | {"budget": {"slotHours": None, "deadline": None}}) is None

    noon = 1_795_780_800_000  # 2026-11-27T12:00:00Z
    hour = 3_600_000
    until = call("plan", "deadlineBar", PLAN, noon - 10 * hour, noon - 5 * hour)
    assert until == {
        "done": 0.5, "forecast": 0.8, "limit": 1, "over": False,
        "text": "deadline in 5 h; end expected in 3 h, 2 h before the deadline",
    }  # fmt: skip
    late = PLAN | {"forecast": {"trials": None, "slotHours": None, "end": "2026-11-27T22:00:00Z"}}
    until = call("plan", "deadlineBar", late, noon - 10 * hour, noon - 5 * hour)
    assert (until["done"], until["forecast"], until["limit"], until["over"]) == (0.25, 1, 0.5, True)
    assert until["text"].endswith("10 h after the deadline")
    odd = PLAN | {"budget": {"maxTrials": None, "slotHours": None, "deadline": "soon"}}
    assert call("plan", "deadlineBar", odd, 0, 1) is None
    assert call("plan", "basisOf", PLAN, "epochs") == [
        "34 trials of at most 100, 80 expected in the end",
        "1 min 2 s a unit (epochs)",
        "5 min in the queue (median of 34 jobs)",
    ]


def test_front_holds_points_that_no_other_beats(call: Call) -> None:
    places = [(1, 0.3, 5), (2, 0.2, 9), (3, 0.3, 4), (4, 0.5, 4), (5, 0.6, 1), (6, 0.2, 9), (7, 0.9, 1), (8, 0.1, None)]
    points = [{"id": number, "x": x, "y": y} for number, x, y in places if y is not None]

    def front(smaller_x: bool, smaller_y: bool) -> list[int]:
        return [point["id"] for point in call("pareto", "paretoFront", points, smaller_x, smaller_y)]

    assert front(True, True) == [2, 6, 3, 5]
    assert front(False, False) == [7, 4, 1, 2, 6]
    assert front(True, False) == [2, 6]
    assert call("pareto", "paretoFront", [], True, True) == []
    likely = {"val_loss": True, "latency": True, "accuracy": False, "top1_acc": False, "mAP": False, "F1": False}
    assert {name: call("pareto", "smallerIsLikely", name) for name in likely} == likely
