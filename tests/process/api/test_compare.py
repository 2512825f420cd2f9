"""Trials and experiments side by side: values, settings, costs, and who may see what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import give, person, workspace_of
from tests.support.master import MasterProcess

SPACE = {"lr": {"type": "double", "minval": 1.0, "maxval": 2.0}, "net": {"depth": 3}}
RANDOM = {"name": "random", "metric": "loss", "max_trials": 2, "max_concurrent_trials": 2}
VIEWER = 5


def compare(api: Api, query: str) -> dict[str, Any]:
    answer = api.get(f"/api/x1/compare?{query}")
    assert answer.status == 200, answer.content
    return dict(answer.json)


@pytest.fixture
def pair(master: MasterProcess, user: Api) -> Iterator[list[Job]]:
    number = create(user, config(searcher=RANDOM, hyperparameters=SPACE, name="pair"))
    jobs = jobs_of(master, user, number)
    for at, job in enumerate(jobs):
        assert job.lease(f"played-{at}").status == 200
    yield jobs
    user.post(f"/api/v1/experiments/{number}/kill")


def test_values_at_the_end_and_at_equal_budget(user: Api, pair: list[Job]) -> None:
    one, other = pair
    one.send([one.validation(steps, loss=value, epochs=steps / 10) for steps, value in ((10, 0.9), (20, 0.5))])
    other.send([other.validation(steps, loss=value) for steps, value in ((10, 0.8), (20, 0.3), (30, 0.1), (40, 0.2))])
    found = compare(user, f"trials={other.trial_id},{one.trial_id}")
    assert (found["kind"], found["metric"], found["group"], found["xName"]) == (
        *("trials", "loss", "validation", "batches"),
    )
    assert [thing["id"] for thing in found["things"]] == [other.trial_id, one.trial_id]
    assert [(thing["best"], thing["last"], thing["atBudget"], thing["end"]) for thing in found["things"]] == [
        (0.1, 0.2, 0.3, 40),
        (0.5, 0.5, 0.5, 20),
    ]
    assert found["budget"] == 20
    assert found["curves"]["x"] == [10, 20, 30, 40]
    assert dict(zip(found["curves"]["trials"], found["curves"]["y"], strict=True)) == {
        other.trial_id: [0.8, 0.3, 0.1, 0.2],
        one.trial_id: [0.9, 0.5],
    }
    assert {"group": "validation", "name": "loss"} in found["metrics"]
    assert all(thing["attempts"] == 1 and thing["queueSeconds"] >= 0 for thing in found["things"])
    over = compare(user, f"trials={one.trial_id},{other.trial_id}&x=epochs")
    assert over["xName"] == "epochs"
    assert (over["things"][0]["end"], over["things"][1]["end"], over["budget"]) == (2, None, None)
    nothing = compare(user, f"trials={one.trial_id},{other.trial_id}&metric=nothing")
    assert nothing["curves"] is None
    assert [thing["best"] for thing in nothing["things"]] == [None, None]


def test_differing_settings_come_first_and_equal_ones_once(user: Api, pair: list[Job]) -> None:
    found = compare(user, f"trials={pair[0].trial_id},{pair[1].trial_id}")
    differ = [one for one in found["settings"] if len(one["values"]) > 1]
    assert [(one["part"], one["name"]) for one in differ] == [("hyperparameters", "lr")]
    assert found["settings"][: len(differ)] == differ
    trials = user.get(f"/api/v1/experiments/{pair[0].experiment_id}/trials").json["trials"]
    assert differ[0]["values"] == [trial["hparams"]["lr"] for trial in trials]
    same = {(one["part"], one["name"]): one["values"] for one in found["settings"] if len(one["values"]) == 1}
    assert same["hyperparameters", "net.depth"] == [3]
    assert same["environment", "resources.slots_per_trial"] == [1]
    assert same["configuration", "searcher.name"] == ["random"]
    assert found["settingsLeftOut"] == 0


def test_experiments_by_their_best_trials(user: Api, pair: list[Job]) -> None:
    one, other = pair
    one.send([one.validation(10, loss=0.9)])
    other.send([other.validation(10, loss=0.4)])
    secret = {"environment": {"environment_variables": ["HF_TOKEN=hf_verysecret"]}}
    third = create(user, config(name="third", **secret), activate=False)
    found = compare(user, f"experiments={third},{one.experiment_id}")
    assert [(thing["id"], thing["name"], thing["trials"]) for thing in found["things"]] == [
        (third, "third", 1),
        (one.experiment_id, "pair", 2),
    ]
    assert [thing["trial"] for thing in found["things"]] == [None, other.trial_id]
    assert found["things"][1]["best"] == 0.4
    assert "verysecret" not in json.dumps(found)
    differ = {(one["part"], one["name"]): one["values"] for one in found["settings"] if len(one["values"]) > 1}
    assert ("hyperparameters", "net.depth") in differ
    assert differ["configuration", "searcher.name"] == ["single", "random"]
    assert differ["configuration", "hyperparameters.lr"] == [None, "double 1.0 to 2.0"]
    assert differ["configuration", "hyperparameters.net.depth"] == [None, 3]
    user.post(f"/api/v1/experiments/{third}/kill")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"type": "log", "minval": -5, "maxval": -1, "base": 10}, "log 10.0^-5.0 to 10.0^-1.0"),
        ({"type": "int", "minval": 1, "maxval": 9, "count": 3}, "int 1 to 9, 3 values"),
        ({"type": "categorical", "vals": ["a", "b"]}, ["a", "b"]),
        ({"type": "const", "val": "adam"}, "adam"),
    ],
)
def test_hyperparameter_range_is_compared_as_one_value(user: Api, given: dict[str, Any], told: object) -> None:
    made = [create(user, config(searcher=RANDOM, hyperparameters=hp), activate=False) for hp in ({"x": given}, {})]
    found = compare(user, f"experiments={made[0]},{made[1]}")
    (setting,) = (one for one in found["settings"] if one["name"] == "hyperparameters.x")
    assert setting["values"] == [told, None]
    for number in made:
        user.post(f"/api/v1/experiments/{number}/kill")


def test_long_texts_that_differ_at_their_ends_differ(user: Api) -> None:
    made = [create(user, config(data={"note": "x" * 3000 + end}), activate=False) for end in ("a", "b")]
    found = compare(user, f"experiments={made[0]},{made[1]}")
    (note,) = [one for one in found["settings"] if one["name"] == "data.note"]
    assert len(note["values"]) == 2
    for number in made:
        user.post(f"/api/v1/experiments/{number}/kill")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "either trials=12,15 or experiments=3,4"),
        ("trials=1&experiments=2", "either trials=12,15 or experiments=3,4"),
        ("trials=a", "write numbers with commas, as trials=12,15, not 'a'"),
        ("trials=1,,2", "write numbers with commas"),
        ("experiments=0", "write numbers with commas"),
        ("trials=-1", "write numbers with commas"),
        ("trials=99999999999", "write numbers with commas"),
        ("trials=" + ",".join(map(str, range(1, 22))), "there are 21; at most 20 are compared at once"),
        ("trials=1&points=1", "points"),
        ("trials=" + "1" * 401, "trials"),
    ],
)
def test_bad_questions_are_answered_with_a_sentence(user: Api, query: str, said: str) -> None:
    answer = user.get(f"/api/x1/compare?{query}")
    assert answer.status == 400
    assert said in answer.json["message"]


def test_hidden_experiments_are_answered_like_missing_ones(rbac_admin: Api) -> None:
    made = []
    homes = [workspace_of(rbac_admin) for _ in range(2)]
    for _, project in homes:
        made.append(create(rbac_admin, config(), projectId=project, activate=False))
    ada = person(rbac_admin)
    give(rbac_admin, VIEWER, ada.id, homes[0][0])
    found = compare(ada.api, f"experiments={made[0]},{made[1]},999999")
    assert [thing["id"] for thing in found["things"]] == [made[0]]
    said = "There is no experiment {}, or it is in a workspace that you may not look into."
    assert found["missing"] == [{"id": one, "why": said.format(one)} for one in (made[1], 999999)]
    trials = [rbac_admin.get(f"/api/v1/experiments/{one}/trials").json["trials"][0]["id"] for one in made]
    found = compare(ada.api, f"trials={trials[1]},{trials[0]}")
    assert ([thing["id"] for thing in found["things"]], [one["id"] for one in found["missing"]]) == (
        [trials[0]],
        [trials[1]],
    )
    assert len(compare(rbac_admin, f"trials={trials[1]},{trials[0]}")["things"]) == 2
    for number in made:
        rbac_admin.post(f"/api/v1/experiments/{number}/kill")
