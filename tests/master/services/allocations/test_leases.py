"""Of runs that ask for one node's lease at the same time one gets it."""

from __future__ import annotations

import io
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import insert

from tests.support.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Allocation, Experiment, ModelDefinition
from trainmaster.master.services.allocations.leases import LeaseRequest, lease, lease_together
from trainmaster.master.services.clock import now
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.files.archives import SMALL
from trainmaster.master.services.scheduling.observations import DOUBLES
from trainmaster.master.services.store import Settings

SETTINGS = Settings("1", "id", "x", b"secret", "det-", "http://master", b"")
CONFIG = """
entrypoint: "true"
checkpoint_storage: {type: shared_fs, host_path: /tmp}
searcher: {name: single, metric: loss}
"""


def waiting(attempts: Attempts, files: bytes = b"") -> str:
    number = attempts.experiment(parse_experiment(CONFIG).to_json())
    with attempts.store.transaction() as session:
        session.get_one(Experiment, number).context_size = len(files)
        session.execute(insert(ModelDefinition).values(experiment_id=number, archive=files))
    return attempts.attempt(number, native_id="7", exits={})


def archive(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def ask(attempts: Attempts, name: str, run: str) -> dict[str, Any] | None:
    try:
        return lease(attempts.store, SETTINGS, name, LeaseRequest("7", run, 0, 1, "n1", [0], ["10.0.0.1"]), {})
    except Conflict:
        return None


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


def request(job: str = "7", run: str = "run", nodes: int = 1) -> LeaseRequest:
    return LeaseRequest(job, run, 0, nodes, "n1", [0], ["10.0.0.1"])


def test_leases_that_are_asked_for_at_once_are_given_together(attempts: Attempts) -> None:
    names = [waiting(attempts, archive("a", b"abc")) for _ in range(3)]
    works = lease_together(attempts.store, SETTINGS, {name: request(f"job of {name}") for name in names}, {})
    assert sorted(works) == sorted(names)
    for name in names:
        row = attempts.row(name)
        assert (row.lease_job, row.native_id, row.state) == (f"job of {name}", f"job of {name}", "RUNNING")
        assert sum("runs on n1" in line for line in attempts.log(name)) == 1
        again = lease(attempts.store, SETTINGS, name, request(f"job of {name}"), {})
        assert again["trial"].pop("id") == works[name]["trial"].pop("id")
        assert again == works[name]


def test_who_is_not_given_a_lease_at_once_has_to_ask_alone(attempts: Attempts) -> None:
    over, leased_by_another, doubled, large, again, busy, plain = (waiting(attempts) for _ in range(7))
    attempts.change(over, kill_at=now())
    attempts.change(leased_by_another, lease_job="8")
    attempts.change(doubled, observed={DOUBLES: ["7"]})
    ask(attempts, again, "run")
    task = attempts.attempt(native_id="7", exits={})
    attempts.change(task, trial_id=None)
    asked = {name: request() for name in (over, leased_by_another, doubled, again, busy, task, plain, "nobody")}
    asked[large] = request(nodes=2)
    with attempts.store.transaction() as session:
        session.get_one(Allocation, busy, with_for_update=True)
        assert list(lease_together(attempts.store, SETTINGS, asked, {})) == [plain]
    for name in (over, doubled, large, busy, task):
        assert (attempts.row(name).lease_job, attempts.log(name)) == (None, [])


def test_of_many_runs_one_gets_each_lease_alone_or_together(attempts: Attempts) -> None:
    names = [waiting(attempts) for _ in range(4)]

    def together(run: str) -> list[tuple[str, str]]:
        return [
            (name, run)
            for name in lease_together(attempts.store, SETTINGS, {name: request(run=run) for name in names}, {})
        ]

    def alone(run: str) -> list[tuple[str, str]]:
        return [(name, run) for name in names if ask(attempts, name, run) is not None]

    with ThreadPoolExecutor(8) as threads:
        tries = [threads.submit(how, f"{how.__name__} {number}") for number in range(4) for how in (together, alone)]
        given = [found for each in tries for found in each.result()]
    runs = {name: [run for found, run in given if found == name] for name in names}
    for name, granted in runs.items():
        assert len(granted) == 1, runs
        assert sum("runs on n1" in line for line in attempts.log(name)) == 1
