"""A search as weeks of work leave it: a thousand trials with their curves, jobs, checkpoints and story.

The searcher decides for real; only the trainings are made up. What still runs belongs to a cluster that the master does
not have, so that no controller looks after it.
"""

from __future__ import annotations

import datetime as dt
import heapq
import json
import math
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Table, delete, insert, select, text, update

from trainmaster.master.db.searches import search_events, search_versions
from trainmaster.master.db.tables import Allocation, Checkpoint, Experiment, Story, Task, Trial, metrics, task_logs
from trainmaster.master.search import Search
from trainmaster.master.search.actions import (
    Action,
    Create,
    ExitReason,
    PauseTrial,
    ResumeTrial,
    Shutdown,
    StopTrial,
)

CLUSTER = "elsewhere"
EPOCH_STEPS = 100  # batches of an epoch
WALLTIME = 40 * 60.0  # seconds of a job
CHECKPOINT_EVERY = 5  # epochs
NODE_FAILURES = 0.02  # share of jobs
WAITS = (
    "waits for 4 free GPUs (Slurm: Resources); 3 jobs are in front of it",
    "the limit of running jobs of account vision is reached (Slurm: QOSMaxJobsPerUserLimit)",
)

CONFIG = """
name: {name}
description: learning rate and width of a small vision transformer
labels: [vit, paper]
entrypoint: python3 train.py
reproducibility: {{experiment_seed: 7}}
resources: {{slots_per_trial: 4}}
searcher:
  metric: val_loss
  time_metric: epochs
  max_time: 81
{searcher}
hyperparameters:
  lr: {{type: log, base: 10, minval: -5, maxval: -1}}
  dropout: {{type: double, minval: 0.0, maxval: 0.6}}
  layers: {{type: int, minval: 2, maxval: 12}}
  optimizer:
    name: {{type: categorical, vals: [adamw, sgd, lion]}}
    warmup: {{type: int, minval: 0, maxval: 1000}}
  batch_size: {{type: categorical, vals: [64, 128, 256]}}
  image_size: 224
"""
ADAPTIVE = """  name: adaptive_asha
  max_trials: {trials}
  divisor: 3
  max_rungs: 5
  max_concurrent_trials: {concurrent}"""
PAUSING = """  name: asha
  max_trials: 40
  divisor: 3
  num_rungs: 4
  max_concurrent_trials: 8"""
BREEDING = """  name: pbt
  population: 12
  interval: 9
  quantile: 0.4"""
TRAINING = "import torch\n\n\ndef main():\n    print('training')\n\n\nif __name__ == '__main__':\n    main()\n"


@dataclass
class _Job:
    attempt: int
    asked: float
    began: float = 0.0
    ended: float | None = None
    outcome: str = ""
    said: str = ""
    saved: list[tuple[float, int]] = field(default_factory=list)  # when, and at which epoch


@dataclass
class _Training:
    number: int
    order: Create
    made: float
    pace: float  # seconds an epoch
    epoch: int = 0
    saved: int = 0  # epoch of the last checkpoint
    jobs: list[_Job] = field(default_factory=list)
    losses: list[tuple[float, int, float, float, int]] = field(default_factory=list)  # at, epoch, train, val, attempt
    stop: str = ""
    ended: float | None = None
    state: str = "ACTIVE"
    reason: str = ""
    restarts: int = 0
    pause: str = ""  # why the search has paused it

    @property
    def job(self) -> _Job:
        return self.jobs[-1]


def config(
    *, name: str = "vit-small imagenet", trials: int = 1000, concurrent: int = 16, searcher: str = ADAPTIVE
) -> str:
    return CONFIG.format(name=json.dumps(name), searcher=searcher.format(trials=trials, concurrent=concurrent))


