"""`trainmaster doctor --storage`: rows whose files are gone, and files that no row names, in folders and stores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.process.storage.conftest import Stored
from tests.support.master import MasterProcess, ended_as, files, serving, wait_for
from trainmaster.client.models import Checkpoint
from trainmaster.config.master import parse_master
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.services.removal import storage_audit
from trainmaster.master.storage_check import examine_storage

SAVE = """
from trainmaster import core

with core.init() as context:
    for step in (1, 2, 3):
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "weights").write_bytes(bytes(1000))
            (path / "deep").mkdir()
            (path / "deep" / "more").write_bytes(bytes(10))
"""
KEPT = {"save_trial_latest": 3}
AGREE = "y"


def saved(master: MasterProcess) -> list[Checkpoint]:
    config = {
        "name": "audited",
        "entrypoint": "python3 train.py",
        "searcher": {"name": "single", "metric": "m"},
        "checkpoint_storage": KEPT,
    }
    client = master.client()
    number = client.create_experiment(json.dumps(config), files(train__py=SAVE)).id
    ended_as(client, number, "COMPLETED")
    return sorted(client.checkpoints(number), key=lambda row: row.steps_completed)


def examined(master: MasterProcess, agree: bool, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, list[str]]:
    """The status, what was printed, and what was asked."""
    asked: list[str] = []

    def confirm(question: str) -> bool:
        asked.append(question)
        return agree

    status = examine_storage(parse_master(master.config.read_text()), master.data, confirm)
    return status, capsys.readouterr().out, asked


def states(master: MasterProcess, rows: list[Checkpoint]) -> list[str]:
    client = master.client()
    return [client.checkpoint(row.uuid).state for row in rows]


@pytest.fixture(scope="module")
def master() -> Iterator[MasterProcess]:
    with serving("resource_manager: {type: local}") as process:
        yield process


def old(folder: Path) -> None:
    """As if nothing had changed there for three days."""
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - 3 * 86400,) * 2)


def test_folder_is_compared_and_mended(
    master: MasterProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first, second, third = rows = saved(master)
    root = master.data / "checkpoints"
    assert examined(master, True, capsys) == (
        0,
        f"ok     {root}: 3 checkpoints, 0 of which miss files; 0 folders that no row names\nNo difference was found.\n",
        [],
    )
    shutil.rmtree(root / first.uuid)
    (root / second.uuid / "weights").unlink()
    stray, young, foreign = (root / str(uuid.uuid4()), root / str(uuid.uuid4()), root / "data")
    for folder in (stray, young, foreign):
        folder.mkdir()
        (folder / "weights").write_bytes(bytes(77))
    (stray / "outside").symlink_to(tmp_path)
    (tmp_path / "precious").write_text("x")
    for folder in (stray, foreign):
        old(folder)
    os.utime(stray / "outside", (0, 0), follow_symlinks=False)

    status, told, asked = examined(master, False, capsys)
    assert status == 1
    assert f"checkpoint {first.uuid} of experiment {first.experiment_id}: 3 of 3 files are gone" in told
    assert f"checkpoint {second.uuid} of experiment {first.experiment_id}: 1 of 3 files are gone" in told
    assert f"{stray.name}: 2 files, " in told
    assert str(young.name) not in told
    assert "data" not in told.replace(str(root), "").replace("database", "")
    assert len(asked) == 2
    assert "3 differences left." in told
    assert "is the storage mounted?" not in asked[0]
    assert states(master, rows) == ["COMPLETED"] * 3
    assert stray.exists()

    status, told, _ = examined(master, True, capsys)
    assert status == 0, told
    wait_for(
        lambda: states(master, rows) == ["DELETED", "PARTIALLY_DELETED", "COMPLETED"], "the lists of files to be read"
    )
    assert not stray.exists()
    assert (tmp_path / "precious").exists()
    assert young.exists()
    assert (foreign / "weights").exists()
    assert (root / third.uuid / "weights").exists()
    shutil.rmtree(young)
    assert examined(master, True, capsys)[0] == 0


def test_files_that_a_row_places_elsewhere_are_not_stray(
    master: MasterProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = saved(master)
    folder = master.data / "checkpoints" / first.uuid
    old(folder)
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    elsewhere = text('UPDATE checkpoints SET storage = \'{"type": "elsewhere"}\' WHERE uuid = :uuid')
    with engine.begin() as connection:
        connection.execute(elsewhere, {"uuid": first.uuid})
    engine.dispose()
    assert first.uuid not in examined(master, True, capsys)[1]
    assert (folder / "weights").exists()


def test_without_a_terminal_nothing_is_mended(master: MasterProcess) -> None:
    first, *_ = saved(master)
    shutil.rmtree(master.data / "checkpoints" / first.uuid)
    command = (sys.executable, "-m", "trainmaster.cli.admin", "doctor", "--storage")
    place = ("--config", str(master.config), "--data", str(master.data))
    done = subprocess.run([*command, *place], input=AGREE, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert first.uuid in done.stdout
    assert "Run this at a terminal to be asked." in done.stdout
    assert states(master, [first]) == ["COMPLETED"]
    shutil.copytree(master.data / "checkpoints" / saved(master)[0].uuid, master.data / "checkpoints" / first.uuid)


@pytest.mark.parametrize("server", ["rclone"], indirect=True)
def test_object_store_is_compared_and_mended(
    stored: Stored, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = rows = saved(stored.process)
    store = stored.store
    kept = [key for key in stored.objects() if first.uuid in key or f"{second.uuid}/weights" in key]
    store.delete(kept)
    stray = f"site/a b/{uuid.uuid4()}/weights"
    foreign = "site/a b/readme/weights"
    for key in (stray, foreign):
        signed = store.sign_put(key)
        put = urllib.request.Request(signed.url, b"abc", headers=dict(signed.headers), method="PUT")
        urllib.request.urlopen(put).close()
    assert stray.split("/")[2] not in examined(stored.process, False, capsys)[1]  # a job may be about to report it
    monkeypatch.setattr(storage_audit, "YOUNG", -60.0)
    status, told, _ = examined(stored.process, True, capsys)
    assert status == 0, told
    assert f"checkpoint {first.uuid} of experiment {first.experiment_id}: " in told
    assert "1 folders that no row names" in told
    wait_for(
        lambda: states(stored.process, rows) == ["DELETED", "PARTIALLY_DELETED", "COMPLETED"],
        "the lists of files to be read",
    )
    assert stray not in stored.objects()
    assert foreign in stored.objects()
    assert any(third.uuid in key for key in stored.objects())
    store.delete([foreign])


def test_place_that_cannot_be_seen_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = f"checkpoint_storage: {{type: shared_fs, host_path: {tmp_path}/absent}}\nresource_manager: {{type: local}}"
    with serving(config) as process:
        status, told, asked = examined(process, True, capsys)
    assert (status, asked) == (0, [])
    assert f"{tmp_path}/absent: it cannot be looked at from here: [Errno 2]" in told
