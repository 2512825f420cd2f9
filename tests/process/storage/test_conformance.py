"""The conformance suite on every store that we have, and what each says of a bucket that is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.process.storage.conftest import store_of
from tests.support.storage.servers import Server
from trainmaster.plugins import STORAGES, load
from trainmaster.storage.conformance.suite import *  # noqa: F403
from trainmaster.storage.contract import ObjectStore, StorageRefused

CHECK_SIGNATURES = ("rclone", "azurite")


@pytest.fixture
def store(server: Server) -> Iterator[ObjectStore]:
    found = store_of(server)
    yield found
    found.abort_parts("")
    found.delete([each.key for each in found.list("")])


@pytest.fixture
def checks_signatures(request: pytest.FixtureRequest) -> bool:
    return request.node.callspec.params["server"] in CHECK_SIGNATURES


def test_bucket_that_is_not_there_is_named(server: Server) -> None:
    plugin = load(STORAGES, server.kind)
    key = "container" if server.kind == "azure" else "bucket"
    store = plugin(plugin.Options.model_validate({**server.section, key: "not-there"}))
    with pytest.raises(StorageRefused, match="not-there cannot be used: there is no such"):
        store.probe()


def test_wrong_key_is_said_without_it(server: Server, checks_signatures: bool) -> None:
    if not checks_signatures:
        pytest.skip("this server checks no signatures")
    secret = {"secret_key": "wrong-wrong-wrong"}
    if server.kind == "azure":
        words = str(server.section["connection_string"]).split(";")
        wrong = ";".join("AccountKey=d3Jvbmctd3Jvbmc=" if word.startswith("AccountKey") else word for word in words)
        secret = {"connection_string": wrong}
    plugin = load(STORAGES, server.kind)
    store = plugin(plugin.Options.model_validate({**server.section, **secret}))
    with pytest.raises(StorageRefused) as caught:
        store.probe()
    assert "cannot be used: the" in str(caught.value)
    assert "wrong-wrong" not in str(caught.value)
    assert "d3Jvbmct" not in str(caught.value)
