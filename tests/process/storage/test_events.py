"""TensorBoard's files in object stores: sent while the training runs, shown while they grow, removed with the rest."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.process.storage.conftest import Stored, store_of
from tests.support.api import programs
from tests.support.api.http import Api
from tests.support.api.tasks import launch, until_ready
from tests.support.master import ended_as, only_trial, wait_for
from tests.support.storage.servers import Server
from trainmaster.core import tensorboard
from trainmaster.core.tensorboard import TensorboardFiles
from trainmaster.launchers.event_mirror import EventMirror
from trainmaster.storage.contract import ObjectStore

EVENTS = "events.out.tfevents.1.here"
WRITING = f"""
from trainmaster import core
with core.init() as context:
    folder = context.train.get_tensorboard_path()
    (folder / "{EVENTS}").write_bytes(bytes(100))
    (folder / "validation ü").mkdir()
    (folder / "validation ü" / "{EVENTS}").write_bytes(bytes(50))
    context.train.report_validation_metrics(1, {{"loss": 1.0}})
"""

pytestmark = pytest.mark.parametrize("server", ["rclone"], indirect=True)


def test_files_of_a_trial_are_kept_shown_and_removed(stored: Stored, tmp_path: Path) -> None:
    client = stored.process.client()
    number = stored.create(WRITING)
    ended_as(client, number, "COMPLETED")
    trial = only_trial(client, number).id
    (top,) = {key.partition("/tensorboard/")[0] for key in stored.objects() if "/tensorboard/" in key}
    where = f"{top}/tensorboard/experiment/{number}/trial/{trial}"
    kept = {key: size for key, size in stored.objects().items() if "/tensorboard/" in key}
    assert kept == {f"{where}/{EVENTS}": 100, f"{where}/validation ü/{EVENTS}": 50}
    api = Api(stored.process.url, str(client._http.token))
    path = f"PATH={programs.stand_ins(tmp_path)}:/usr/local/bin:/usr/bin:/bin"
    config = {"environment": {"environment_variables": [path]}}
    made = launch(api, "tensorboard", experimentIds=[number], trialIds=[trial], config=config)
    until_ready(api, made["id"])
    name = f"exp_{number}_trial_{trial}"
    expected = {f"exp_{number}/{trial}", name}
    expected |= {f"{one}/validation ü" for one in expected}
    wait_for(lambda: set(api.get(made["serviceAddress"]).json) == expected, "the runs")
    api.post(f"/api/v1/tensorboards/{made['id']}/kill")
    stored.process.det("experiment", "delete-tb-files", str(number))
    assert not any("/tensorboard/" in key for key in stored.objects())


class Listing:
    """A master that lists a store's files below `runs/`."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def call_with_retry(self, method: str, path: str, *_: Any, **__: Any) -> Mapping[str, Any]:
        assert (method, path) == ("GET", "/api/x1/allocations/1.1/events?name=runs&after=")
        files = []
        for found in self._store.list("runs/"):
            signed = self._store.sign_get(found.key)
            entry = {"path": found.key.removeprefix("runs/"), "size": found.size}
            files.append({**entry, "url": signed.url, "headers": dict(signed.headers)})
        return {"files": files, "after": "", "authority": ""}


def put(store: ObjectStore, key: str, content: bytes) -> None:
    signed = store.sign_put(key)
    request = urllib.request.Request(signed.url, content, headers=dict(signed.headers), method="PUT")
    urllib.request.urlopen(request).close()


def test_what_grows_is_added_to_the_file_that_tensorboard_holds_open(server: Server, tmp_path: Path) -> None:
    store = store_of(server)
    mirror = EventMirror(Listing(store), "1.1", {"runs": tmp_path})  # type: ignore[arg-type]
    put(store, f"runs/3/{EVENTS}", b"first ")
    mirror.fetch()
    with (tmp_path / "3" / EVENTS).open("rb") as held:
        assert held.read() == b"first "
        put(store, f"runs/3/{EVENTS}", b"first second")
        put(store, f"runs/4/{EVENTS}", b"other")
        mirror.fetch()
        assert held.read() == b"second"
    assert (tmp_path / "4" / EVENTS).read_bytes() == b"other"
    put(store, f"runs/3/{EVENTS}", b"new")
    mirror.fetch()
    assert (tmp_path / "3" / EVENTS).read_bytes() == b"new"
    store.delete([f"runs/3/{EVENTS}", f"runs/4/{EVENTS}"])
    assert mirror._requests is not None
    mirror._requests.close()


def test_files_are_sent_while_they_are_written(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "INTERVAL", 0.05)
    sent: list[tuple[str, int]] = []

    class Store:
        def put(self, path: Path, name: str) -> None:
            sent.append((name, path.stat().st_size))

    files = TensorboardFiles(tmp_path, Store(), 0)  # type: ignore[arg-type]
    files.follow()
    (tmp_path / EVENTS).write_bytes(bytes(10))
    wait_for(lambda: sent[-1:] == [(EVENTS, 10)], "the first part")
    (tmp_path / EVENTS).write_bytes(bytes(20))
    wait_for(lambda: sent[-1:] == [(EVENTS, 20)], "the second part")
    count = len(sent)
    time.sleep(0.3)
    assert len(sent) == count, "what has not changed is sent again"
    files.end()
    (tmp_path / EVENTS).write_bytes(bytes(30))
    time.sleep(0.3)
    assert sent[-1] == (EVENTS, 20)
