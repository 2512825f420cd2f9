"""Merging an experiment's configuration with defaults."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.config.experiment import ExperimentConfig, parse_experiment
from trainmaster.config.merge import merge
from trainmaster.config.messages import ConfigError
from trainmaster.config.source import write

MINIMAL = (
    "entrypoint: x\nsearcher: {name: single, metric: loss}\ncheckpoint_storage: {type: shared_fs, host_path: /c}\n"
)

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "scalars: the first that is set",
        {"name": "a", "debug": None},
        {"name": "b", "debug": True},
        {"name": "a", "debug": True},
    ),
    (
        "mappings field by field",
        {"resources": {"priority": 3}},
        {"resources": {"priority": 4, "weight": 2.0}},
        {"resources": {"priority": 3, "weight": 2.0}},
    ),
    (
        "lists as a whole",
        {"environment": {"add_capabilities": ["a"]}},
        {"environment": {"add_capabilities": ["b"], "drop_capabilities": ["c"]}},
        {"environment": {"add_capabilities": ["a"], "drop_capabilities": ["c"]}},
    ),
    ("labels as a set", {"labels": ["a", "b"]}, {"labels": ["b", "c"]}, {"labels": ["a", "b", "c"]}),
    (
        "bind mounts by their target",
        {"bind_mounts": [{"host_path": "/a", "container_path": "/x"}]},
        {"bind_mounts": [{"host_path": "/b", "container_path": "/x"}, {"host_path": "/b", "container_path": "/y"}]},
        {"bind_mounts": [{"host_path": "/a", "container_path": "/x"}, {"host_path": "/b", "container_path": "/y"}]},
    ),
    (
        "devices by their target",
        {"resources": {"devices": [{"host_path": "/a", "container_path": "/x"}]}},
        {"resources": {"devices": [{"host_path": "/b", "container_path": "/x"}]}},
        {"resources": {"devices": [{"host_path": "/a", "container_path": "/x"}]}},
    ),
    (
        "log policies without a name by all that they say",
        {"log_policies": [{"pattern": "p", "action": "exclude_node"}, {"pattern": "q", "action": "exclude_node"}]},
        {"log_policies": [{"pattern": "p", "action": "cancel_retries"}, {"pattern": "p", "action": "exclude_node"}]},
        {
            "log_policies": [
                {"pattern": "p", "action": "exclude_node"},
                {"pattern": "q", "action": "exclude_node"},
                {"pattern": "p", "action": "cancel_retries"},
            ]
        },
    ),
    (
        "log policies by name",
        {"log_policies": [{"name": "a", "pattern": None}, {"pattern": "p", "action": "exclude_node"}]},
        {"log_policies": [{"name": "a", "pattern": "x"}, {"name": "b", "pattern": "y"}]},
        {
            "log_policies": [
                {"name": "a", "pattern": None},
                {"pattern": "p", "action": "exclude_node"},
                {"name": "b", "pattern": "y"},
            ]
        },
    ),
    (
        "scheduler arguments: the defaults go first",
        {"slurm": {"sbatch_args": ["--mine"]}, "pbs": {"pbsbatch_args": ["-m"]}},
        {"slurm": {"sbatch_args": ["--site"], "gpu_type": "a"}, "pbs": {"pbsbatch_args": ["-s"]}},
        {"slurm": {"sbatch_args": ["--site", "--mine"], "gpu_type": "a"}, "pbs": {"pbsbatch_args": ["-s", "-m"]}},
    ),
    (
        "variables: the defaults go first, so that the later wins",
        {"environment": {"environment_variables": {"cpu": ["A=1"]}}},
        {"environment": {"environment_variables": {"cpu": ["A=2"], "cuda": ["B=2"]}}},
        {"environment": {"environment_variables": {"cpu": ["A=2", "A=1"], "cuda": ["B=2"]}}},
    ),
    (
        "proxy ports: both",
        {"environment": {"proxy_ports": [{"proxy_port": 1}]}},
        {"environment": {"proxy_ports": [{"proxy_port": 2}]}},
        {"environment": {"proxy_ports": [{"proxy_port": 1}, {"proxy_port": 2}]}},
    ),
    (
        "credentials are not mixed",
        {"environment": {"registry_auth": {"username": "me"}}},
        {"environment": {"registry_auth": {"username": "site", "password": "secret"}}},
        {"environment": {"registry_auth": {"username": "me"}}},
    ),
    (
        "the same searcher field by field",
        {"searcher": {"name": "random", "max_trials": 3}},
        {"searcher": {"name": "random", "max_trials": 4, "max_concurrent_trials": 1}},
        {"searcher": {"name": "random", "max_trials": 3, "max_concurrent_trials": 1}},
    ),
    (
        "another searcher: common fields only",
        {"searcher": {"name": "single"}},
        {"searcher": {"name": "random", "metric": "m", "max_trials": 4, "smaller_is_better": False}},
        {"searcher": {"name": "single", "metric": "m", "smaller_is_better": False}},
    ),
    (
        "another storage: common fields only",
        {"checkpoint_storage": {"type": "gcs", "bucket": "b", "save_trial_best": 3}},
        {
            "checkpoint_storage": {
                "type": "s3",
                "bucket": "c",
                "prefix": "p",
                "save_trial_best": 2,
                "save_trial_latest": 2,
            }
        },
        {"checkpoint_storage": {"type": "gcs", "bucket": "b", "save_trial_best": 3, "save_trial_latest": 2}},
    ),
    (
        "lengths as a whole",
        {"min_validation_period": {"epochs": 1}},
        {"min_validation_period": {"batches": 5}},
        {"min_validation_period": {"epochs": 1}},
    ),
    (
        "hyperparameters: groups merge, values do not",
        {"hyperparameters": {"g": {"a": {"type": "const", "val": 1}}, "h": {"type": "int", "minval": 1, "maxval": 2}}},
        {
            "hyperparameters": {
                "g": {"a": {"type": "const", "val": 2}, "b": {"type": "const", "val": 3}},
                "h": {"type": "double", "minval": 0, "maxval": 9, "count": 3},
                "i": {"type": "const", "val": 4},
            }
        },
        {
            "hyperparameters": {
                "g": {"a": {"type": "const", "val": 1}, "b": {"type": "const", "val": 3}},
                "h": {"type": "int", "minval": 1, "maxval": 2},
                "i": {"type": "const", "val": 4},
            }
        },
    ),
    (
        "free data: by key",
        {"data": {"a": 1}, "environment": {"ports": {"x": 1}}},
        {"data": {"a": 2, "b": 3}, "environment": {"ports": {"x": 2, "y": 3}}},
        {"data": {"a": 1, "b": 3}, "environment": {"ports": {"x": 1, "y": 3}}},
    ),
]


@pytest.mark.parametrize(("first", "second", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_rules(first: dict[str, Any], second: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge(first, second) == expected


def test_nearer_defaults_win_over_farther_ones() -> None:
    config = parse_experiment(
        MINIMAL + "slurm: {sbatch_args: [mine]}",
        defaults=[
            {"slurm": {"sbatch_args": ["pool"]}, "max_restarts": 1},
            {"slurm": {"sbatch_args": ["site"], "slots_per_node": 4}, "max_restarts": 2, "debug": True},
        ],
    )
    assert config.slurm.sbatch_args == ["site", "pool", "mine"]
    assert (config.max_restarts, config.slurm.slots_per_node, config.debug) == (1, 4, True)


def test_an_explicit_default_value_is_not_overridden() -> None:
    config = parse_experiment(MINIMAL + "max_restarts: 5\n", defaults=[{"max_restarts": 1}])
    assert config.max_restarts == 5


def test_short_forms_merge_with_long_ones() -> None:
    config = parse_experiment(
        MINIMAL + "environment: {image: {cuda: mine}}", defaults=[{"environment": {"image": "site"}}]
    )
    assert (config.environment.image.cpu, config.environment.image.cuda) == ("site", "mine")


def test_defaults_complete_a_configuration() -> None:
    storage = {"checkpoint_storage": {"type": "shared_fs", "host_path": "/site", "save_trial_best": 4}}
    config = parse_experiment("entrypoint: x\nsearcher: {name: single, metric: m}\n", defaults=[storage])
    assert config.to_json()["checkpoint_storage"]["host_path"] == "/site"
    assert config.to_json()["checkpoint_storage"]["save_trial_best"] == 4


def test_how_many_checkpoints_stay_needs_no_word_about_where() -> None:
    """As Determined's client has it in what `det experiment create --test-mode` sends."""
    text = "entrypoint: x\nsearcher: {name: single, metric: m}\ncheckpoint_storage: {save_trial_best: 0}\n"
    storage = {"checkpoint_storage": {"type": "shared_fs", "host_path": "/site", "save_trial_best": 4}}
    found = parse_experiment(text, defaults=[storage]).to_json()["checkpoint_storage"]
    assert (found["type"], found["host_path"], found["save_trial_best"]) == ("shared_fs", "/site", 0)
    with pytest.raises(ConfigError, match="3: checkpoint_storage: is required: neither the file"):
        parse_experiment(text)


