"""Configurations of standalone tasks."""

from __future__ import annotations

import pytest

from trainmaster.config.messages import ConfigError
from trainmaster.config.policies import Policy, governed
from trainmaster.config.task import TaskConfig, parse_task, seconds_of, task_document


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("1h30m", 5400), ("45s", 45), ("1.5h", 5400), ("0s", 0), (90, 90), ("2h3m4s", 7384)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "30", "5m1h", "-3m", "1d"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds_of(text)


def test_the_defaults_of_determined() -> None:
    config = parse_task(task_document({})).to_json()
    assert (config["resources"]["slots"], config["notebook_idle_type"]) == (1, "kernels_or_terminals")
    assert TaskConfig.from_json(config).to_json() == config


def test_first_default_wins_and_experiment_keys_are_dropped() -> None:
    given = {"resources": {"slots": 2}, "bind_mounts": [{"host_path": "/a", "container_path": "/data"}]}
    template = {"resources": {"slots": 5, "priority": 3}, "max_restarts": 4, "searcher": {"name": "single"}}
    site = {
        "resources": {"slots_per_trial": 8, "shm_size": 1},
        "bind_mounts": [{"host_path": "/b", "container_path": "/data"}, {"host_path": "/c", "container_path": "/c"}],
        "environment": {"environment_variables": ["A=1"]},
        "checkpoint_storage": {"type": "shared_fs", "host_path": "/ckpt"},
        "log_policies": [],
    }
    config = parse_task(task_document(given), defaults=[template, site])
    assert (config.resources.slots, config.resources.priority, config.resources.shm_size) == (2, 3, 1)
    assert [(mount.host_path, mount.container_path) for mount in config.bind_mounts] == [("/a", "/data"), ("/c", "/c")]
    assert config.environment.environment_variables.cpu == ["A=1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("entrypoint: [1]", "entrypoint: a command"),
        ("entrypoint: ' '", "must not be empty"),
        ("entrypoint: x\nresources: {slots: -1}", ":2: resources.slots"),
        ("notebook_idle_type: never", "must be one of kernels_or_terminals"),
        ("resources: {slots_per_trial: 1}", "a task takes slots"),
        ("idle_timeout: often", "a duration such as 30m"),
        ("tensorboard_args: --x", "a list is wanted"),
    ],
)
def test_errors_have_their_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_task(task_document(text))
    assert words in str(caught.value)


def test_policies_govern_tasks_as_they_do_experiments() -> None:
    policy = Policy("the site", {"work_dir": "/site", "resources": {"slots": 1}}, {"resources": {"max_slots": 4}})
    found = governed(parse_task(task_document({"work_dir": "/mine", "resources": {"slots": 3}})), [policy])
    assert isinstance(found, TaskConfig)
    assert (found.work_dir, found.resources.slots) == ("/site", 1)
    strict = Policy("the site", None, {"resources": {"max_slots": 2}, "priority_limit": 10})
    with pytest.raises(ConfigError, match=r"resources.slots is 3, and the site allows 2"):
        governed(parse_task(task_document({"resources": {"slots": 3}})), [strict])
    with pytest.raises(ConfigError, match=r"priority is 5"):
        governed(parse_task(task_document({"resources": {"slots": 1, "priority": 5}})), [strict])
