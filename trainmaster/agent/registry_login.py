"""Chooses the login for an image's registry, from what the job's owner or the administrator configured."""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Mapping

DOCKER_HUB = "docker.io"
# Docker's AuthConfig as the engine reads it; `auth` is of its configuration files only.
_KEPT = ("username", "password", "email", "identitytoken", "registrytoken")

log = logging.getLogger(__name__)


def login_for(image: str, secret: bytes | None) -> dict[str, str] | None:
    """Docker's AuthConfig for pulling `image`; None pulls as Docker's own configuration on this host says.

    Args:
        secret: JSON of the `registry_auth` section. When it names a server, it is sent to no other one.
    """
    given = _read(secret)
    if not given:
        return None
    server = given.get("serveraddress") or given.get("server") or ""
    if server and _host(server) != registry_of(image):
        log.info("the login for %s is not used for %s, which is in another registry", _host(server), image)
        return None
    login = {key: given[key] for key in _KEPT if given.get(key)}
    if "username" not in login and (pair := _pair(given.get("auth", ""))) is not None:
        login["username"], login["password"] = pair
    return {**login, "serveraddress": server or registry_of(image)} if login else None


def registry_of(image: str) -> str:
    """Return the registry host of an image's name, with its port; Docker Hub's short names have none."""
    head, slash, _ = image.partition("/")
    named = slash and ("." in head or ":" in head or head == "localhost")
    return _host(head) if named else DOCKER_HUB


def _host(server: str) -> str:
    """`https://index.docker.io/v1/`, as Docker itself writes its hub, is docker.io."""
    host = server.rpartition("://")[2].partition("/")[0].lower()
    return DOCKER_HUB if host in ("index.docker.io", "registry-1.docker.io") else host


def _read(secret: bytes | None) -> Mapping[str, str]:
    if not secret:
        return {}
    data = json.loads(secret)
    return {key: value for key, value in data.items() if isinstance(value, str)} if isinstance(data, dict) else {}


def _pair(text: str) -> tuple[str, str] | None:
    """`auth` is the base64 of "username:password"."""
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None
