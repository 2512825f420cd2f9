"""Names of people's things in addresses of the API: each works whatever characters it has, or is refused where it is
made."""

from __future__ import annotations

import json
import uuid
from urllib.parse import quote

import pytest

from tests.support.api.http import Api, Json
from tests.support.api.jobs import config, create
from trainmaster.config.experiment import parse_experiment
from trainmaster.config.master import parse_master
from trainmaster.config.messages import ConfigError
from trainmaster.config.names import no_segment, only_dots
from trainmaster.config.overrides import override
from trainmaster.config.source import read
from trainmaster.master.http.permissions import ENDPOINTS

NAMES = (
    "plain", "two words", "ä 好 🙂", "50%", "%2F", "%2e%2e", "a.b", "...", "a+b", "a?b#c", "a&b=c", "a;b", 'a"b',
    "a\\b", "~a", "a:b", "1e5", "a@b.org",
)  # fmt: skip
SLASHES = ("nlp/bert", "/a", "a/", "a//b", "a/../b", "%2F/x")
DOTS = (".", "..")


def encoded(name: str) -> str:
    return quote(name, safe="")


@pytest.fixture
def unique() -> str:
    return uuid.uuid4().hex[:8]


@pytest.mark.parametrize("label", [*NAMES, *SLASHES])
def test_labels(user: Api, label: str) -> None:
    number = create(user, config(labels=[label]), activate=False)
    path = f"/api/v1/experiments/{number}/labels"

    def labels() -> list[str]:
        found: list[str] = user.get(f"/api/v1/experiments/{number}").json["experiment"]["labels"]
        return found

    assert labels() == [label]  # as the file has it
    assert user.call("DELETE", f"{path}/{encoded(label)}").json["labels"] == []
    assert user.call("PUT", f"{path}/{encoded(label)}").json["labels"] == [label.strip()]
    assert user.call("DELETE", f"{path}/{encoded(label.strip())}").status == 200
    assert labels() == []


@pytest.mark.parametrize("label", DOTS)
def test_labels_of_only_dots_are_rejected(user: Api, label: str) -> None:
    answer = user.post("/api/v1/experiments", {"config": config(labels=[label])})
    assert (answer.status, f"{label!r} cannot be a label" in answer.sentence) == (400, True)
    number = create(user, activate=False)
    answer = user.call("PATCH", f"/api/v1/experiments/{number}", {"labels": [label]})
    assert (answer.status, f"{label!r} cannot be a label" in answer.sentence) == (400, True)


def called(name: str, unique: str) -> str:
    """The name as part of one that no other test has; still only dots where it is."""
    return name if name in DOTS else f"{unique}{name}{unique}"


@pytest.mark.parametrize("name", NAMES)
def test_templates_and_models(user: Api, name: str, unique: str) -> None:
    mine = called(name, unique)
    path = f"/api/v1/templates/{encoded(mine)}"
    assert user.post(path, {"config": {"description": "x"}}).status == 200
    assert user.get(path).json["template"]["name"] == mine
    assert user.call("DELETE", path).status == 200
    assert user.post("/api/v1/models", {"name": mine}).status == 200
    path = f"/api/v1/models/{encoded(mine)}"
    assert user.get(path).json["model"]["name"] == mine
    assert user.get(f"{path}/versions").json["modelVersions"] == []
    assert user.post(f"{path}/archive").status == 200
    assert user.call("DELETE", path).status == 200


@pytest.mark.parametrize("name", [*SLASHES, *DOTS])
def test_models_users_templates_reject_names_unfit_for_addresses(user: Api, admin: Api, name: str) -> None:
    answer = user.post("/api/v1/models", {"name": name})
    assert (answer.status, "cannot be the name of a model" in answer.sentence) == (400, True)
    body = {"user": {"username": name, "active": True, "remote": True}}
    answer = admin.post("/api/v1/users", body)
    assert (answer.status, "cannot be a user's name" in answer.sentence) == (400, True)
    made = user.post("/api/v1/templates/fine", {"config": {}})
    assert made.status in (200, 409)
    answer = user.call("PATCH", "/api/v1/templates/fine/name", {"newName": name})
    assert answer.status in (400, 404, 405)


