"""Configuration policies: settings that an administrator forces on the configurations of a workspace or the whole site.

An invariant is a part of a configuration that takes precedence over the user's, by the rules of `merge`. A constraint
refuses configurations. Policies of the site take precedence over those of a workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from trainmaster.config.experiment import ExperimentConfig, incomplete
from trainmaster.config.limits import DEFAULTS, Limits
from trainmaster.config.merge import merge
from trainmaster.config.messages import Complaint, ConfigError
from trainmaster.config.shapes import Natural, Section, Whole
from trainmaster.config.source import Document, read
from trainmaster.config.task import TaskConfig
from trainmaster.config.validation import check, in_order

C = TypeVar("C", ExperimentConfig, TaskConfig)

INVARIANT, CONSTRAINTS = "invariant_config", "constraints"
SOURCE = "the configuration policies"


class ResourceConstraints(Section):
    max_slots: Natural | None = None
    """Slots that an experiment or a task may use at the same time."""


class Constraints(Section):
    """Limits; configurations beyond them are refused."""

    resources: ResourceConstraints = ResourceConstraints()
    priority_limit: Whole | None = None
    """The smallest number (the highest priority) that a configuration may have."""


@dataclass(frozen=True)
class Policy:
    """The policies of one scope. `where` names it in sentences: `the site`, `the workspace 'vision'`."""

    where: str
    invariant: Mapping[str, Any] | None = None
    constraints: Mapping[str, Any] | None = None


def parse_policy(text: str, *, experiments: bool = True, limits: Limits = DEFAULTS) -> Policy:
    """Parse a policy file.

    Args:
        text: YAML.
        experiments: Whether it applies to experiments; else to commands, notebooks, shells and TensorBoards.
        limits: Of the size of the text.

    Raises:
        ConfigError: All errors, in the order of the file.
    """
    document = read(text, SOURCE, limits)
    complaints = [
        document.complain((key,), f"unknown key; the keys here are {INVARIANT}, {CONSTRAINTS}")
        for key in document.data
        if key not in (INVARIANT, CONSTRAINTS)
    ]
    invariant, constraints = document.data.get(INVARIANT), document.data.get(CONSTRAINTS)
    for key, value in ((INVARIANT, invariant), (CONSTRAINTS, constraints)):
        if value is not None and not isinstance(value, dict):
            complaints.append(document.complain((key,), "a mapping (key: value) is wanted"))
    model = ExperimentConfig if experiments else TaskConfig
    if not complaints and invariant is not None:
        complaints += _below(INVARIANT, check(model, invariant, _part(document, INVARIANT))[1], document)
    if not complaints and constraints is not None:
        complaints += _below(CONSTRAINTS, check(Constraints, constraints, _part(document, CONSTRAINTS))[1], document)
    if not complaints and invariant is None and constraints is None:
        complaints.append(Complaint((), f"holds neither {INVARIANT} nor {CONSTRAINTS}", source=SOURCE))
    policy = Policy("this file", invariant, constraints)
    if not complaints and invariant is not None:
        complaints += [document.complain((INVARIANT,), word) for word in _refused(policy, invariant)]
    if complaints:
        raise ConfigError(in_order(complaints), SOURCE)
    return policy


def governed(config: C, policies: Sequence[Policy]) -> C:
    """Return a complete configuration with the invariants merged in; `policies` is ordered with the most important
    first.

    Raises:
        ConfigError: An invariant does not fit this configuration, or a constraint refuses it.
    """
    model = type(config)
    wanted = config.to_json()
    merged = wanted
    for policy in reversed(policies):
        if policy.invariant:
            merged = merge(model.model_validate(dict(policy.invariant)).given(), merged)
    if merged is not wanted:
        document = Document(f"the configuration with {SOURCE} of {_places(policies)}", merged)
        whole, complaints = check(model, merged, document)
        if whole is None:
            raise ConfigError(complaints, document.source)
        if isinstance(whole, ExperimentConfig) and (missing := incomplete(merged, document)):
            raise ConfigError(missing, document.source)
        merged = whole.to_json()
    refused = [word for policy in policies for word in _refused(policy, merged)]
    if refused:
        raise ConfigError([Complaint((), word, source=SOURCE) for word in refused], SOURCE)
    limit = _first_limit(policies)
    if limit is not None and merged["resources"].get("max_slots") is None:
        merged = {**merged, "resources": {**merged["resources"], "max_slots": limit}}
    return model.model_validate(merged)


def refusals(config: Mapping[str, Any], policies: Sequence[Policy]) -> list[str]:
    """Why the policies refuse a complete configuration, a sentence each; empty if they do not."""
    return [word for policy in policies for word in _refused(policy, config)]


# -- inside -------------------------------------------------------------------------------------------------------


def _refused(policy: Policy, config: Mapping[str, Any]) -> list[str]:
    limits = Constraints.model_validate(dict(policy.constraints or {}))
    resources = config.get("resources") or {}
    complaints = []
    most, least = limits.resources.max_slots, limits.priority_limit
    for key in ("slots_per_trial", "slots", "max_slots"):
        asked = resources.get(key)
        if most is not None and asked is not None and asked > most:
            complaints.append(f"resources.{key} is {asked}, and {policy.where} allows {most} slots at most")
    priority = resources.get("priority")
    if least is not None and priority is not None and priority < least:
        complaints.append(
            f"resources.priority is {priority}, and {policy.where} allows none above {least} (a smaller number is a "
            "higher priority)"
        )
    return complaints


def _first_limit(policies: Sequence[Policy]) -> int | None:
    limits = [Constraints.model_validate(dict(policy.constraints or {})).resources.max_slots for policy in policies]
    return min((limit for limit in limits if limit is not None), default=None)


def _places(policies: Sequence[Policy]) -> str:
    return " and ".join(policy.where for policy in policies if policy.invariant)


def _part(document: Document, key: str) -> Document:
    """Return a section as a document that keeps its lines."""
    inner = {path[1:]: mark for path, mark in document.marks.items() if path[:1] == (key,)}
    return Document(document.source, document.data[key], inner)


def _below(key: str, complaints: Sequence[Complaint], document: Document) -> list[Complaint]:
    return [document.complain((key, *c.path), c.message, c.suggestion) for c in complaints]