def test_keys_given_by_defaults_are_not_reported_missing() -> None:
    storage = {"checkpoint_storage": {"type": "shared_fs", "host_path": "/site"}}
    with pytest.raises(ConfigError) as caught:
        parse_experiment("entrypoint: x\nsearcher: {name: single, metric: m}\ndebgu: 1\n", defaults=[storage])
    assert str(caught.value) == "experiment.yaml:3: debgu: unknown key; did you mean debug?"


def test_defaults_that_are_wrong_are_the_sites_fault() -> None:
    with pytest.raises(ConfigError, match=r"the site's defaults: resources\.slots_per_trial: must be at least 0"):
        parse_experiment(MINIMAL, defaults=[{"resources": {"slots_per_trial": -1}}])


# -- whole configurations

names = st.text("abcxyz", min_size=1, max_size=4)
leaves = st.one_of(
    st.integers(-5, 5),
    st.none(),
    st.text(max_size=3).filter(str.isprintable),
    st.lists(st.integers(), max_size=2),
    st.builds(lambda v: {"type": "const", "val": v}, st.none() | st.integers() | st.lists(st.booleans(), max_size=2)),
    st.builds(
        lambda low, span, count: {"type": "int", "minval": low, "maxval": low + span, "count": count},
        st.integers(-9, 9),
        st.integers(1, 9),
        st.integers(1, 3),
    ),
    st.builds(
        lambda b: {"type": "log", "base": b, "minval": -2.5, "maxval": 1, "count": 2}, st.sampled_from([2, 10.0])
    ),
    st.builds(
        lambda v: {"type": "categorical", "vals": v}, st.lists(st.none() | st.integers(), min_size=1, max_size=3)
    ),
)
spaces = st.recursive(
    st.dictionaries(names, leaves, max_size=3),
    lambda inner: st.dictionaries(names, inner | leaves, max_size=3),
    max_leaves=8,
)
searchers = st.one_of(
    st.builds(lambda n: {"name": "single", "metric": n}, names),
    st.builds(lambda n: {"name": "grid", "metric": "m", "max_concurrent_trials": n}, st.integers(0, 9)),
    st.builds(lambda n: {"name": "random", "metric": "m", "max_trials": n}, st.integers(1, 9)),
    st.builds(
        lambda m, d: {
            "name": "adaptive_asha", "metric": "m", "max_trials": 9, "max_time": 8, "time_metric": "t",
            "mode": m, "divisor": d, "bracket_rungs": [1, 2],
        },
        st.sampled_from(["aggressive", "standard", "conservative"]),
        st.sampled_from([2, 2.5, 4]),
    ),
)  # fmt: skip
storages = st.sampled_from(
    [
        {"type": "shared_fs", "host_path": "/c", "storage_path": "a/b"},
        {"type": "directory", "container_path": "/c", "save_trial_best": 3},
        {"type": "s3", "bucket": "b", "prefix": "p"},
        {"type": "azure", "container": "c", "connection_string": "x"},
    ]
)
configs = st.fixed_dictionaries(
    {"entrypoint": st.just("x") | st.just(["a", "b"]), "searcher": searchers, "checkpoint_storage": storages},
    optional={
        "name": names,
        "hyperparameters": spaces,
        "labels": st.lists(names, max_size=3),
        "max_restarts": st.integers(0, 9),
        "resources": st.fixed_dictionaries(
            {},
            optional={"slots_per_trial": st.integers(0, 8), "shm_size": st.just("2g"), "devices": st.just(["/a:/b"])},
        ),
        "environment": st.sampled_from([{"image": "x"}, {"environment_variables": {"gpu": ["A=1"]}}, {}, None]),
        "bind_mounts": st.lists(st.builds(lambda n: {"host_path": "/h", "container_path": n}, names), max_size=2),
        "log_policies": st.lists(st.builds(lambda n: {"name": n, "pattern": None}, names), max_size=2),
        "slurm": st.builds(lambda a: {"sbatch_args": a}, st.lists(names, max_size=2)),
        "min_validation_period": st.builds(lambda n: {"epochs": n}, st.integers(0, 9)),
        "retention_policy": st.just({"log_retention_days": 3}),
        "integrations": st.just({"webhooks": {"webhook_id": [1]}}),
    },
)


