"""Searches that are tried on recorded curves: those of a user's table, or of an experiment whose jobs are played."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.api.http import Answer, Api
from tests.support.api.jobs import config, create, jobs_of
from tests.support.api.people import give, person, workspace_of
from tests.support.master import MasterProcess
from trainmaster.master.services.views.recorded_curves import MOST_TRIALS

Json = dict[str, Any]
SPACE = {"x": {"type": "int", "minval": 1, "maxval": 20}, "kind": "plain"}
RANDOM = {
    "name": "random", "metric": "loss", "max_trials": 6, "max_concurrent_trials": 2, "max_length": {"epochs": 4},
}  # fmt: skip
HALVING = {"name": "asha", "time_metric": "epochs", "max_time": 4, "divisor": 2, "max_trials": 20}
EDITOR = 5


def table(points: Sequence[Json] | None = None) -> Json:
    """Twenty trials of four epochs of a minute; those with a larger x are better."""
    given = [{"x": x} for x in range(1, 21)] if points is None else list(points)
    values = [[(30 - at) / (1 + epoch) for epoch in range(4)] for at in range(len(given))]
    return {"points": given, "values": values, "seconds": [60.0] * len(given)}


def simulate(api: Api, keys: Json | None = None, **body: Any) -> Answer:
    text = config(**{"searcher": RANDOM, "hyperparameters": SPACE, **(keys or {})})
    return api.post("/api/x1/search/simulate", {"config": text, **body})


def test_random_search_on_a_table_by_value(user: Api) -> None:
    found = simulate(user, workers=2, seeds=3, delay=30.0, **table()).json
    assert (found["metric"], found["smallerIsBetter"], found["timeMetric"]) == ("loss", True, "epochs")
    assert (found["searcher"], found["workers"], found["trials"], found["recorded"]) == ("random", 2, 20, None)
    for run in found["runs"]:
        assert run["lengths"] == [[4, 6]]
        assert run["seconds"] == 3 * (30.0 + 240.0)
        assert run["slotSeconds"] == 6 * 240.0
        assert run["bests"][0][0] == 90.0
    ends = sorted(run["bests"][-1][1] for run in found["runs"])
    course = found["course"]
    assert (course["seconds"][-1], course["median"][-1]) == (810.0, ends[1])
    assert course["lower"][-1] == pytest.approx((ends[0] + ends[1]) / 2)
    assert course["upper"][-1] == pytest.approx((ends[1] + ends[2]) / 2)


def test_jobs_are_cut_at_the_walltime(user: Api) -> None:
    (run,) = simulate(user, workers=1, seeds=1, delay=100.0, walltime=150.0, **table()).json["runs"]
    # Two epochs and a half one, which is lost; then the other two.
    assert run["seconds"] == pytest.approx(6 * (100.0 + 150.0 + 100.0 + 120.0))
    assert run["slotSeconds"] == pytest.approx(6 * 270.0)


def test_another_searcher_stops_trials(user: Api) -> None:
    found = simulate(user, workers=4, seeds=2, searcher=HALVING, **table()).json
    assert found["searcher"] == "asha"
    for run in found["runs"]:
        lengths = dict(run["lengths"])
        assert sum(lengths.values()) == 20
        assert lengths[1] > lengths[4] > 0
        assert run["slotSeconds"] == 60.0 * sum(units * count for units, count in lengths.items())


def test_values_that_were_no_numbers_are_never_the_best(user: Api) -> None:
    rows = table()
    rows["values"][19] = [None, None, None, 0.01]
    rows["values"][18] = [None] * 4
    found = simulate(user, {"searcher": {**RANDOM, "max_trials": 100}}, seeds=1, **rows).json
    assert found["runs"][0]["bests"][-1][1] == 0.01
    assert found["runs"][0]["trials"] == 100


def test_nothing_is_created(user: Api) -> None:
    before = user.get("/api/v1/experiments?limit=1").json["pagination"]["total"]
    assert simulate(user, seeds=1, **table()).status == 200
    assert user.get("/api/v1/experiments?limit=1").json["pagination"]["total"] == before


@pytest.mark.parametrize(
    ("keys", "body", "words"),
    [
        ({}, {}, "Send either the number of an experiment (experimentId), or a table"),
        ({}, {**table(), "experimentId": 1}, "Send either the number of an experiment"),
        ({"sercher": {}}, table(), "sercher"),
        ({"searcher": {"name": "random", "metric": "loss"}}, table(), "max_trials"),
        ({}, {**table(), "searcher": {"name": "rondom"}}, "there is no searcher 'rondom'"),
        ({}, {**table(), "searcher": {"max_trials": 10**8}}, "limits.trials"),
        ({}, {**table(), "searcher": {"max_trials": "many"}}, "searcher.max_trials"),
        ({}, {**table(), "searcher": {"divsor": 3}}, "searcher.divsor is no key of random; it has ask_tell"),
        ({}, {**table(), "searcher": {"name": "custom"}}, "searcher.name: custom decides in a program of its own"),
        ({}, {**table(), "searcher": {**HALVING, "max_time": 9}}, "searcher.max_time is 9, but the curves of the"),
        ({}, {**table(), "seconds": [1.0]}, "20 points, 20 lists of values and 1 seconds"),
        ({}, {**table(), "seconds": [0.0] * 20}, "Trial 1 of the table: seconds of a unit must be above 0"),
        ({}, {**table(), "values": [[]] * 20}, "Trial 1 of the table has no values"),
        ({}, table([{"x": [1]}]), "Trial 1 of the table: x must be a text of at most 1000 characters"),
        ({}, table([{"x": 10**400}]), "Trial 1 of the table: x must be"),
        ({}, table([{"x": "a" * 1001}]), "Trial 1 of the table: x must be"),
        ({}, table([{f"x{at}": 1 for at in range(201)}]), "Trial 1 of the table has 201 hyperparameters"),
        ({}, table([{"y": 1}]), "hyperparameters.x: no recorded trial has it"),
        (
            {"hyperparameters": {"x": {"type": "categorical", "vals": ["a", "b"]}}},
            table([{"x": 1}, {"x": 2}]),
            "hyperparameters.x: no recorded trial has one of its values; they have '1', '2'",
        ),
        ({}, {**table(), "seeds": 51}, "seeds"),
        ({}, {**table(), "walltime": 0}, "walltime"),
        ({}, {**table(), "workers": 0}, "workers"),
        ({}, {"points": [{"x": 1}] * (MOST_TRIALS + 1), "values": [[1]] * (MOST_TRIALS + 1)}, "lists of values"),
        ({}, table([{"x": 1}] * (MOST_TRIALS + 1)), f"has {MOST_TRIALS + 1} trials; at most {MOST_TRIALS}"),
    ],
)
def test_bad_requests_get_a_sentence(user: Api, keys: Json, body: Json, words: str) -> None:
    answer = simulate(user, keys, **body)
    assert answer.status == 400, answer.content
    assert words in answer.json["message"]


def test_a_body_with_too_many_values_is_refused_before_it_is_read(user: Api) -> None:
    answer = simulate(user, points=[{"x": 1}], seconds=[1.0], values=[[0] * 1_000_001])
    assert answer.status == 413
    assert "limits.request_values" in answer.json["message"]


def test_trials_that_never_finish_a_unit_leave_no_best_value(user: Api) -> None:
    found = simulate(user, seeds=2, walltime=59.0, **table()).json
    assert [run["bests"] for run in found["runs"]] == [[], []]
    assert set(found["course"]["median"]) == {None}


def test_curves_of_an_experiment_are_for_those_who_may_see_it(rbac_master: MasterProcess, rbac_admin: Api) -> None:
    home, project = workspace_of(rbac_admin)
    other, _ = workspace_of(rbac_admin)
    names = {at: rbac_admin.get(f"/api/v1/workspaces/{at}").json["workspace"]["name"] for at in (home, other)}
    number = create(rbac_admin, config(searcher={"name": "single", "metric": "loss"}), projectId=project)
    (job,) = jobs_of(rbac_master, rbac_admin, number)
    assert job.lease().status == 200
    reports = [job.validation(step, loss=1 / step, score=step, epochs=step) for step in (1, 2, 3)]
    assert job.send(reports).status == 200
    ada, grace = person(rbac_admin), person(rbac_admin)
    give(rbac_admin, EDITOR, ada.id, home)
    give(rbac_admin, EDITOR, grace.id, other)
    single = {"name": "single", "metric": "loss", "max_length": {"epochs": 3}}

    def ask(api: Api, workspace: int, experiment: int, **more: Any) -> Answer:
        searcher = {**single, **more}
        keys = {"searcher": searcher, "hyperparameters": {}, "workspace": names[workspace], "project": "p"}
        return simulate(api, keys, experimentId=experiment, seeds=1)

    found = ask(ada.api, home, number).json
    assert found["recorded"]["bests"][-1][1] == pytest.approx(1 / 3)
    assert found["runs"][0]["lengths"] == [[3, 1]]
    other_metric = ask(ada.api, home, number, metric="score", smaller_is_better=False).json
    assert other_metric["runs"][0]["bests"][-1][1] == 3.0
    unknown = ask(ada.api, home, number, metric="sore")
    assert f"No trial of experiment {number} has reported sore yet" in unknown.json["message"]
    hidden, missing = (ask(grace.api, other, experiment) for experiment in (number, 2_000_000_000))
    assert (hidden.status, missing.status) == (404, 404)
    assert hidden.json["message"] == f"not found: There is no experiment {number}."
    assert ask(ada.api, other, number).status in (403, 404)
    rbac_admin.post(f"/api/v1/experiments/{number}/kill")