@pytest.mark.parametrize("name", ["ä.好", "50%", "%2f", "a@b.org", "dom\\user", "a+b", "..."])
def test_users(admin: Api, name: str, unique: str) -> None:
    mine = called(name, unique)
    assert admin.post("/api/v1/users", {"user": {"username": mine, "active": True, "remote": True}}).status == 200
    found = admin.get(f"/api/v1/users/{encoded(mine)}/by-username")
    assert (found.status, found.json["user"]["username"]) == (200, mine)


@pytest.mark.parametrize("name", [*NAMES, *SLASHES])
def test_external_ids_of_experiments(user: Api, name: str, unique: str) -> None:
    mine = called(name, unique)
    path = f"/api/v1/experiments/by-external-id/{encoded(mine)}"
    body: Json = {"config": config(), "unmanaged": True}
    made = user.call("PUT", path, body)
    assert made.status == 200, made.content
    number = made.json["experiment"]["id"]
    assert user.call("PUT", path, body).json["experiment"]["id"] == number
    trial = {"experimentId": number, "unmanaged": True}
    made = user.call("PUT", "/api/v1/trials", {"createTrialRequest": trial, "externalTrialId": mine})
    assert made.status == 200, made.content
    found = user.get(f"/api/v1/trials/by-external-id/{encoded(mine)}/{encoded(mine)}")
    assert found.json["trial"]["id"] == made.json["trial"]["id"]
    refused = user.call("PUT", "/api/v1/trials", {"createTrialRequest": trial, "externalTrialId": ".."})
    assert (refused.status, "cannot be the external id" in refused.sentence) == (400, True)
    assert user.post(f"/api/v1/experiments/{number}/kill").status == 200


def test_pools_of_docker_hosts() -> None:
    text = "resource_manager: {{type: agent}}\nresource_pools: [{{pool_name: {!r}}}]\n"
    for name in ("a.b", "two words", "ä"):
        parse_master(text.format(name), source="master.yaml")
    for name in ("a/b", "..", "."):
        with pytest.raises(ConfigError, match=r"pool_name: '.*' cannot be a name here"):
            parse_master(text.format(name), source="master.yaml")


def test_keys_of_metadata(user: Api) -> None:
    for name in ("a/b", "two words", "..x", "%2f"):
        assert user.get(f"/api/v1/projects/1/metadata/{encoded(name)}").json == {"values": []}


# What people choose in addresses; the rest are numbers, UUIDs, and names that the master or the site chooses.
CHOSEN = {
    "label", "template_name", "model_name", "username", "pool_name", "name", "key", "external_experiment_id",
    "external_trial_id", "alias",
}  # fmt: skip
MADE_HERE = {
    "agent_id", "allocation_id", "checkpoint_uuid", "command_id", "experiment_id", "group_id", "mark", "notebook_id",
    "path", "project_id", "resources_id", "role_id", "service_id", "shell_id", "slot_id", "task_id", "tensorboard_id",
    "token", "token_id", "trial_id", "user_id", "uuid", "version", "webhook_id", "workload_type", "workspace_id",
    "number", "rest", "session_id",
}  # fmt: skip


def test_every_name_in_addresses_is_of_a_tested_kind() -> None:
    words = {
        part.strip("{}").partition(":")[0]
        for key in ENDPOINTS
        for part in key.split(" ")[1].split("/")
        if part.startswith("{")
    }
    assert words - CHOSEN - MADE_HERE == set()


def test_no_segment_finds_slashes_and_only_dots() -> None:
    assert (no_segment("a/b"), only_dots("a/b")) == ("it has a slash", "")
    for name in DOTS:
        assert no_segment(name) == only_dots(name) != ""
    assert [name for name in NAMES if no_segment(name)] == []


# -- dots in names of hyperparameters -------------------------------------------------------------------------------

SPACE = {
    "dotted": '{"model.lr": {type: double, minval: 0, maxval: 1}}',
    "nested": "{model: {lr: {type: double, minval: 0, maxval: 1}}}",
    "mixed": '{"a.b": {c.d: {type: double, minval: 0, maxval: 1}}}',
}
STORAGE = [{"checkpoint_storage": {"type": "shared_fs", "host_path": "/tmp"}}]


