"""Measures metric reports per second through the real endpoint, durable before the answer, compared with the same rows
through psycopg2 alone and with MLflow's tracking server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg2
from psycopg2.extras import execute_values

from benchmarks.load import Refused, flood, post
from benchmarks.measure import Deadline, Unavailable, figure, say, versus
from benchmarks.peers import mlflow
from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.master import MasterProcess, make_folder, remove_folder, wait_for
from trainmaster.client.session_calls import hashed
from trainmaster.master.db.embedded import EmbeddedServer

CLIENTS = (1, 8, 32)
METRICS = {f"metric_{i}": i / 7 for i in range(10)}
BATCH = 100  # reports of ten metrics: 1,000 points a request
SECONDS = 5.0  # of each measurement
_WRITTEN = json.dumps(METRICS)


@dataclass
class Sender:
    """A job that reports, so many reports a request."""

    job: Job
    reports: int = 1
    sent: int = 0

    def ask(self) -> bytes:
        first = self.sent + 1
        self.sent += self.reports
        # Put together from pieces: what a runtime spends on it, it spends on another machine.
        records = ",".join(
            f'{{"t":1.7e9,"kind":"metrics","group":"training","steps_completed":{n},"metrics":{_WRITTEN}}}'
            for n in range(first, self.sent + 1)
        )
        body = f'{{"stream":"core","first":{first},"records":[{records}],"node_rank":0}}'
        headers = {"Authorization": f"Bearer {self.job.api.token}"}
        return post(f"/api/x1/allocations/{self.job.allocation_id}/reports", headers, body.encode())

    def hear(self, answer: Any) -> None:
        if answer["acked"] != self.sent:
            raise Refused(f"{self.sent} reports were sent, but the answer is {answer}")


def run(deadline: Deadline) -> None:
    beside_mlflow(measure(deadline))


def measure(deadline: Deadline) -> dict[int, float]:
    """Requests a second of most clients, by the reports in each."""
    rates: dict[int, float] = {}
    folder = make_folder()
    master = MasterProcess(folder, "resource_manager: {type: local, slots: 1, poll_interval: 5}\n").start()
    try:
        senders = [Sender(job) for job in waiting_jobs(master, max(CLIENTS))]
        for clients in CLIENTS:
            for reports in (1, BATCH):
                if deadline.left < SECONDS:
                    say("ingest", f"{clients} clients", "left out: out of time")
                    continue
                for sender in senders:
                    sender.reports = reports
                rates[reports], wait = flood(master.port, senders[:clients], SECONDS)
                bare = _bare(EmbeddedServer(master.data).url, clients, reports, SECONDS / 2)
                say(
                    "ingest",
                    _what(clients, reports),
                    _rate(rates[reports], reports),
                    f"answer {wait}",
                    f"bare INSERT and COMMIT {figure(bare)}/s",
                    versus(rates[reports], bare, "it"),
                )
    finally:
        master.clean_up()
        remove_folder(folder)
    return rates


def beside_mlflow(ours: Mapping[int, float]) -> None:
    """The same metrics from as many clients to MLflow's server."""
    clients = max(CLIENTS)
    try:
        with mlflow.serving() as server:
            loggers = [mlflow.Logger(run, METRICS) for run in server.new_runs(clients)]
            for reports, rate in ours.items():
                for logger in loggers:
                    logger.steps = reports
                theirs, wait = flood(server.port, loggers, SECONDS)
                ratio = f"ours {versus(rate, theirs, 'it')}"
                what = f"MLflow {mlflow.VERSION}, {_what(clients, reports)}"
                say("ingest", what, _rate(theirs, reports), f"answer {wait}", ratio)
    except (Unavailable, Refused) as reason:
        say("ingest", "MLflow", "not measured", reason)


def _what(clients: int, reports: int) -> str:
    asked = "single reports" if reports == 1 else f"batches of {reports * len(METRICS):,} points"
    return f"{asked}, {clients} client{'s' if clients > 1 else ''}"


def _rate(rate: float, reports: int) -> str:
    points = f", {figure(rate * reports * len(METRICS))} points/s" if reports > 1 else ""
    return f"{figure(rate)} requests/s{points}"


def waiting_jobs(master: MasterProcess, count: int) -> Sequence[Job]:
    """Jobs of as many experiments; they wait behind one that holds the only slot, so only we speak for them."""
    body = {"username": "determined", "password": hashed(master.password), "isHashed": True}
    user = Api(master.url, Api(master.url).post("/api/v1/auth/login", body).json["token"])
    holder = create(user, config())
    path = f"/api/v1/experiments/{holder}"
    wait_for(lambda: user.get(path).json["experiment"]["state"] == "STATE_RUNNING", "the slot to be taken")
    numbers = [create(user, config()) for _ in range(count)]
    jobs = [jobs_of(master, user, number)[0] for number in numbers]
    for job in jobs:
        assert job.lease().status == 200
    return jobs


def _bare(url: str, clients: int, reports: int, seconds: float) -> float:
    """Transactions a second that write the same rows, and nothing else, to a table with the same index."""
    dsn = url.replace("postgresql+psycopg2://", "postgresql://")
    counts = [0] * clients
    with psycopg2.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS bare (LIKE metrics_training INCLUDING ALL)")
    until = time.monotonic() + seconds

    def work(index: int) -> None:
        connection = psycopg2.connect(dsn)
        value = json.dumps({"avg_metrics": METRICS})
        rows = [("training", index, 1, "training", step, value) for step in range(reports)]
        insert = 'INSERT INTO bare (kind, trial_id, run_id, "group", steps, at, metrics) VALUES %s'
        with connection.cursor() as cursor:
            while time.monotonic() < until:
                execute_values(cursor, insert, rows, template="(%s, %s, %s, %s, %s, now(), %s)", page_size=1000)
                connection.commit()
                counts[index] += 1
        connection.close()

    started = time.monotonic()
    _together([partial(work, index) for index in range(clients)])
    rate = sum(counts) / (time.monotonic() - started)
    with psycopg2.connect(dsn) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE bare")
    return rate


def _together(works: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
