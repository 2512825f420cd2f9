"""Masks the secrets of configurations where they are shown, and restores them in configurations that were copied.

A value is a secret if its key has a name such as `password`, `secret_key` or `auth`; the same holds for environment
variables, and for the password in an address (`https://ada:PASSWORD@host`, `?sig=...`). Hyperparameters are never
secrets, whatever their names. Secrets are stored and passed on to where they are used, but a user who reads a
configuration of an experiment, a task, a template, a policy, a workspace or the master sees a mask instead. A
configuration that was copied from there, to fork an experiment or change a template, gets the original's secrets back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from trainmaster.config.limits import Limits
from trainmaster.config.masks import IN_ADDRESS, MASK, masked_address
from trainmaster.config.messages import ConfigError
from trainmaster.config.source import read, write
from trainmaster.config.storage import as_determined

_NAMED = re.compile(
    r"(password|passwd|passphrase|secret|token|credentials?|(api|access|secret|private|signing|account|storage)_?key"
    r"|connection_string)$|^auth$"
)
# The same words anywhere in a text, and `:...@` of an address: most texts have none and need not be parsed.
_HINT = re.compile(
    r"password|passwd|passphrase|secret|token(?![a-z])|credential|_?key|connection_string|auth|://[^/\s]*:[^/\s]*@"
    r"|sig=",
    re.IGNORECASE,
)
_NO_SECRETS = ("hyperparameters",)
# Keys that name where a secret beside them is sent. If one changes, the secret must be given again; otherwise a user
# who may change a configuration could have the secret sent to a host of their own.
_SENT_TO = ("endpoint_url", "account_url", "server", "serveraddress", "host", "pachd", "proxy")


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with masks for its secrets."""
    return {key: value if key in _NO_SECRETS else _shown(str(key), value) for key, value in config.items()}


def masked_text(text: str) -> str:
    """Return the text of a configuration with masks for its secrets; comments are lost if it has any secret."""
    return _masked_text(text) if _HINT.search(text) else text


def without_path(url: str) -> str:
    """Scheme and host of an address whose path may be a secret, such as a webhook's."""
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{host}/{MASK}"


def for_job(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration for a job: without the login for the registry of its image, which a job does not need,
    and without keys of a storage that Determined's harness would refuse."""
    storage = config.get("checkpoint_storage")
    if isinstance(storage, Mapping):
        config = {**config, "checkpoint_storage": as_determined(storage)}
    environment = config.get("environment")
    login = environment.get("registry_auth") if isinstance(environment, Mapping) else None
    if not isinstance(environment, Mapping) or not isinstance(login, Mapping):
        return dict(config)
    return {**config, "environment": {**environment, "registry_auth": _shown("registry_auth", login)}}


def unmasked(config: Mapping[str, Any], original: Mapping[str, Any]) -> dict[str, Any]:
    """`config` with each mask replaced by the secret of the original that it was copied from, except in sections that
    send the secret to another place."""
    return dict(_restored("", config, original))


def masks(config: Mapping[str, Any]) -> list[str]:
    """Keys (joined by dots) of the masks in a configuration."""
    return list(_masks(config, ""))


def _is_secret(key: str) -> bool:
    return _NAMED.search(key.lower()) is not None


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {inner: _shown(_name_in(value, str(inner)), one) for inner, one in value.items()}
    if isinstance(value, list):
        return [_shown(_name_in_list(one), one) for one in value]
    if not isinstance(value, str) or not value:
        return value
    name, equals, assigned = value.partition("=")
    if equals and key == name and _is_secret(name) and assigned:  # a variable in a list
        return f"{name}={MASK}"
    return MASK if _is_secret(key) else masked_address(value)


def _name_in(mapping: Mapping[str, Any], key: str) -> str:
    """Return the name of a value in a mapping: its key, or X for the `value` beside `name: X` of a Kubernetes
    variable."""
    named = mapping.get("name")
    return named if key == "value" and isinstance(named, str) else key


def _name_in_list(item: Any) -> str:
    """Return the name of an item in a list: NAME for a variable `NAME=VALUE`, else empty."""
    return item.partition("=")[0] if isinstance(item, str) and "=" in item else ""


def _restored(key: str, value: Any, original: Any) -> Any:
    if isinstance(value, Mapping) and isinstance(original, Mapping):
        if any(value.get(where) != original.get(where) for where in _SENT_TO):
            return dict(value)
        return {inner: _restored(_name_in(value, str(inner)), one, original.get(inner)) for inner, one in value.items()}
    if isinstance(value, list) and isinstance(original, list):
        return _restored_list(value, original)
    if isinstance(value, Mapping) and isinstance(original, list):
        return {inner: _restored(key, one, original) for inner, one in value.items()}  # variables by kind of slot
    if isinstance(value, str) and MASK in value and isinstance(original, str):
        return original if _shown(key, original) == value else value
    return value


def _restored_list(value: list[Any], original: list[Any]) -> list[Any]:
    by_name = {_name_in_list(one): one for one in original if isinstance(one, str) and "=" in one}
    restored = []
    for place, item in enumerate(value):
        name = _name_in_list(item)
        known = by_name.get(name) if isinstance(item, str) and "=" in item else None
        if known is None and place < len(original):
            known = original[place]
        restored.append(_restored(name, item, known))
    return restored


def _masks(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _masks(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _masks(item, path)
    elif isinstance(value, str) and MASK in value and path.partition(".")[0] not in _NO_SECRETS:
        yield path


_STORED = Limits(config=64, config_values=2**31 - 1)  # a stored text was within the limits of its time


@lru_cache(maxsize=256)  # many experiments of a list have the same text
def _masked_text(text: str) -> str:
    try:
        data = read(text, "experiment.yaml", _STORED).data
    except ConfigError:
        return text if not IN_ADDRESS.search(text) else masked_address(text)
    shown = masked(data)
    return write(shown) if shown != data else text