def space(hyperparameters: str, *overrides: str) -> Json:
    text = f"entrypoint: x\nsearcher: {{name: single, metric: m}}\nhyperparameters: {hyperparameters}\n"
    found: Json = parse_experiment(text, defaults=STORAGE, overrides=overrides).to_json()["hyperparameters"]
    return found


@pytest.mark.parametrize(
    ("existing", "override", "keys"),
    [
        ("dotted", "model.lr=0.5", ["model.lr"]),
        ("dotted", '"model.lr"=0.5', ["model.lr"]),
        ("dotted", "'model.lr' = 0.5", ["model.lr"]),
        ("nested", "model.lr=0.5", ["model", "lr"]),
        ("mixed", "a.b.c.d=0.5", ["a.b", "c.d"]),
        ("mixed", 'a.b."c.d"=0.5', ["a.b", "c.d"]),
    ],
)
def test_an_override_means_the_hyperparameter_that_exists(existing: str, override: str, keys: list[str]) -> None:
    found = space(SPACE[existing], f"hyperparameters.{override}")
    for key in keys:
        assert list(found) == [key]
        found = found[key]
    assert found["val"] == 0.5


def test_a_part_of_a_dotted_hyperparameter_is_overridden() -> None:
    assert space(SPACE["dotted"], "hyperparameters.model.lr.maxval=3")["model.lr"]["maxval"] == 3


def test_new_dotted_name_is_nested_unless_quoted() -> None:
    assert space("{}", "hyperparameters.model.lr=0.5")["model"]["lr"]["val"] == 0.5
    assert space("{}", 'hyperparameters."model.lr"=0.5')["model.lr"]["val"] == 0.5


def test_an_override_that_fits_several_says_how_to_write_each() -> None:
    with pytest.raises(ConfigError, match=r'fits several keys; write hyperparameters\.model\.lr or hyperparam.*"model'):
        space('{"model.lr": 1, "model": {"lr": 2}}', "hyperparameters.model.lr=3")
    found = space('{"model.lr": 1, "model": {"lr": 2}}', 'hyperparameters."model.lr"=3')
    assert (found["model.lr"]["val"], found["model"]["lr"]["val"]) == (3, 2)


@pytest.mark.parametrize("existing", sorted(SPACE))
def test_filters_and_sorting_find_the_hyperparameter_that_exists(user: Api, existing: str, unique: str) -> None:
    value: object = 0.25
    keys = {"dotted": ["model.lr"], "nested": ["model", "lr"], "mixed": ["a.b", "c.d"]}[existing]
    for key in reversed(keys):
        value = {key: value}
    number = create(user, config(name=unique, hyperparameters=value), activate=False)
    column = f"hp.{'.'.join(keys)}"
    field = {"kind": "field", "columnName": column, "operator": "=", "value": 0.25, "type": "COLUMN_TYPE_NUMBER"}
    wanted = {"filterGroup": {"kind": "group", "conjunction": "and", "children": [field]}, "showArchived": True}
    found = user.post("/api/v1/runs", {"filter": json.dumps(wanted), "sort": f"{column}=desc", "limit": 200})
    assert found.status == 200, found.content
    assert number in [run["experiment"]["id"] for run in found.json["runs"]]


# -- another searcher by an override --------------------------------------------------------------------------------


def test_override_of_searcher_name_drops_unsupported_keys() -> None:
    text = (
        "entrypoint: x\nhyperparameters: {x: {type: int, minval: 1, maxval: 3}}\n"
        "searcher: {name: adaptive_asha, metric: m, max_trials: 8, max_time: 9, time_metric: epochs}\n"
    )
    document = read(text, "search.yaml")
    notes = override(document, ["searcher.name=single"])
    assert document.data["searcher"] == {"name": "single", "metric": "m"}
    assert notes == [
        "searcher.max_trials, searcher.max_time, searcher.time_metric: left out, because searcher.name is single and "
        "not adaptive_asha."
    ]
    document = read(text, "search.yaml")
    assert override(document, ["searcher.max_trials=4"]) == []
    assert parse_experiment(text, defaults=STORAGE, overrides=["searcher.name=single"]).searcher.name == "single"  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="max_trials"):  # what the command line itself says is judged
        parse_experiment(text, defaults=STORAGE, overrides=["searcher.name=single", "searcher.max_trials=4"])
