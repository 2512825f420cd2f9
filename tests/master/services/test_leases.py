"""Of runs that ask for one node's lease at the same time one gets it."""

from __future__ import annotations

import io
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import insert

from tests.master.services.attempts import Attempts
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db.tables import Experiment, ModelDefinition
from trainmaster.master.services.archives import SMALL
from trainmaster.master.services.errors import Conflict
from trainmaster.master.services.leases import LeaseRequest, lease

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
        return lease(attempts.store, name, LeaseRequest("7", run, 0, 1, "n1", [0], ["10.0.0.1"]), {})
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


def test_small_files_come_with_the_lease(attempts: Attempts) -> None:
    sent = [{"path": "a", "mode": 0o644, "mtime": 0, "content": "YWJj"}]
    for files, listed in ((b"", None), (archive("a", b"abc"), sent), (archive("a", os.urandom(SMALL + 1)), None)):
        work = ask(attempts, waiting(attempts, files), "run")
        assert work is not None
        assert (work["context_size"], work["files"]) == (len(files), listed)
