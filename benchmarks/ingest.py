"""Metric reports through the real endpoint, durable before the answer, beside the same rows through psycopg2."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import psycopg2
from psycopg2.extras import execute_values

from benchmarks.measure import Deadline, Sample, figure, say, versus
from tests.api.http import Api
from tests.api.jobs import Job, config, create, jobs_of
from tests.e2e.master import MasterProcess, make_folder, remove_folder, wait_for
from trainmaster.client.master import hashed
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.runtime.connection import Connection

CLIENTS = (1, 8, 32)
METRICS = {f"metric_{i}": i / 7 for i in range(10)}
BATCH = 100  # reports of ten metrics: 1,000 points a request
SECONDS = 5.0  # of each measurement


@dataclass
class Sender:
    """One job that reports; its bodies are made while the clock runs, as a runtime makes them."""

    job: Job
    sent: int = 0

    def send(self, connection: Connection, reports: int) -> None:
        first = self.sent + 1
        records = [
            {"t": 1.7e9, "kind": "metrics", "group": "training", "steps_completed": n, "metrics": METRICS}
            for n in range(first, first + reports)
        ]
        body = json.dumps({"stream": "core", "first": first, "records": records, "node_rank": 0})
        headers = {"Authorization": f"Bearer {self.job.api.token}", "Content-Type": "application/json"}
        path = f"/api/x1/allocations/{self.job.allocation_id}/reports"
        answer = connection.request("POST", path, headers, body.encode(), 60)
        assert answer.status == 200, answer
        self.sent += reports
        assert json.loads(answer.body)["acked"] == self.sent


def run(deadline: Deadline) -> None:
    folder = make_folder()
    master = MasterProcess(folder, "resource_manager: {type: local, slots: 1, poll_interval: 5}\n").start()
    try:
        senders = [Sender(job) for job in _jobs(master, max(CLIENTS))]
        for clients in CLIENTS:
            for reports in (1, BATCH):
                if deadline.left < SECONDS:
                    say("ingest", f"{clients} clients", "left out: out of time")
                    continue
                rate, wait = _flood(master.port, senders[:clients], reports, SECONDS)
                bare = _bare(EmbeddedServer(master.data).url, clients, reports, SECONDS / 2)
                what = "single reports" if reports == 1 else f"batches of {reports * len(METRICS):,} points"
                points = f", {figure(rate * reports * len(METRICS))} points/s" if reports > 1 else ""
                say(
                    "ingest",
                    f"{what}, {clients} client{'s' if clients > 1 else ''}",
                    f"{figure(rate)} requests/s{points}",
                    f"answer {wait}",
                    f"bare INSERT and COMMIT {figure(bare)}/s",
                    versus(rate, bare, "it"),
                )
    finally:
        master.clean_up()
        remove_folder(folder)


def _jobs(master: MasterProcess, count: int) -> Sequence[Job]:
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


def _flood(port: int, senders: Sequence[Sender], reports: int, seconds: float) -> tuple[float, Sample]:
    """Requests a second of all senders together, and how long answers took."""
    waits: list[float] = []
    until = time.monotonic() + seconds

    def work(sender: Sender) -> None:
        connection = Connection("127.0.0.1", port, 60)
        while time.monotonic() < until:
            started = time.perf_counter()
            sender.send(connection, reports)
            waits.append((time.perf_counter() - started) * 1000)
        connection.close()

    started = time.monotonic()
    _together([partial(work, sender) for sender in senders])
    return len(waits) / (time.monotonic() - started), Sample(waits)


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
