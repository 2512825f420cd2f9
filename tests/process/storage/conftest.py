"""A master with each kind of object store, and a script that keeps checkpoints there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.master import MasterProcess, files, serving
from tests.support.storage.servers import STORES, Server
from trainmaster.plugins import STORAGES, load
from trainmaster.storage.contract import ObjectStore


@dataclass(frozen=True)
class Stored:
    """A master whose experiments keep their checkpoints in a store."""

    server: Server
    store: ObjectStore
    process: MasterProcess

    def create(self, script: str, **more: Any) -> int:
        config = {
            "name": "stored",
            "entrypoint": "python3 train.py",
            "searcher": {"name": "single", "metric": "loss"},
            "max_restarts": 0,
            **more,
        }
        return self.process.client().create_experiment(json.dumps(config), files(train__py=script)).id

    def objects(self) -> dict[str, int]:
        return {found.key: found.size for found in self.store.list("")}


def store_of(server: Server) -> ObjectStore:
    plugin = load(STORAGES, server.kind)
    store: ObjectStore = plugin(plugin.Options.model_validate(dict(server.section)))
    return store


@pytest.fixture(scope="module", params=STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with STORES[request.param](tmp_path_factory.mktemp(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def stored(server: Server) -> Iterator[Stored]:
    section = {**server.section, **({} if server.kind == "azure" else {"prefix": "site/a b"})}
    with serving(json.dumps({"checkpoint_storage": section, "resource_manager": {"type": "local"}})) as process:
        yield Stored(server, store_of(server), process)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "fetched"