class _Play:
    """The search and its trainings over seconds since its start."""

    def __init__(self, config: Mapping[str, Any], seed: int, until: float | None) -> None:
        self._luck = random.Random(seed)
        self._until = math.inf if until is None else until
        self._due: list[tuple[float, int, str, _Training]] = []
        self._count = 0
        self.clock = 0.0
        self.trainings: list[_Training] = []
        self._by_request: dict[str, _Training] = {}
        self.story: list[tuple[float, _Training | None, str, str, str, str, str, list[str]]] = []
        self.over = ""
        self.search, actions = Search.start(
            config["searcher"], config["hyperparameters"], config["reproducibility"]["experiment_seed"]
        )
        self._tell(None, "search", "started", "", "", self.search.describe(), [])
        self._take(actions)
        while self._due and self._due[0][0] <= self._until:
            self.clock, _, what, one = heapq.heappop(self._due)
            getattr(self, f"_{what}")(one)
        self.clock = min(self.clock, self._until)

    def _tell(
        self, one: _Training | None, subject: str, event: str, before: str, after: str, why: str, then: list[str]
    ) -> None:
        self.story.append((self.clock, one, subject, event, before, after, why, then))

    def _plan(self, seconds: float, what: str, one: _Training) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.clock + seconds, self._count, what, one))

    def _take(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Create():
                    pace = self._luck.uniform(18, 45) * (1 + action.hparams["layers"] / 12)
                    one = _Training(len(self.trainings), action, self.clock, pace)
                    if action.parent:
                        one.saved = self._by_request[action.parent].saved
                    self.trainings.append(one)
                    self._by_request[action.request_id] = one
                    self._tell(one, "search", "Create", "", "", action.why, [])
                    self._ask(one)
                    self._tell(one, "trial", "Created", "ACTIVE", "ACTIVE", "", ["attempt 1 is to start"])
                case StopTrial(request_id, why):
                    one = self._by_request[request_id]
                    one.stop = why
                    self._tell(one, "search", "Stop", "", "", why, [])
                    then = f"the running attempt is asked to save its work and leave: {why}"
                    self._tell(one, "trial", "Stop", "ACTIVE", "STOPPING_COMPLETED", why, [then])
                    if one.pause and one.job.ended is not None:  # it has no job that would leave
                        one.pause, one.job.said = "", f"The trial was paused ({why})"
                        self._end(one, "COMPLETED")
                case PauseTrial(request_id, why):
                    one = self._by_request[request_id]
                    one.pause = why
                    self._tell(one, "search", "Pause", "", "", why, [])
                    then = f"the running attempt is asked to save its work and leave: {why}"
                    self._tell(one, "trial", "Hold", "ACTIVE", "PAUSED", why, [then])
                case ResumeTrial(request_id, why):
                    one = self._by_request[request_id]
                    one.pause, one.state = "", "ACTIVE"
                    self._tell(one, "search", "Resume", "", "", why, [])
                    then = f"attempt {one.job.attempt + 1} is to start"
                    self._tell(one, "trial", "Release", "PAUSED", "ACTIVE", why, [then])
                    if one.job.ended is not None:  # else it has not begun to leave
                        self._ask(one)
                case Shutdown(why=why):
                    self.over = why

    def _ask(self, one: _Training) -> None:
        one.jobs.append(_Job(len(one.jobs) + 1, self.clock))
        self._plan(self._luck.expovariate(1 / 240), "begin", one)

    def _begin(self, one: _Training) -> None:
        one.job.began = self.clock
        one.epoch = one.saved
        self._plan(8 + one.pace, "report", one)

    def _report(self, one: _Training) -> None:
        if self._luck.random() < NODE_FAILURES / 5:
            one.restarts += 1
            self._leave(one, "infrastructure", f"Node {_node(one, one.job)} failed (Slurm: NODE_FAIL)")
            return
        one.epoch += 1
        train, loss = self._loss(one)
        one.losses.append((self.clock, one.epoch, train, loss, one.job.attempt))
        steps = one.epoch * EPOCH_STEPS
        self._take(self.search.validation(one.order.request_id, {"val_loss": loss, "epochs": one.epoch}, steps))
        if one.stop or one.pause or one.epoch % CHECKPOINT_EVERY == 0:
            self._save(one)
        if one.pause:
            self._leave(one, "preempted", f"The trial saved its work and left ({one.pause})")
            one.state = "PAUSED"
        elif one.stop:
            self._leave(one, "preempted", f"The trial saved its work and left ({one.stop})")
            self._end(one, "COMPLETED")
        elif self.clock - one.job.began > WALLTIME:
            self._save(one)
            self._leave(one, "walltime", "The job left before its time limit, after it had saved its work")
        elif one.number % 97 == 41:
            self._leave(one, "out of memory", "CUDA out of memory on node n17: 79.2 of 79.3 GiB were in use")
            self._end(one, "ERROR")
        else:
            self._plan(one.pace * self._luck.uniform(0.9, 1.15), "report", one)

    def _save(self, one: _Training) -> None:
        if one.saved == one.epoch:
            return
        one.saved = one.epoch
        one.job.saved.append((self.clock, one.epoch))

    def _leave(self, one: _Training, outcome: str, said: str) -> None:
        one.job.ended, one.job.outcome, one.job.said = self.clock, outcome, said
        if outcome in ("walltime", "infrastructure"):
            then = f"attempt {one.job.attempt + 1} is to start"
            self._tell(one, "trial", "AllocationEnded", "ACTIVE", "ACTIVE", said, [then])
            self._ask(one)

    def _end(self, one: _Training, state: str) -> None:
        one.ended, one.state, one.reason = self.clock, state, one.job.said
        before = "STOPPING_COMPLETED" if one.stop else "ACTIVE"
        self._tell(one, "trial", "AllocationEnded", before, state, one.reason, [f"the trial ends as {state}"])
        key = one.order.request_id
        self._take(
            self.search.exited(key) if state == "COMPLETED" else self.search.exited_early(key, ExitReason.ERRORED)
        )

    def _loss(self, one: _Training) -> tuple[float, float]:
        hp = one.order.hparams
        off = abs(math.log10(hp["lr"]) + 3) * 0.25 + abs(hp["dropout"] - 0.2) + abs(hp["layers"] - 8) * 0.03
        off += {"adamw": 0.0, "lion": 0.05, "sgd": 0.2}[hp["optimizer"]["name"]]
        floor = 0.25 + off * 0.5
        train = floor * 0.9 + 2.2 * math.exp(-one.epoch * (0.12 + 0.05 / (off + 0.3)))
        loss = floor + 2.3 * math.exp(-one.epoch * (0.1 + 0.04 / (off + 0.3))) + self._luck.gauss(0, 0.01)
        return train + self._luck.gauss(0, 0.01), (math.nan if hp["lr"] > 0.09 and one.epoch > 2 else loss)


def fill_search(
    connection: Connection, experiment_id: int, *, until: float | None = None, seed: int = 1, ago: float = 60.0
) -> None:
    """Gives a paused experiment, made of `config()`, its trials.

    Args:
        until: Seconds after which the search is left as it is then; None: it has ended.
        ago: How many seconds ago its last event happened.
    """
    e = Experiment.__table__.c
    row = connection.execute(select(e.config, e.job_id, e.owner_id, e.resource_pool).where(e.id == experiment_id)).one()
    play = _Play(row.config.to_json(), seed, until)
    start = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=play.clock + ago)

    def when(seconds: float | None) -> dt.datetime | None:
        return None if seconds is None else start + dt.timedelta(seconds=seconds)

    mine = select(Trial.id).where(Trial.experiment_id == experiment_id)
    tasks = connection.scalars(select(Trial.task_id).where(Trial.experiment_id == experiment_id)).all()
    connection.execute(delete(Story).where(Story.experiment_id == experiment_id))
    connection.execute(delete(Trial).where(Trial.id.in_(mine)))
    connection.execute(delete(Task).where(Task.task_id.in_(tasks)))
    connection.execute(delete(search_events).where(search_events.c.experiment_id == experiment_id))
    first = connection.scalar(text("SELECT coalesce(max(id), 0) + 1 FROM trials")) or 1
    ids = {one.number: first + one.number for one in play.trainings}
    by_request = {one.order.request_id: ids[one.number] for one in play.trainings}
    parents = {one.number: by_request.get(one.order.parent or "") for one in play.trainings}
    task_of = {one.number: f"{experiment_id}.{one.order.request_id}" for one in play.trainings}
    _insert(
        connection,
        Task.__table__,
        [
            {
                "task_id": task_of[one.number],
                "task_type": "TRIAL",
                "job_id": row.job_id,
                "start_time": when(one.made),
                "end_time": when(one.ended),
            }
            for one in play.trainings
        ],
    )
    saved = {one.number: [uuid.uuid5(uuid.NAMESPACE_OID, f"{experiment_id} {one.number} {epoch}")
                          for job in one.jobs for _, epoch in job.saved] for one in play.trainings}  # fmt: skip
    _insert(
        connection,
        Trial.__table__,
        [
            _trial(
                one, ids[one.number], experiment_id, task_of[one.number], parents[one.number], saved[one.number], when
            )
            for one in play.trainings
        ],
    )
    _insert(
        connection,
        Allocation.__table__,
        [
            _allocation(one, job, ids[one.number], task_of[one.number], row, when)
            for one in play.trainings
            for job in one.jobs
        ],
    )
    _insert(
        connection,
        Checkpoint.__table__,
        [
            _checkpoint(
                one, job, at, epoch, ids[one.number], experiment_id, task_of[one.number], row.config.to_json(), when
            )
            for one in play.trainings
            for job in one.jobs
            for at, epoch in job.saved
        ],
    )
    _insert(
        connection,
        metrics,
        [
            {
                "kind": kind,
                "trial_id": ids[one.number],
                "run_id": attempt,
                "group": kind,
                "steps": epoch * EPOCH_STEPS,
                "at": when(at),
                "archived": (at, epoch, train, loss, attempt) not in kept,
                "metrics": {key: {name: _plain(value) for name, value in values.items()}},
            }
            for one in play.trainings
            for kept in [set(_kept(one))]
            for at, epoch, train, loss, attempt in one.losses
            for kind, key, values in (
                ("training", "avg_metrics", {"loss": train, "lr": one.order.hparams["lr"]}),
                ("validation", "validation_metrics", {"val_loss": loss, "accuracy": 1 / (1 + loss), "epochs": epoch}),
            )
        ],
    )
    _insert(
        connection,
        task_logs,
        [line for one in play.trainings for line in _log(one, task_of[one.number], when)],
    )
    _insert(
        connection,
        Story.__table__,
        [
            {
                "experiment_id": experiment_id,
                "trial_id": None if one is None else ids[one.number],
                "at": when(at),
                "subject": subject,
                "event": event,
                "before": before,
                "after": after,
                "why": why,
                "decisions": then,
            }
            for at, one, subject, event, before, after, why, then in play.story
        ],
    )
    version = connection.scalar(search_versions.next_value())
    best = min((one for one in play.trainings if _best(one) is not None), key=lambda one: _best(one) or 0)
    live = sum(one.ended is None for one in play.trainings)
    connection.execute(
        update(Experiment)
        .where(Experiment.id == experiment_id)
        .values(
            state="ACTIVE" if live else "COMPLETED",
            reason="" if live else play.over or "all its trials have ended",
            search=play.search.snapshot(),
            search_version=version,
            snapshot_version=version,
            progress=play.search.progress(),
            num_trials=len(play.trainings),
            live_trials=live,
            best_trial_id=ids[best.number],
            best_metric=_best(best),
            checkpoint_count=sum(map(len, saved.values())),
            checkpoint_size=sum(map(len, saved.values())) * 350_000_000,
            start_time=when(0),
            end_time=None if live else when(play.clock),
        )
    )
    connection.execute(text("SELECT setval(pg_get_serial_sequence('trials', 'id'), (SELECT max(id) FROM trials))"))


