"""Configuration policies: precedence, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.config.experiment import ExperimentConfig, parse_experiment
from trainmaster.config.messages import ConfigError
from trainmaster.config.policies import Policy, governed, parse_policy

TEXT = """
name: mine
entrypoint: train
labels: [a]
max_restarts: 3
searcher: {name: single, metric: loss}
checkpoint_storage: {type: directory, container_path: /c}
resources: {slots_per_trial: 2, priority: 50}
environment: {environment_variables: [A=user]}
"""


def config(text: str = TEXT) -> ExperimentConfig:
    return parse_experiment(text)


def test_without_policies_nothing_changes() -> None:
    assert governed(config(), []) == config()
    assert governed(config(), [Policy("the site")]) == config()


def test_site_policy_beats_workspace_and_both_beat_user() -> None:
    site = Policy("the site", {"max_restarts": 1})
    workspace = Policy("the workspace 'w'", {"max_restarts": 2, "description": "of w", "labels": ["b"]})
    found = governed(config(), [site, workspace])
    assert (found.max_restarts, found.description, found.name) == (1, "of w", "mine")
    assert sorted(found.labels) == ["a", "b"]


def test_an_invariant_of_variables_wins_when_the_job_runs() -> None:
    policy = Policy("the site", {"environment": {"environment_variables": ["A=site"]}})
    shown = governed(config(), [policy]).to_json()["environment"]["environment_variables"]["cuda"]
    assert shown == ["A=user", "A=site"], "the last one counts"


def test_a_limit_of_slots_holds_also_if_the_user_sets_none() -> None:
    site = Policy("the site", constraints={"resources": {"max_slots": 8}})
    assert governed(config(), [site]).resources.max_slots == 8
    less = Policy("the workspace 'w'", constraints={"resources": {"max_slots": 4}})
    assert governed(config(), [site, less]).resources.max_slots == 4


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        ({"resources": {"max_slots": 1}}, ["slots_per_trial is 2", "the workspace 'w' allows 1 slots"]),
        ({"priority_limit": 51}, ["priority is 50", "the workspace 'w' allows none above 51"]),
    ],
)
def test_a_refusal_names_the_policy(constraints: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        governed(config(), [Policy("the site"), Policy("the workspace 'w'", constraints=constraints)])
    for word in words:
        assert word in str(caught.value)


def test_the_limit_itself_may_be_asked_for() -> None:
    limits = {"resources": {"max_slots": 2}, "priority_limit": 50}
    assert governed(config(), [Policy("the site", constraints=limits)]).resources.priority == 50


def test_an_invariant_that_does_not_fit_is_an_error() -> None:
    """A grid needs counts, which this space has not."""
    space = Policy("the site", {"profiling": {"begin_on_batch": 9}})
    text = TEXT + "profiling: {enabled: true, begin_on_batch: 1, end_after_batch: 5}\n"
    with pytest.raises(ConfigError, match=r"the site.*end_after_batch"):
        governed(config(text), [space])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "neither"),
        ("invariants: {}", "unknown key"),
        ("invariant_config: 3", "mapping"),
        ("invariant_config: {max_restarts: x}", "1: invariant_config.max_restarts"),
        ("constraints: {resources: {max_slots: -1}}", "constraints.resources.max_slots"),
        ("constraints: {slots: 1}", "constraints.slots"),
        ("invariant_config: {resources: {max_slots: 9}}\nconstraints: {resources: {max_slots: 8}}", "9, and this file"),
    ],
)
def test_files_that_cannot_be(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_policy(text)
    assert words in str(caught.value)


def test_task_policy_accepts_keys_that_experiments_lack() -> None:
    text = "invariant_config: {resources: {slots: 1}, idle_timeout: 30m}\nconstraints: {priority_limit: 3}"
    assert parse_policy(text, experiments=False).constraints == {"priority_limit": 3}


def test_a_pattern_that_no_line_would_be_matched_by_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"log_policies\[0\]\.pattern: is not a regular expression"):
        config(TEXT + "log_policies: [{name: a, pattern: '(?=x)y'}]\n")
