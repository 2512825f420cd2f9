"""How an experiment's configuration and the defaults around it become one: the first argument wins.

Scalars: the first that is set. Mappings: field by field. Lists: the first list as a whole, except those that
name things (bind mounts, devices, log policies: by their key), labels (a set), proxy ports (both), and what a
later entry overrides at run time (scheduler arguments, environment variables: the defaults go first). A union
(searcher, checkpoint storage) merges its own fields only with the same kind, and its common ones always.
The rules are Determined's. Null is the same as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from trainmaster.config.user_options import section_named

Config = Mapping[str, Any]
Rule = Callable[[Any, Any], Any]


def merge(first: Config, second: Config) -> dict[str, Any]:
    """`first` with its gaps filled from `second`; both normalised (see `ExperimentConfig.given`)."""
    return _fields(first, second, "")


def _fields(first: Config, second: Config, path: str) -> dict[str, Any]:
    result = {key: value for key, value in first.items() if value is not None}
    for key, value in second.items():
        if value is None:
            continue
        here = f"{path}.{key}" if path else key
        result[key] = _merged(result[key], value, here) if key in result else value
    return result


def _merged(first: Any, second: Any, path: str) -> Any:
    if rule := _RULES.get(path) or _rule_of_section(path):
        return rule(first, second)
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _fields(first, second, path)
    return first


def _rule_of_section(path: str) -> Rule | None:
    """Return the rule for a key in the section of a dispatcher."""
    name, _, key = path.partition(".")
    section = section_named(name) if key else None
    return _defaults_first if section is not None and key in section.appended else None


def _first(first: Any, second: Any) -> Any:  # noqa: ARG001 - a rule takes both
    return first


def _both(first: list[Any], second: list[Any]) -> list[Any]:
    return [*first, *second]


def _defaults_first(first: list[Any], second: list[Any]) -> list[Any]:
    return [*second, *first]


def _as_set(first: list[Any], second: list[Any]) -> list[Any]:
    return list(dict.fromkeys([*first, *second]))


def _by(key: str, first: list[Config], second: list[Config]) -> list[Config]:
    """Entries that share `key` are the same thing, as are equal ones without it."""
    named = {entry.get(key) for entry in first} - {None}
    return [*first, *(entry for entry in second if entry.get(key) not in named and entry not in first)]


def _union(tag: str, common: frozenset[str], first: Config, second: Config) -> dict[str, Any]:
    if first.get(tag) not in (None, second.get(tag)):
        second = {key: value for key, value in second.items() if key in common}
    return _fields(first, second, "")


def _hyperparameters(first: Config, second: Config) -> dict[str, Any]:
    result = dict(first)
    for name, value in second.items():
        if name not in result:
            result[name] = value
        elif "type" not in result[name] and "type" not in value:
            result[name] = _hyperparameters(result[name], value)
    return result


SEARCHER_COMMON = frozenset({"metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid"})
STORAGE_COMMON = frozenset({"save_experiment_best", "save_trial_best", "save_trial_latest"})

_RULES: Mapping[str, Rule] = {
    "bind_mounts": partial(_by, "container_path"),
    "resources.devices": partial(_by, "container_path"),
    "labels": _as_set,
    "log_policies": partial(_by, "name"),
    **{f"environment.environment_variables.{device}": _defaults_first for device in ("cpu", "cuda", "rocm")},
    "environment.proxy_ports": _both,
    "environment.registry_auth": _first,
    "environment.pod_spec": _first,
    "min_checkpoint_period": _first,
    "min_validation_period": _first,
    "searcher": partial(_union, "name", SEARCHER_COMMON),
    "checkpoint_storage": partial(_union, "type", STORAGE_COMMON),
    "hyperparameters": _hyperparameters,
}
