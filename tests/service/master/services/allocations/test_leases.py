"""Of runs that ask for one node's lease at the same time one gets it."""

from __future__ import annotations

import io
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.attempts import Attempts
from tests.support.batches import request, waiting
from trainmaster.master.db.tables import Allocation
from trainmaster.master.services.batches import CannotBatch, single
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Conflict, Invalid, NotFound
from trainmaster.master.services.files.archives import SMALL
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.values.observed import ObservedJob


def archive(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def ask(attempts: Attempts, name: str, run: str) -> dict[str, Any] | None:
    try:
        return single(attempts.master.leases.lease([request(name, run=run)], {}))
    except Conflict:
        return None


def test_first_report_after_lease_can_share_a_batch(attempts: Attempts) -> None:
    name = waiting(attempts)
    assert ask(attempts, name, "run 1") is not None
    record = {"t": 1.5e9, "kind": "metrics", "group": "training", "steps_completed": 1, "metrics": {"loss": 1}}
    call = ReportCall(name, StreamBatch("core", 1, [record]))
    assert single(attempts.master.report_calls.take_reports([call], wait=False)).acked == 1


def test_one_of_many_runs_gets_the_lease(attempts: Attempts) -> None:
    name = waiting(attempts)
    runs = [f"run {number}" for number in range(4)]
    with ThreadPoolExecutor(len(runs)) as threads:
        answers = list(threads.map(lambda run: ask(attempts, name, run), runs))
    (granted,) = [run for run, answer in zip(runs, answers, strict=True) if answer is not None]
    again = ask(attempts, name, granted)
    assert again is not None
    assert again["trial"]["steps_completed"] == 0
    assert sum("runs on n1" in line for line in attempts.log(name)) == 1
    assert sum("New trial runner" in line for line in attempts.log(name)) == 1


def test_small_files_come_with_the_lease(attempts: Attempts) -> None:
    sent = [{"path": "a", "mode": 0o644, "mtime": 0, "content": "YWJj"}]
    for files, listed in ((b"", None), (archive("a", b"abc"), sent), (archive("a", os.urandom(SMALL + 1)), None)):
        work = ask(attempts, waiting(attempts, files), "run")
        assert work is not None
        assert (work["context_size"], work["files"]) == (len(files), listed)


def test_leases_that_are_asked_for_at_once_are_given_together(attempts: Attempts) -> None:
    names = [waiting(attempts, archive("a", b"abc")) for _ in range(3)]
    asked = [request(name, f"job of {name}") for name in names]
    works = dict(zip(names, attempts.master.leases.lease(asked, {}), strict=True))
    for name in names:
        row = attempts.row(name)
        assert (row.lease_job, row.native_id, row.state) == (f"job of {name}", f"job of {name}", "RUNNING")
        assert sum("runs on n1" in line for line in attempts.log(name)) == 1
        assert single(attempts.master.leases.lease([request(name, f"job of {name}")], {})) == works[name]


def test_each_of_several_has_an_answer_of_its_own(attempts: Attempts) -> None:
    over, leased_by_another, doubled, large, again, busy, plain = (waiting(attempts) for _ in range(7))
    attempts.change(over, kill_at=now())
    attempts.change(leased_by_another, lease_job="8")
    attempts.change(doubled, observed=ObservedJob(doubles=("7",)))
    ask(attempts, again, "run")
    names = [over, leased_by_another, doubled, large, again, busy, plain, "nobody"]
    asked = [request(name, nodes=2 if name == large else 1) for name in names]
    with attempts.store.transaction() as session:
        session.get_one(Allocation, busy, with_for_update=True)
        outcomes = attempts.master.leases.lease(asked, {}, wait=False)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Conflict, Conflict, Conflict, Invalid, dict, CannotBatch, dict, CannotBatch]
    for name in (over, doubled, large, busy):
        assert (attempts.row(name).lease_job, attempts.log(name)) == (None, [])
    with pytest.raises(NotFound):
        single(attempts.master.leases.lease([request("nobody")], {}))


def test_of_many_runs_one_gets_each_lease_alone_or_together(attempts: Attempts) -> None:
    names = [waiting(attempts) for _ in range(4)]

    def together(run: str) -> list[tuple[str, str]]:
        outcomes = attempts.master.leases.lease([request(name, run=run) for name in names], {})
        return [(name, run) for name, outcome in zip(names, outcomes, strict=True) if isinstance(outcome, dict)]

    def alone(run: str) -> list[tuple[str, str]]:
        return [(name, run) for name in names if ask(attempts, name, run) is not None]

    with ThreadPoolExecutor(8) as threads:
        tries = [threads.submit(how, f"{how.__name__} {number}") for number in range(4) for how in (together, alone)]
        given = [found for each in tries for found in each.result()]
    runs = {name: [run for found, run in given if found == name] for name in names}
    for name, granted in runs.items():
        assert len(granted) == 1, runs
        assert sum("runs on n1" in line for line in attempts.log(name)) == 1
