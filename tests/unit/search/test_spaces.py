"""Spaces with steps, conditions and priors: what is drawn of them, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainmaster.config.experiment import parse_experiment
from trainmaster.config.messages import ConfigError
from trainmaster.master.search import Create, Search, SearchError
from trainmaster.master.search.axes import Axes
from trainmaster.master.search.hyperparameters import Grid, sample
from trainmaster.master.search.mersenne import RandomState
from trainmaster.master.search.neighbours import Perturbation

SPACE: dict[str, Any] = {
    "width": {"type": "int", "minval": 8, "maxval": 67, "step": 8},
    "drop": {"type": "double", "minval": 0.0, "maxval": 0.5, "step": 0.1},
    "optimizer": {"type": "categorical", "vals": ["sgd", "adam"]},
    "momentum": {"type": "double", "minval": 0.5, "maxval": 0.9, "when": {"optimizer": "sgd"}},
    "decay": {
        "kind": {"type": "categorical", "vals": ["none", "step", "cosine"], "when": {"optimizer": ["sgd"]}},
        "every": {"type": "int", "minval": 1, "maxval": 9, "when": {"decay.kind": ["step", "cosine"]}},
    },
}


def fits(point: dict[str, Any]) -> None:
    assert point["width"] in range(8, 68, 8)
    assert point["drop"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert ("momentum" in point) == ("kind" in point["decay"]) == (point["optimizer"] == "sgd")
    assert ("every" in point["decay"]) == (point["decay"].get("kind") in ("step", "cosine"))


def test_every_way_to_choose_keeps_steps_and_conditions() -> None:
    stream = RandomState(3)
    axes, change = Axes(SPACE), Perturbation(SPACE, 1.2, 0.2)
    seen = set()
    for _ in range(300):
        point = sample(SPACE, stream)
        fits(point)
        fits(change.of(point, stream))
        fits(axes.point([stream.unit() if axis.categories is None else float(stream.below(len(axis.categories)))
                         for axis in axes.all]))  # fmt: skip
        seen.add(json.dumps(sorted(point)))
    assert len(seen) == 2


def test_a_condition_changes_no_other_draw() -> None:
    free = {name: {k: v for k, v in value.items() if k != "when"} for name, value in SPACE.items() if name != "decay"}
    bound = {name: value for name, value in SPACE.items() if name != "decay"}
    for seed in range(20):
        with_all, without = sample(free, RandomState(seed)), sample(bound, RandomState(seed))
        assert without == {name: with_all[name] for name in without}


def test_a_grid_takes_every_step() -> None:
    grid = Grid({name: SPACE[name] for name in ("width", "drop")})
    assert grid.size == 8 * 6
    points = [grid.point(number) for number in range(grid.size)]
    assert {point["width"] for point in points} == set(range(8, 68, 8))
    assert {point["drop"] for point in points} == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}


def test_axes_return_the_values_that_they_were_given() -> None:
    axes = Axes(SPACE | {"rate": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "k": 3})
    values = {"width": 24, "drop": 0.3, "optimizer": "adam", "momentum": 0.7, "kind": "step", "every": 4, "rate": 0.01}
    for axis in axes.all:
        assert axis.at(axis.of(values[axis.path[-1]])) == pytest.approx(values[axis.path[-1]])


def complaints(searcher: str = "random", keys: dict[str, Any] | None = None, **space: Any) -> list[str]:
    config = {
        "name": "x", "entrypoint": "true", "checkpoint_storage": {"type": "shared_fs", "host_path": "/tmp"},
        "hyperparameters": space, "searcher": {"name": searcher, "metric": "m", **(keys or {})},
    }  # fmt: skip
    if searcher == "random":
        config["searcher"]["max_trials"] = 3  # type: ignore[index]
    try:
        parse_experiment(json.dumps(config))
    except ConfigError as error:
        return [str(each).partition(": ")[2] for each in error.complaints]
    return []


RATE = {"type": "log", "base": 10, "minval": -4, "maxval": -1}


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (
            {"a": {**SPACE["width"], "step": 60}},
            "hyperparameters.a.step: must be at most maxval - minval (59), found 60",
        ),
        ({"a": {**SPACE["drop"], "step": 0}}, "hyperparameters.a.step: must be above 0, found 0"),
        ({"a": {**RATE, "prior": 0.5}}, "hyperparameters.a.prior: must lie between 0.0001 and 0.1, found 0.5"),
        ({"a": {**SPACE["drop"], "prior": "x"}}, "hyperparameters.a.prior: a number is wanted, found the text 'x'"),
        (
            {"a": {**SPACE["optimizer"], "prior": "lion"}},
            "hyperparameters.a.prior: must be one of vals, found the text",
        ),
        ({"a": {**RATE, "when": {"b": 1}}}, "hyperparameters.a.when.b: there is no such hyperparameter"),
        ({"a": {**RATE, "when": {"a": 1}}}, "hyperparameters.a.when.a: a hyperparameter cannot depend on itself"),
        (
            {"a": {**RATE, "when": {"o": "lion"}}, "o": SPACE["optimizer"]},
            "hyperparameters.a.when.o: o never has this value",
        ),
        ({"a": {**RATE, "step": 1}}, "hyperparameters.a.step: unknown key"),
    ],
)
def test_what_can_never_be_is_refused_with_its_key(space: dict[str, Any], says: str) -> None:
    assert [each for each in complaints(**space) if each.startswith(says)], complaints(**space)


FORBIDDEN = [{"optimizer": "sgd", "momentum": {"min": 0.8}}, {"drop": [0.4, 0.5]}]


@pytest.mark.parametrize("name", ["random", "asha", "auto"])
def test_forbidden_combinations_are_never_tried(name: str) -> None:
    section: dict[str, Any] = {"name": name, "metric": "m", "max_trials": 60, "max_concurrent_trials": 0}
    if name != "random":
        section |= {"time_metric": "epochs", "max_time": 9, "divisor": 3}
    section |= {"max_concurrent_trials": 60, "forbidden": FORBIDDEN, "first_points": [{"drop": 0.1, "width": 24}]}
    _, actions = Search.start(section, SPACE, 3)
    points = [action.hparams for action in actions if isinstance(action, Create)]
    assert len(points) == 60
    assert (points[0]["drop"], points[0]["width"]) == (0.1, 24)
    for point in points:
        fits(point)
        assert point["drop"] not in (0.4, 0.5)
        assert point.get("momentum", 0) < 0.8


def test_too_many_forbidden_combinations_get_a_sentence() -> None:
    section = {"name": "random", "metric": "m", "max_trials": 6, "forbidden": [{"optimizer": ["sgd", "adam"]}]}
    with pytest.raises(SearchError, match="forbidden leaves too little"):
        Search.start(section, SPACE, 3)
    grid = {"name": "grid", "metric": "m", "forbidden": [{"a": [0.1]}]}
    space = {"a": {"type": "categorical", "vals": [0.1, 0.2]}, "b": {"type": "categorical", "vals": ["x", "y"]}}
    _, actions = Search.start(grid, space, 3)
    assert [a.hparams for a in actions if isinstance(a, Create)] == [{"a": 0.2, "b": "y"}, {"a": 0.2, "b": "x"}]
    with pytest.raises(SearchError, match="excludes all points of the grid"):
        Search.start({**grid, "forbidden": [{"b": ["x", "y"]}]}, space, 3)


def test_the_users_guess_is_tried_first_and_looked_near() -> None:
    space = {"rate": {**RATE, "prior": 0.003}, "width": SPACE["width"]}
    section = {
        "name": "auto", "metric": "m", "max_trials": 60, "max_concurrent_trials": 60, "time_metric": "epochs",
        "max_time": 9,
    }  # fmt: skip
    _, actions = Search.start(section, space, 3)
    rates = [action.hparams["rate"] for action in actions if isinstance(action, Create)]
    assert rates[0] == pytest.approx(0.003)
    assert sum(0.001 < rate < 0.01 for rate in rates) > 60 * 0.4  # a third of the axis


@pytest.mark.parametrize(
    ("searcher", "says"),
    [
        ({"first_points": [{"b": 1}]}, "searcher.first_points[0].b: there is no such hyperparameter"),
        ({"first_points": [{"a": 5}]}, "searcher.first_points[0].a: the number 5 is not in the range"),
        ({"forbidden": [{"b": 1}]}, "searcher.forbidden[0].b: there is no such hyperparameter"),
        ({"forbidden": [{}]}, "searcher.forbidden[0]: it names no hyperparameter"),
        ({"forbidden": [{"a": {"above": 1}}]}, "searcher.forbidden[0].a: a range is written {min: NUMBER"),
        ({"forbidden": [{"a": {"min": "x"}}]}, "searcher.forbidden[0].a: a range is written {min: NUMBER"),
        ({"forbidden": 5}, "searcher.forbidden"),
        ({"first_points": 5}, "searcher.first_points"),
    ],
)
def test_points_and_combinations_must_fit_the_space(searcher: dict[str, Any], says: str) -> None:
    found = complaints("random", searcher, a=RATE)
    assert [each for each in found if each.startswith(says)], found


@pytest.mark.parametrize(
    "value",
    [{**RATE, "when": 5}, {"type": "log", "base": 10}, {"type": "int", "minval": "x", "maxval": 3}],
)
def test_hyperparameter_that_is_none_is_the_only_complaint(value: dict[str, Any]) -> None:
    found = complaints("random", {"first_points": [{"a": 1}], "forbidden": [{"a": 1}]}, a=value)
    assert found
    assert all(each.startswith("hyperparameters.a") for each in found), found


@pytest.mark.parametrize(
    "value",
    [
        {"type": "int", "minval": 1, "maxval": 10**12, "step": 7},
        {"type": "double", "minval": 0.0, "maxval": 1.0, "step": 3e-5},
    ],
)
def test_ranges_with_many_steps_keep_them(value: dict[str, Any]) -> None:
    (axis,) = Axes({"a": value}).all
    for place in (0.0, 0.3, 0.999999999, 1.0):
        found = axis.at(place)
        assert value["minval"] <= found <= value["maxval"]
        count = (found - value["minval"]) / value["step"]
        assert count == pytest.approx(round(count), abs=1e-6)


def test_a_grid_refuses_conditions() -> None:
    (said,) = complaints("grid", a={**SPACE["drop"], "when": {"o": "sgd"}}, o=SPACE["optimizer"])
    assert said.startswith("hyperparameters.a.when: a grid search cannot enumerate conditions")


def test_configurations_without_them_are_shown_as_before() -> None:
    text = json.dumps({"hyperparameters": {"a": {"type": "int", "minval": 1, "maxval": 4}, "b": RATE}})
    shown = parse_experiment(
        f'{text[:-1]}, "name": "x", "entrypoint": "true", '
        '"checkpoint_storage": {"type": "shared_fs", "host_path": "/tmp"}, '
        '"searcher": {"name": "random", "metric": "m", "max_trials": 2}}'
    ).to_json()["hyperparameters"]
    assert shown["a"] == {"type": "int", "minval": 1, "maxval": 4, "count": None}
    assert set(shown["b"]) == {"type", "base", "minval", "maxval", "count"}


KNOWN_SPACE = {
    "lr": {"type": "log", "base": 10, "minval": -4, "maxval": 0},
    "act": {"type": "categorical", "vals": ["a", "b"]},
}


def test_search_looks_first_where_earlier_ones_found_good_points() -> None:
    known = [{"hparams": {"lr": 0.01 * (1 + n / 50), "act": "b"}, "rank": n / 40} for n in range(10)]
    known += [{"hparams": {"lr": 0.9, "act": "a"}, "rank": n / 40} for n in range(10, 40)]
    known += [{"hparams": {"lr": 7.0, "act": "b"}, "rank": 0}, {"hparams": {"act": "b"}, "rank": 0}]  # of other spaces
    section = {
        "name": "auto", "metric": "loss", "time_metric": "epochs", "max_time": 9, "max_trials": 60,
        "max_concurrent_trials": 60, "known": known,
    }  # fmt: skip
    _, actions = Search.start(section, KNOWN_SPACE, seed=2)
    points = [action.hparams for action in actions if isinstance(action, Create)]
    assert points[0] == {"lr": pytest.approx(0.01), "act": "b"}
    near = [point for point in points if point["act"] == "b" and 0.002 < point["lr"] < 0.05]
    assert len(near) > 30, "most points lie where the good ones were, a part of them anywhere"
    assert len(near) < 60