def parsed(config: dict[str, Any], *defaults: dict[str, Any]) -> ExperimentConfig:
    return parse_experiment(write(config), defaults=defaults)


@settings(deadline=None)
@given(configs)
def test_a_stored_configuration_comes_back(config: dict[str, Any]) -> None:
    whole = parsed(config)
    stored = whole.to_json()
    assert ExperimentConfig.from_json(stored) == whole
    assert ExperimentConfig.from_json(stored).to_json() == stored
    assert parsed(stored).to_json() == stored  # and as a file, as for a fork


@settings(deadline=None)
@given(configs, configs)
def test_the_users_values_take_precedence_over_all_defaults(config: dict[str, Any], site: dict[str, Any]) -> None:
    alone, merged = parsed(config).given(), parsed(config, site).to_json()
    for key in ("entrypoint", "name", "max_restarts"):
        assert key not in alone or merged[key] == alone[key]
    assert merged["searcher"]["name"] == config["searcher"]["name"]
    assert set(config.get("labels") or ()) <= set(merged["labels"])
    mine = (config.get("slurm") or {}).get("sbatch_args", [])
    assert merged["slurm"]["sbatch_args"] == (site.get("slurm") or {}).get("sbatch_args", []) + mine


@settings(deadline=None)
@given(configs)
def test_defaults_equal_to_configuration_change_only_added_lists(config: dict[str, Any]) -> None:
    once, twice = parsed(config).to_json(), parsed(config, config).to_json()
    added_up = {"slurm", "environment"}
    assert {k: v for k, v in once.items() if k not in added_up} == {k: v for k, v in twice.items() if k not in added_up}
