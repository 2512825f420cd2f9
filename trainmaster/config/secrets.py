"""What of an experiment's configuration is for machines alone: how to log in at the registry of its image.

It is stored, and goes where the image is fetched. Wherever a configuration is shown, a mask stands in its place; one
that was copied from there, to fork the experiment, gets the original's back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .messages import ConfigError
from .source import read, write

MASK = "********"
_SECRET = ("password", "auth", "identitytoken", "registrytoken")


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as it may be shown."""
    return _replaced(config, {key: MASK for key, _ in _secrets(config)})


def masked_text(text: str) -> str:
    """A configuration as its author wrote it, as it may be shown; without comments where it holds a secret."""
    if "registry_auth" not in text:
        return text
    try:
        data = read(text, "experiment.yaml").data
    except ConfigError:
        return text
    return write(masked(data)) if any(_secrets(data)) else text


def unmasked(config: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with the secrets of the experiment that it was copied from, where it holds their masks."""
    known = dict(_secrets(original))
    return _replaced(config, {key: known[key] for key in masks(config) if key in known})


def masks(config: Mapping[str, Any]) -> list[str]:
    """Keys of `environment.registry_auth` that hold a mask instead of a secret."""
    return [key for key, value in _secrets(config) if value == MASK]


def _secrets(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    environment = config.get("environment")
    found = environment.get("registry_auth") if isinstance(environment, Mapping) else None
    if isinstance(found, Mapping):
        yield from ((key, found[key]) for key in _SECRET if found.get(key))


def _replaced(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    if not values:
        return dict(config)
    environment = config["environment"]
    return {**config, "environment": {**environment, "registry_auth": {**environment["registry_auth"], **values}}}
