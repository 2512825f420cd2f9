"""The choice of a login for an image's registry."""

from __future__ import annotations

import base64
import json

import pytest

from trainmaster.agent.registry_login import login_for, registry_of

ADA = {"username": "ada", "password": "pw"}


@pytest.mark.parametrize(
    ("image", "server"),
    [
        ("python:3.11", "docker.io"),
        ("library/python", "docker.io"),
        ("index.docker.io/library/python", "docker.io"),
        ("ghcr.io/a/b:1", "ghcr.io"),
        ("localhost/x", "localhost"),
        ("127.0.0.1:5000/x@sha256:00", "127.0.0.1:5000"),
    ],
)
def test_the_host_of_an_image(image: str, server: str) -> None:
    assert registry_of(image) == server


def secret(**given: object) -> bytes:
    return json.dumps(given).encode()


def test_a_login_without_a_server_goes_where_the_image_is() -> None:
    assert login_for("ghcr.io/a/b", secret(**ADA)) == {**ADA, "serveraddress": "ghcr.io"}
    assert login_for("ghcr.io/a/b", None) is None
    assert login_for("ghcr.io/a/b", secret(server="ghcr.io")) is None


@pytest.mark.parametrize("key", ["server", "serveraddress"])
def test_a_login_with_a_server_goes_nowhere_else(key: str) -> None:
    hub = secret(**ADA, **{key: "https://index.docker.io/v1/"})
    assert login_for("python:3.11", hub) == {**ADA, "serveraddress": "https://index.docker.io/v1/"}
    assert login_for("ghcr.io/a/b", hub) is None


def test_the_forms_of_a_login() -> None:
    pair = base64.b64encode(b"ada:p:w").decode()
    assert login_for("x", secret(auth=pair)) == {"username": "ada", "password": "p:w", "serveraddress": "docker.io"}
    assert login_for("x", secret(auth="not base64!")) is None
    assert login_for("x", secret(identitytoken="t", auth=None)) == {"identitytoken": "t", "serveraddress": "docker.io"}
