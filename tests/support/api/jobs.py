"""Simulates a job's calls to the master; the real batch job waits in the queue behind one that uses all slots."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from tests.support.api.http import Answer, Api
from tests.support.master import MasterProcess, wait_for

Json = dict[str, Any]


def config(**keys: Any) -> str:
    """YAML (JSON is YAML) of an experiment with one trial."""
    searcher = {"name": "single", "metric": "loss"}
    return json.dumps({"name": "test", "entrypoint": "sleep 600", "max_restarts": 0, "searcher": searcher, **keys})


def kept_in(root: Path, **keys: Any) -> str:
    """Like `config`, with the checkpoints in a folder."""
    return config(checkpoint_storage={"type": "shared_fs", "host_path": str(root)}, **keys)


def create(api: Api, yaml: str | None = None, **body: Any) -> int:
    answer = api.post("/api/v1/experiments", {"config": yaml or config(), "activate": True, **body})
    assert answer.status == 200, answer.content
    return int(answer.json["experiment"]["id"])


@dataclass
class Job:
    """One attempt of one trial; `api` uses its session token."""

    api: Api
    allocation_id: str
    task_id: str
    trial_id: int
    experiment_id: int
    folder: Path
    sent: dict[str, int] = field(default_factory=dict)

    def lease(self, job_id: str = "played-1", **facts: Any) -> Answer:
        body = {"job_id": job_id, "node_rank": 0, "num_nodes": 1, "node_name": "node-a", "slot_ids": [0], **facts}
        return self.api.post(f"/api/x1/allocations/{self.allocation_id}/lease", body)

    def context(self) -> Answer:
        """The user's files, as the runtime fetches them."""
        return self.api.get(f"/api/x1/allocations/{self.allocation_id}/context")

    def send(self, records: Sequence[Json], *, stream: str = "core", first: int | None = None) -> Answer:
        """The next records of a stream, or records from number `first` on."""
        number = self.sent.get(stream, 0) + 1 if first is None else first
        body = {"stream": stream, "first": number, "records": list(records), "node_rank": 0}
        answer = self.api.post(f"/api/x1/allocations/{self.allocation_id}/reports", body)
        if answer.status == 200:
            self.sent[stream] = answer.json["acked"]
        return answer

    def validation(self, steps: int, **metrics: Any) -> Json:
        return self._metrics("validation", steps, metrics)

    def training(self, steps: int, **metrics: Any) -> Json:
        return self._metrics("training", steps, metrics)

    def _metrics(self, group: str, steps: int, metrics: Json) -> Json:
        return {"t": time.time(), "kind": "metrics", "group": group, "steps_completed": steps, "metrics": metrics}

    def leave(self, exit_code: int = 0, **facts: Any) -> None:
        """The exit record, and the conclusion that the master draws from it."""
        record = {"version": 1, "allocation_id": self.allocation_id, "job_id": "played-1", "node_rank": 0}
        record |= {"exit_code": exit_code, "signal": None, "oom": False, "preempted": None, "preempt_acked": False}
        record |= {"message": "", "spool": dict(self.sent), **facts}
        assert self.api.post(f"/api/x1/allocations/{self.allocation_id}/exit", record).status == 200
        path = f"/api/v1/allocations/{self.allocation_id}"
        wait_for(
            lambda: self.api.get(path).json["allocation"]["state"] == "STATE_TERMINATED",
            f"the end of {self.allocation_id}",
        )


def jobs_of(master: MasterProcess, user: Api, experiment_id: int, attempt: int = 1) -> list[Job]:
    """The staged jobs of an experiment's trials, by trial id; waits until they are there."""
    trials = user.get(f"/api/v1/experiments/{experiment_id}/trials").json["trials"]
    return [staged(master, trial, attempt) for trial in trials]


def staged(master: MasterProcess, trial: Json, attempt: int) -> Job:
    allocation_id = f"{trial['taskId']}.{attempt}"

    def find() -> Path | None:
        for path in (master.data / "jobs").glob("*/*/job.json"):
            with contextlib.suppress(FileNotFoundError):  # of a job that ended a minute ago: its folder is removed
                facts = json.loads(path.read_text())
                if facts["allocation_id"] == allocation_id and (path.parent / "secrets" / "token").exists():
                    return path.parent
        return None

    folder = wait_for(find, f"the job folder of {allocation_id}")
    token = (folder / "secrets" / "token").read_text().strip()
    return Job(Api(master.url, token), allocation_id, trial["taskId"], trial["id"], trial["experimentId"], folder)


def give_slots(engine: Engine, job: Job, slots: int) -> None:
    """Let a job have so many slots, and nodes, which no cluster of a test's has."""
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE allocations SET slots = :slots WHERE id = :id"), {"slots": slots, "id": job.allocation_id}
        )
