"""One bad row blocks nothing: what cannot be removed is reported, and all else continues."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job, jobs_of, kept_in
from tests.support.master import MasterProcess, wait_for
from trainmaster.master.services import retries
from trainmaster.master.services.retries import Retries

Json = dict[str, Any]
POISON: Any = (
    {}, {"type": "shared_fs"}, {"type": "shared_fs", "host_path": None}, {"type": "shared_fs", "host_path": [1]},
    {"type": "shared_fs", "host_path": "/x", "storage_path": 7}, {"type": "directory", "container_path": "x" * 5000},
    {"type": ["shared_fs"]}, [], "text", 3,
)  # fmt: skip


def poisoned(engine: Engine, job: Job, storage: Any) -> str:
    """A checkpoint's row as it might once have been stored, with a request to remove its files."""
    key = str(uuid.uuid4())
    facts = {"key": key, "e": job.experiment_id, "t": job.trial_id, "task": job.task_id, "s": json.dumps(storage)}
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO checkpoints (uuid, experiment_id, trial_id, task_id, state, report_time, steps_completed,"
                " size, resources, metadata, storage) VALUES (:key, :e, :t, :task, 'COMPLETED', now(), 1, 1,"
                " '{\"a\": 1}', '{}', CAST(:s AS jsonb))"
            ),
            facts,
        )
        connection.execute(
            text("INSERT INTO checkpoint_removals (checkpoint, globs) VALUES (:key, '[\"**/*\"]')"), facts
        )
    return key


def requests(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM checkpoint_removals")).scalar_one())


def test_poisoned_rows_hold_up_no_removal(
    master: MasterProcess, user: Api, engine: Engine, experiment: Callable[..., int], root: Path
) -> None:
    jobs = [jobs_of(master, user, experiment(kept_in(root)))[0] for _ in range(2)]
    for job in jobs:
        assert job.lease().status == 200
    bad, good = jobs
    keys = [poisoned(engine, bad, storage) for storage in POISON]
    record = {"kind": "checkpoint", "steps_completed": 1, "resources": {"a": 1}, "metadata": {"steps_completed": 1}}
    key = str(uuid.uuid4())
    (root / key).mkdir()
    (root / key / "a").write_text("a")
    assert good.send([record | {"uuid": key}, record | {"uuid": str(uuid.uuid4())}]).status == 200
    for each in keys:
        assert user.call("GET", f"/checkpoints/{each}").status == 503
    for job in jobs:
        job.leave()
        at = f"/api/v1/experiments/{job.experiment_id}"
        wait_for(lambda at=at: user.get(at).json["experiment"]["state"] == "STATE_COMPLETED", "its end")  # type: ignore[misc]
        assert user.call("DELETE", at).status == 200
    for job in jobs:
        at = f"/api/v1/experiments/{job.experiment_id}"
        wait_for(lambda at=at: user.get(at).status == 404, "both experiments to go")  # type: ignore[misc]
    assert not (root / key).exists()
    wait_for(lambda: requests(engine) == 0, "no request to be left")


def test_a_removal_that_cannot_succeed_ends_with_a_reason(user: Api, engine: Engine, keeping: Job, root: Path) -> None:
    record = {"kind": "checkpoint", "steps_completed": 1, "resources": {"a": 1}, "metadata": {"steps_completed": 1}}
    key = str(uuid.uuid4())
    (root / key).write_text("a file in its place")
    assert keeping.send([record | {"uuid": key}, record | {"uuid": str(uuid.uuid4())}]).status == 200
    assert user.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [key]}).status == 200
    wait_for(lambda: requests(engine) == 0, "the request to be given up")
    lines = [str(line) for line in user.lines(f"/api/v1/trials/{keeping.trial_id}/logs")]
    assert len([line for line in lines if f"{key} is a link, or not a folder" in line]) == 1


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_repeated_failure_is_retried_more_rarely_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock, tried = Clock(), []
    patient = Retries(clock)

    def work(item: str) -> None:
        tried.append((item, clock.now))
        if item == "bad":
            raise KeyError("host_path")

    with caplog.at_level(logging.WARNING):
        for second in range(0, 3600, 15):
            clock.now = float(second)
            patient.each("the removal of", ["bad", "good"], work)
    bad = [at for item, at in tried if item == "bad"]
    assert bad == [0, 15, 45, 105, 225, 465, 945, 1905]
    assert len([at for item, at in tried if item == "good"]) == 240
    assert [record.getMessage() for record in caplog.records] == [
        "the removal of bad failed; it will be retried with increasing delays"
    ]
    patient.each("the removal of", [], work)
    patient.each("the removal of", ["bad"], work)
    assert tried[-1] == ("bad", 3585.0), "what came anew is tried at once"


def test_retries_give_up_on_persistent_failure_within_one_day() -> None:
    clock, given_up = Clock(), list[Any]()
    patient = Retries(clock)

    def work(_: int) -> None:
        raise PermissionError(13, "Permission denied")

    while not given_up:
        patient.each("the removal of", [7], work, lambda item, error: given_up.append((item, str(error))))
        clock.now += retries.FIRST_PAUSE
        assert clock.now < 86400
    assert given_up == [(7, "[Errno 13] Permission denied")]


def test_a_step_that_fails_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainmaster.master.controller.janitor import _Loop
    from trainmaster.master.services.store import Wakeups

    done = []

    def broken() -> None:
        raise KeyError("host_path")

    loop = _Loop("janitor", Wakeups(), Retries(), {"one": broken, "two": lambda: done.append("two")})
    loop.start()
    try:
        wait_for(lambda: done, "the second step")
    finally:
        loop.stop()
