from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from trainmaster.master.db.folder_lease import FolderHeld, FolderLease

PERIOD = 0.1


def foreign_lease(folder: Path, beat: int, *, released: bool = False) -> None:
    record = {"host": "login2", "boot": "another", "pid": 4711, "beat": beat, "released": released}
    draft = folder / "draft"
    draft.write_text(json.dumps(record))
    draft.replace(folder / "master.lock")  # at once: half a record is nobody's


def test_error_names_master_that_holds_folder(tmp_path: Path) -> None:
    first = FolderLease(tmp_path, period=PERIOD)
    first.acquire()
    try:
        with pytest.raises(FolderHeld, match=rf"in use by another master \(process {os.getpid()} on .*choose another"):
            FolderLease(tmp_path, period=PERIOD).acquire()
    finally:
        first.release()
    again = FolderLease(tmp_path, period=PERIOD)
    again.acquire()
    again.release()


def test_live_lease_of_another_machine_is_respected(tmp_path: Path) -> None:
    stop = threading.Event()

    def beat() -> None:
        count = 0
        while not stop.wait(PERIOD):  # a tenth of the other's period: a busy machine may skip some
            count += 1
            foreign_lease(tmp_path, count)

    foreign_lease(tmp_path, 0)
    other = threading.Thread(target=beat)
    other.start()
    try:
        with pytest.raises(FolderHeld, match="process 4711 on login2"):
            FolderLease(tmp_path, period=10 * PERIOD).acquire()
    finally:
        stop.set()
        other.join()


@pytest.mark.parametrize("released", [True, False])
def test_a_lease_of_a_dead_machine_is_taken_over(tmp_path: Path, released: bool) -> None:
    foreign_lease(tmp_path, 3, released=released)
    lease = FolderLease(tmp_path, period=PERIOD)
    lease.acquire()
    lease.release()
    assert json.loads((tmp_path / "master.lock").read_text())["released"] is True


def test_rubbish_in_the_file_is_no_holder(tmp_path: Path) -> None:
    (tmp_path / "master.lock").write_text("{half a rec")
    lease = FolderLease(tmp_path, period=PERIOD)
    lease.acquire()
    lease.release()
