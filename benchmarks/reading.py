"""Measures lists, series and logs of a full database through HTTP, compared with the cheapest request."""

from __future__ import annotations

import http.client
import time
from functools import partial

from benchmarks.measure import Deadline, repeated, say
from tests.support.api.http import Api
from tests.support.bound import bind
from tests.support.master import MasterProcess, make_folder, remove_folder
from tests.support.scale.filling import Size, compact, fill
from trainmaster.client.session_calls import hashed
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.services.experiments import experiments
from trainmaster.master.services.store import Store

SIZE = Size(experiments=10_000, points=10_000_000, lines=2_000_000, live=0)  # half of the lines are the first trial's
TIMES = 40
SERIES = "/api/v1/trials/time-series"
TEN = "&".join(f"trialIds={number}" for number in range(101, 111))

# What is wanted of a question, in ms, by how its name begins.
WANTED = {"experiments of": 50, "trials of": 50, "log of": 50, "search in": 500, "series of": 40}

LOG = "/api/v1/trials/1/logs?limit=100"
QUESTIONS = {
    "GET /api/v1/me (the floor)": "/api/v1/me",
    "experiments of 10,000, first 200": "/api/v1/experiments?limit=200",
    **{
        f"experiments of 10,000 by {column}, 50": f"/api/v1/experiments?limit=50&sortBy=SORT_BY_{column.upper()}"
        for column in experiments.SORTS
    },
    "trials of 5,000 by metric, 100": "/api/v1/experiments/1/trials?limit=100&sortBy=SORT_BY_BEST_VALIDATION_METRIC",
    "trials of 5,000 by duration, 100": "/api/v1/experiments/1/trials?limit=100&sortBy=SORT_BY_DURATION",
    "trials of 5,000, last 100": "/api/v1/experiments/1/trials?offset=-100",
    "checkpoints of 10,000, best 10": "/api/v1/experiments/1/checkpoints?limit=10&sortByAttr=SORT_BY_SEARCHER_METRIC",
    "one trial": "/api/v1/trials/4321",
    "history of a trial, 100": "/api/v1/trials/4321/workloads?limit=100",
    "history of a trial with 100,000 reports, 100": "/api/v1/trials/1/workloads?limit=100",
    "the same from its middle": "/api/v1/trials/1/workloads?limit=100&offset=50000",
    "metrics of a trial, all": "/api/v1/trials/metrics/trial_metrics?trialIds=4321",
    "log of 1,000,000 lines, last 100": f"{LOG}&orderBy=ORDER_BY_DESC",
    "log of 1,000,000 lines, first 100": LOG,
    "search in 1,000,000 lines, a word of many, 100": f"{LOG}&searchText=accuracy",
    "search in 1,000,000 lines, a word of a few": f"{LOG}&searchText=EPOCH+77777",
    "search in 1,000,000 lines, a word of one": f"{LOG}&searchText=epoch+1777776+",
    "search in 1,000,000 lines, a word of none": f"{LOG}&searchText=nowhere",
    "search in 1,000,000 lines, an expression": f"{LOG}&searchText=^epoch+177%5Cd%2B6+loss&enableRegex=true",
    "search in 1,000,000 lines, an expression of no certain word": f"{LOG}&searchText=(nan|inf)&enableRegex=true",
    "search in 1,000,000 lines, an expression without a word": f"{LOG}&searchText=%5Cd%7B12%7D&enableRegex=true",
    "search in 1,000,000 lines, errors": f"{LOG}&levels=LOG_LEVEL_ERROR",
    "search in 1,000,000 lines, a rank": f"{LOG}&rankIds=3",
    "search in 1,000,000 lines, a time": f"{LOG}&timestampAfter=2099-01-01T00:00:00Z",
    "log of 1,000,000 lines, by what they can be told apart": "/api/v1/trials/1/logs/fields",
    "series of 100,000 points, 500 of them": f"{SERIES}?trialIds=1&metricNames=loss&group=training&maxDatapoints=500",
    "series of 10 trials, 500 each": f"{SERIES}?{TEN}&metricNames=loss&group=training&maxDatapoints=500",
    "job queue": "/api/v1/job-queues-v2?limit=100",
}


def run(deadline: Deadline) -> None:
    folder = make_folder()
    master = MasterProcess(folder, "resource_manager: {type: local, slots: 1}\n").start()
    try:
        engine = make_engine(EmbeddedServer(master.data).url, pool_size=2)
        started = time.monotonic()
        fill(engine, SIZE)
        say(
            "reading",
            "database",
            f"{SIZE.trials:,} trials, {SIZE.points:,} points, {SIZE.lines:,} log lines",
            f"filled in {time.monotonic() - started:.0f} s",
        )
        started = time.monotonic()
        compact(bind(Store(engine)))
        say(
            "reading",
            "all of it compacted, which the compactor does with a fifth of a processor",
            f"{time.monotonic() - started:.1f} s",
        )
        engine.dispose()
        body = {"username": "determined", "password": hashed(master.password), "isHashed": True}
        token = Api(master.url).post("/api/v1/auth/login", body).json["token"]
        connection = http.client.HTTPConnection("127.0.0.1", master.port, timeout=60)

        def ask(path: str) -> None:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content

        for name, path in QUESTIONS.items():
            wanted = next((f"at most {most} ms wanted" for start, most in WANTED.items() if name.startswith(start)), "")
            say("reading", name, *filter(None, [repeated(partial(ask, path), TIMES, deadline, warm_up=3), wanted]))
        connection.close()
    finally:
        master.clean_up()
        remove_folder(folder)
