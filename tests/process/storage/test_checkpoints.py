"""Checkpoints in real object stores, from a script in a job to who downloads and removes them."""

from __future__ import annotations

import hashlib
import json
import urllib.request
from pathlib import Path

import pytest

from tests.process.storage.conftest import Stored, store_of
from tests.support.master import ended_as, log_text, only_trial, serving, wait_ended, wait_for
from tests.support.storage.servers import Server

TWICE = """
import os, random
from trainmaster import core

def write(path, size, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(size))

with core.init() as context:
    info = context.info
    for step in (1, 2):
        with context.checkpoint.store_path({"steps_completed": step, "note": "\\u00fc"}, wait=WAIT) as (path, uuid):
            write(path / "large.bin", 20 * 2**20 + 7, 0)
            write(path / "deep/er/sm all \\u00fc+%.bin", 1000, step)
            write(path / "empty", 0, 0)
            (path / "nothing").mkdir()
            os.symlink("large.bin", path / "link")
        context.train.report_validation_metrics(step, {"loss": 1.0 / step})
    context.checkpoint.wait()
    with context.checkpoint.restore_path(uuid) as path:
        names = sorted(str(each.relative_to(path)) for each in path.rglob("*"))
        print("restored", names)
    assert context.checkpoint.get_metadata(uuid)["note"] == "\\u00fc"
    print("environment", sorted(os.environ.items()))
"""


# One server of each protocol; rclone's checks signatures, as moto's does not.
pytestmark = pytest.mark.parametrize("server", ["rclone", "azurite", "fake-gcs"], indirect=True)


@pytest.mark.parametrize("wait", [True, False])
def test_checkpoint_is_stored_fetched_and_removed(stored: Stored, folder: Path, wait: bool) -> None:
    if not wait and stored.server.name != "rclone":
        pytest.skip("who sends is the same for all stores: one is enough")
    experiment = stored.create(TWICE.replace("WAIT", str(wait)), checkpoint_storage={"save_trial_latest": 2})
    ended_as(stored.process.client(), experiment, "COMPLETED")
    client = stored.process.client()
    first, second = sorted(client.checkpoints(experiment), key=lambda row: row.metadata["steps_completed"])
    names = {"large.bin", "link", "deep/er/sm all ü+%.bin", "empty", "metadata.json"}
    for checkpoint in (first, second):
        assert {name for name in checkpoint.resources if not name.endswith("/")} == names
        kept = {key.partition(f"{checkpoint.uuid}/")[2] for key in stored.objects() if checkpoint.uuid in key}
        assert kept == names
    log = log_text(client, only_trial(client, experiment).id)
    assert "restored ['deep', 'deep/er', 'deep/er/sm all ü+%.bin', 'empty', 'large.bin', 'link'" in log
    for word in ("secret_key", "access_key", "connection_string", "credentials_file"):
        if secret := stored.server.section.get(word):
            assert secret not in log
    stored.process.det("checkpoint", "download", second.uuid, "--output-dir", str(folder / second.uuid))
    found = folder / second.uuid
    assert {str(each.relative_to(found)) for each in found.rglob("*") if each.is_file()} == names
    assert (
        hashlib.sha256((found / "large.bin").read_bytes()).digest()
        == hashlib.sha256((found / "link").read_bytes()).digest()
    )
    assert json.loads((found / "metadata.json").read_text())["steps_completed"] == 2
    stored.process.det("checkpoint", "rm", first.uuid, "--yes", "--glob", "deep/**")
    wait_for(lambda: not any("deep" in key and first.uuid in key for key in stored.objects()), "the removal of files")
    stored.process.det("checkpoint", "delete", "--yes", second.uuid)
    wait_for(lambda: not any(second.uuid in key for key in stored.objects()), "the removal of a checkpoint")
    stored.process.det("experiment", "delete", "--yes", str(experiment))
    wait_for(lambda: not stored.objects(), "the removal of an experiment's files")


DATA = """
import os
folder = os.path.join(os.environ["TRAINMASTER_DATA"], "set")
found = sorted(os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(folder) for name in names)
print("data", found, sum(os.path.getsize(os.path.join(folder, name)) for name in found))
"""


def test_prefix_of_the_store_is_copied_to_the_node(server: Server, tmp_path: Path) -> None:
    store = store_of(server)
    sizes = {"set/a": 7, "set/deep/b ü": 3_000_000, "other/c": 5, "single.bin": 11}
    for path, size in sizes.items():
        signed = store.sign_put(f"pre/data/{path}")
        put = urllib.request.Request(signed.url, bytes(size), headers=dict(signed.headers), method="PUT")
        urllib.request.urlopen(put).close()
    section = {**server.section, "prefix": "pre"} if server.kind != "azure" else None
    if section is None:
        pytest.skip("Determined's azure section has no prefix; what lists and signs is the same")
    site = {
        "checkpoint_storage": section,
        "resource_manager": {"type": "local", "node_data": str(tmp_path)},
    }
    with serving(json.dumps(site)) as process:
        stored = Stored(server, store, process)
        client = process.client()
        for said in ("copied 3 MB in 2 files", "is on this node already (3 MB)"):
            number = stored.create(DATA, data=[{"source": "storage:set", "to": "node"}])
            ended_as(client, number, "COMPLETED")
            log = log_text(client, only_trial(client, number).id)
            assert said in log
            assert "data ['a', 'deep/b ü'] 3000007" in log
        number = stored.create(DATA, data=[{"source": "storage:single.bin", "to": "node", "name": "set"}])
        ended_as(client, number, "COMPLETED")
        assert "data ['single.bin'] 11" in log_text(client, only_trial(client, number).id)
        number = stored.create(DATA, data=[{"source": "storage:absent", "to": "node", "name": "set"}])
        assert "there is nothing at storage:absent" in wait_ended(client, number).reason
    for path in sizes:
        store.delete([f"pre/data/{path}"])