def _node(one: _Training, job: _Job) -> str:
    return f"n{(one.number * 13 + job.attempt) % 40:02d}"


def _insert(connection: Connection, table: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    assert isinstance(table, Table)
    if rows:
        connection.execute(insert(table), rows)


def _kept(one: _Training) -> list[tuple[float, int, float, float, int]]:
    """Reports that no later attempt has repeated."""
    return list({epoch: report for report in one.losses for epoch in [report[1]]}.values())


def _plain(value: float) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _best(one: _Training) -> float | None:
    return min((loss for _, _, _, loss, _ in _kept(one) if not math.isnan(loss)), default=None)


def _summary(values: Sequence[float]) -> dict[str, Any]:
    finite = [value for value in values if not math.isnan(value)]
    if not finite:
        return {"type": "number", "count": len(values), "finite": 0, "last": "NaN"}
    return {
        "type": "number",
        "count": len(values),
        "finite": len(finite),
        "min": min(finite),
        "max": max(finite),
        "sum": sum(finite),
        "mean": sum(finite) / len(finite),
        "last": _plain(values[-1]),
    }


def _trial(
    one: _Training,
    number: int,
    experiment_id: int,
    task: str,
    parent: int | None,
    saved: Sequence[uuid.UUID],
    when: Any,
) -> dict[str, Any]:
    kept = _kept(one)
    losses = [loss for _, _, _, loss, _ in kept]
    shown = [
        {
            "endTime": when(at).isoformat().replace("+00:00", "Z"),
            "metrics": {"avgMetrics": {"val_loss": _plain(loss), "accuracy": _plain(1 / (1 + loss)), "epochs": epoch}},
            "totalBatches": epoch * EPOCH_STEPS,
        }
        for at, epoch, _, loss, _ in kept
    ]
    best = _best(one)
    last = max((epoch for _, epoch, _, _, _ in kept), default=0)
    summary: dict[str, Any] = {}
    if kept:
        summary = {
            "avg_metrics": {"loss": _summary([train for _, _, train, _, _ in kept])},
            "validation_metrics": {
                "val_loss": _summary(losses),
                "accuracy": _summary([1 / (1 + loss) for loss in losses]),
                "epochs": _summary([float(epoch) for _, epoch, _, _, _ in kept]),
            },
        }
    return {
        "id": number,
        "experiment_id": experiment_id,
        "task_id": task,
        "request_id": one.order.request_id,
        "state": one.state,
        "reason": one.reason,
        "hparams": one.order.hparams,
        "seed": one.order.seed,
        "attempts": len(one.jobs),
        "restarts": 0,
        "setbacks": 0,
        "stop": "searcher" if one.stop else None,
        "search_pause": "paused" if one.pause else "",
        "parent_id": parent,
        "searcher_told": one.state == "ERROR",
        "runner_state": "",
        "progress": 1.0 if one.state == "COMPLETED" else last / 81,
        "total_batches": last * EPOCH_STEPS,
        "summary_metrics": summary,
        "latest_validation": shown[-1] if shown else None,
        "best_validation": None if best is None else shown[losses.index(best)],
        "searcher_metric": best,
        "latest_checkpoint": saved[-1] if saved else None,
        "checkpoint_count": len(saved),
        "checkpoint_size": len(saved) * 350_000_000,
        "start_time": when(one.made),
        "end_time": when(one.ended),
    }


def _allocation(one: _Training, job: _Job, trial: int, task: str, row: Any, when: Any) -> dict[str, Any]:
    native = str(48_000 + one.number * 7 + job.attempt)
    node = _node(one, job)
    began = job.began if job.began else None
    waits = began is None
    state = "TERMINATED" if job.ended is not None else "ASSIGNED" if waits else "RUNNING"
    observed: dict[str, Any] = {
        "raw": "COMPLETED" if job.ended is not None else "PENDING" if waits else "RUNNING",
        "text": "",
        "never": False,
        "nodes": [] if waits else [node],
        "reason": "",
        "ends_at": None if began is None else when(began + WALLTIME + 600).timestamp(),
        "restarts": 0,
    }
    if waits:
        observed["expected_start"] = when(job.asked + 1800 + one.number % 7 * 600).timestamp() + 3600
    exits = {}
    if job.ended is not None:
        failed = job.outcome in ("out of memory", "infrastructure")
        exits = {
            "0": {
                "job_id": native,
                "message": job.said,
                "exit_code": 1 if failed else 0,
                "signal": None,
                "oom": job.outcome == "out of memory",
                "node_name": node,
                "node_rank": 0,
                "began": True,
                "started_at": when(began).timestamp(),
                "ended_at": when(job.ended).timestamp(),
            }
        }
    return {
        "id": f"{task}.{job.attempt}",
        "task_id": task,
        "trial_id": trial,
        "token": f"det-filled-{trial}-a{job.attempt}",
        "state": state,
        "submission": "SUBMITTED",
        "attempt": job.attempt,
        "dispatcher": CLUSTER,
        "pool": row.resource_pool,
        "slots": 4,
        "owner_id": row.owner_id,
        "not_before": when(job.asked),
        "submit_started_at": when(job.asked + 1),
        "submitted_at": when(job.asked + 1),
        "native_id": native,
        "cluster": CLUSTER,
        "lease_job": None if waits else native,
        "leased_at": when(began),
        "num_nodes": 1,
        "observed_state": "PENDING" if waits else "RUNNING",
        "observed": observed,
        "explanation": WAITS[one.number % 2] if waits else "",
        "preempt_reason": one.stop or None if job is one.jobs[-1] else None,
        "preempt_at": when(job.ended) if one.stop and job is one.jobs[-1] else None,
        "preempt_acked": False,
        "checkpoints_before": 0,
        "exits": exits,
        "outcome": job.outcome or None,
        "exit_code": exits["0"]["exit_code"] if exits else None,
        "exit_text": job.said,
        "collected": job.ended is not None,
        "created_at": when(job.asked),
        "ended_at": when(job.ended),
    }


def _checkpoint(
    one: _Training, job: _Job, at: float, epoch: int, trial: int, experiment: int, task: str, config: Any, when: Any
) -> dict[str, Any]:
    loss = next((report[3] for report in reversed(one.losses) if report[1] == epoch), math.nan)
    return {
        "uuid": uuid.uuid5(uuid.NAMESPACE_OID, f"{experiment} {one.number} {epoch}"),
        "experiment_id": experiment,
        "trial_id": trial,
        "task_id": task,
        "allocation_id": f"{task}.{job.attempt}",
        "state": "COMPLETED" if (epoch, at) == (one.saved, job.saved[-1][0]) else "DELETED",
        "report_time": when(at),
        "steps_completed": epoch * EPOCH_STEPS,
        "size": 350_000_000,
        "resources": {"model.pt": 349_990_000, "metadata.json": 10_000},
        "metadata": {"steps_completed": epoch * EPOCH_STEPS},
        "storage": config["checkpoint_storage"],
        "metric": None if math.isnan(loss) else loss,
        "validation": {"val_loss": _plain(loss), "epochs": epoch},
    }


def _log(one: _Training, task: str, when: Any) -> list[dict[str, Any]]:
    lines: list[tuple[float, int, int, str, str]] = []  # at, attempt, level, source, text
    for job in one.jobs:
        lines.append((job.asked + 1, job.attempt, 3, "master", f"Attempt {job.attempt} is a job of pool gpu."))
        if job.began:
            lines.append((job.began, job.attempt, 3, "task", f"starting after epoch {one.epoch}"))
        if job.ended is not None:
            level = 5 if job.outcome in ("out of memory", "infrastructure") else 3
            lines.append((job.ended, job.attempt, level, "master", job.said))
    for at, epoch, train, loss, attempt in one.losses:
        lines.append((at, attempt, 3, "task", f"epoch {epoch}: loss {train:.4f}, val_loss {loss:.4f}"))
    return [
        {
            "task_id": task,
            "allocation_id": f"{task}.{attempt}",
            "at": when(at),
            "level": level,
            "rank_id": None,
            "agent_id": None,
            "stdtype": "stdout" if source == "task" else None,
            "source": source,
            "log": said,
        }
        for at, attempt, level, source, said in sorted(lines)
    ]
