"""What keeps a master from starting is told in a sentence."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from trainmaster.config.master import parse_master
from trainmaster.dispatchers.base import Setup
from trainmaster.dispatchers.local.dispatcher import LocalDispatcher
from trainmaster.master import main, site
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.watchdog import Watchdog
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.logs.master_log import RecentLog


def test_error_says_database_disappeared_during_master_start(tmp_path: Path) -> None:
    url = f"postgresql+psycopg2:///nothing?host={tmp_path}"  # its socket has gone
    presence = Watchdog(url)
    engine = make_engine(url, pool_size=1, presence=presence)
    with pytest.raises(main.CannotServe, match=r"went away while the master started: .*\. Start it again\."):
        main.make_master(parse_master(""), tmp_path, engine, presence, "http://127.0.0.1:1", None, RecentLog())
    engine.dispose()


def test_master_starts_despite_unwritable_job_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    cluster = Cluster("full", LocalDispatcher(Setup(name="full", prefix="det-", job_root=jobs)), jobs)
    cluster.dispatcher.close()  # its queue would make the folder again
    shutil.rmtree(jobs)  # as a full disk, which is harder to have
    site._announce(cluster, "http://master")
    assert "jobs on full are not told where the master is when it moves: " in caplog.text


def test_requests_that_a_stop_cuts_short_are_no_errors() -> None:
    cut, bug = asyncio.CancelledError("timeout graceful shutdown exceeded"), ValueError("a bug")
    said = "Exception in ASGI application\n"
    records = [logging.makeLogRecord({"msg": said, "exc_info": (type(why), why, None)}) for why in (cut, bug)]
    assert [main._is_no_mere_stop(record) for record in records] == [False, True]
    note = logging.makeLogRecord({"msg": "Cancel %s running task(s), timeout", "args": (3,), "levelname": "ERROR"})
    assert main._is_no_mere_stop(note)
    assert note.levelname == "WARNING"
