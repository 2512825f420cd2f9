"""Measures what others notice of bad input: connections without requests, jobs that come back at once, a stream without
measure, and a huge experiment that is killed and deleted while it runs."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from sqlalchemy import select

from benchmarks import crowd, searches
from benchmarks.measure import Deadline, Sample, figure, say
from tests.support.api import people
from tests.support.api.http import Api
from tests.support.api.jobs import config
from tests.support.attempts import Attempts
from tests.support.bound import bind
from tests.support.database import engine_of
from tests.support.master import MasterProcess, make_folder, remove_folder, wait_for
from trainmaster.client.session_calls import hashed
from trainmaster.config.experiment import parse_experiment
from trainmaster.master.db import migrate
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.tables import Allocation, Trial

SECONDS = 15.0  # of each measurement
SETTLED = 5.0  # seconds after a case until the master has done what was left of it
PAUSE = 0.1  # seconds between two requests of one bystander
CONNECTIONS = 20_000
PROCESSES = 4  # that open them
RETURNING = 3_000  # jobs; each has three connections
TRIALS = 100_000  # of the experiment that is deleted
LIVE = 10_000  # of them that run
FLOOD = 100  # reports a second of one stream, and records in one report
SETTLE = 600.0  # seconds until the experiment is gone
TAILS = (0.99,)
# These jobs belong to no configured cluster: no loop asks a scheduler for them, and no folder is read.
MASTER = "resource_manager: {type: local, slots: 1, poll_interval: 1}\n"
Json = dict[str, Any]


@dataclass(frozen=True)
class Site:
    """A master with jobs that were put into its database. `jobs`, `bystander`: ids and tokens of attempts."""

    master: MasterProcess
    user: Api
    other: Api
    jobs: list[tuple[str, str]]
    bystander: tuple[str, str]
    large: int


def run(deadline: Deadline) -> None:
    with _site(trials=TRIALS) as site:
        watch = Bystanders(site)
        watch.seen(3.0)  # warm
        for what, case in CASES.items():
            if deadline.left < 3 * SECONDS:
                say("abuse", what, "left out: out of time")
                continue
            before = watch.seen(SECONDS / 2)
            with case(site) as found:
                busy = watch.seen(SECONDS)
                found["others"] = dict(watch.answers)
            time.sleep(SETTLED)
            after = watch.seen(SECONDS / 2)
            quiet = {name: Sample([*before[name].values, *after[name].values], tails=TAILS) for name in before}
            _say(what, quiet, busy, found)


def _say(what: str, quiet: Mapping[str, Sample], busy: Mapping[str, Sample], found: Json) -> None:
    for name in quiet:
        ratio = [busy[name].median / quiet[name].median, busy[name].quantile(0.99) / quiet[name].quantile(0.99)]
        told = f"p50 {figure(ratio[0])} times, p99 {figure(ratio[1])} times"
        say("abuse", f"{name}, {what}", told, f"{busy[name]} beside {quiet[name]}")
    say("abuse", what, json.dumps(found))


# -- who notices -------------------------------------------------------------------------------------------------------


class Bystanders:
    """Four callers with nothing to do with it, with a new connection for each call, as `det`."""

    def __init__(self, site: Site) -> None:
        name, token = site.bystander
        self._sent = itertools.count(1)
        self.answers: Counter[str] = Counter()
        job = Api(site.master.url, token)
        self._asks: dict[str, Callable[[], int]] = {
            "GET me": lambda: site.other.get("/api/v1/me").status,
            "GET experiments": lambda: site.other.get("/api/v1/experiments", limit=50).status,
            "another job's report": lambda: self._report(job, name),
            "another user's create": lambda: site.other.post("/api/v1/experiments", NEW).status,
        }

    def seen(self, seconds: float) -> dict[str, Sample]:
        """How long each kind of call took, in ms. `answers` counts how they ended."""
        self.answers.clear()
        until, waits = time.monotonic() + seconds, {name: list[float]() for name in self._asks}
        threads = [
            threading.Thread(target=self._ask, args=(ask, waits[name], until)) for name, ask in self._asks.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {name: Sample(some, tails=TAILS) for name, some in waits.items()}

    def _ask(self, ask: Callable[[], int], waits: list[float], until: float) -> None:
        while time.monotonic() < until:
            began = time.perf_counter()
            try:
                status = str(ask())
            except (OSError, HTTPException) as error:
                status = type(error).__name__
            waits.append((time.perf_counter() - began) * 1000)
            self.answers[status] += 1
            time.sleep(PAUSE)

    def _report(self, job: Api, name: str) -> int:
        number = next(self._sent)
        record = {"t": time.time(), "kind": "metrics", "group": "training", "steps_completed": number}
        body = {"stream": "core", "first": number, "records": [{**record, "metrics": {"loss": 0.5}}], "node_rank": 0}
        return job.post(f"/api/x1/allocations/{name}/reports", body).status


NEW = {"config": config(), "activate": False}


# -- what they may notice ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _connections(site: Site, *, many: bool) -> Iterator[Json]:
    told = {"count": CONNECTIONS // PROCESSES, "many": many}
    found: Json = {}
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(crowd.playing("connecting", site.master.port, **told)) for _ in range(PROCESSES)]
        yield found
    for part in parts:
        for key, value in part["answers"].items():
            found[key] = found.get(key, 0) + value


@contextlib.contextmanager
def _returning(site: Site) -> Iterator[Json]:
    with crowd.playing("returning", site.master.port, jobs=site.jobs) as found:
        yield found


@contextlib.contextmanager
def _reporting(site: Site, records: int) -> Iterator[Json]:
    with crowd.playing("reporting", site.master.port, job=site.jobs[0], rate=FLOOD, records=records) as found:
        yield found


@contextlib.contextmanager
def _deletion(site: Site) -> Iterator[Json]:
    path, found = f"/api/v1/experiments/{site.large}", Json()
    began = time.monotonic()

    def state() -> str:
        answer = site.user.get(path)
        return "gone" if answer.status == 404 else str(answer.json["experiment"]["state"])

    def removed() -> None:
        assert site.user.post(f"{path}/kill").status == 200
        found["kill answered"] = time.monotonic() - began
        wait_for(lambda: state() == "STATE_CANCELED", "its end", SETTLE, every=1.0)
        found["ended"] = time.monotonic() - began
        assert site.user.call("DELETE", path).status == 200
        wait_for(lambda: state() == "gone", "its removal", SETTLE, every=1.0)
        found["gone"] = time.monotonic() - began

    thread = threading.Thread(target=removed)
    thread.start()
    yield found
    thread.join()


CASES: dict[str, Callable[[Site], contextlib.AbstractContextManager[Json]]] = {
    f"{CONNECTIONS:,} connections from one address": lambda site: _connections(site, many=False),
    f"{CONNECTIONS:,} connections from {crowd.ADDRESSES} addresses": lambda site: _connections(site, many=True),
    f"{RETURNING:,} jobs come back at once": _returning,
    f"a job reports {FLOOD} times a second": lambda site: _reporting(site, 1),
    f"a job reports {FLOOD} times a second, {FLOOD} records each": lambda site: _reporting(site, FLOOD),
    f"an experiment of {TRIALS:,} trials is killed and deleted": _deletion,
}


# -- the site ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _site(trials: int) -> Iterator[Site]:
    folder = make_folder()
    master = MasterProcess(folder, MASTER)
    try:
        master.data.mkdir(mode=0o700)
        server = EmbeddedServer(master.data)
        with engine_of(server.start()) as engine:
            migrate.upgrade(engine)
            attempts = Attempts(engine, master.password)
            many = attempts.experiment(parse_experiment(searches.CONFIG).to_json(), name="many")
            rows = [{"id": f"t{n}", "hparams": {}, "seed": 1, "live": True} for n in range(RETURNING + 1)]
            attempts.many(many, rows)
            jobs = _tokens(attempts, many)
            large = searches.grow(attempts, trials, LIVE, submission="NEW")
        server.stop()
        master.start()
        admin = _logged_in(master, "admin")
        yield Site(master, admin, people.person(admin).api, jobs[1:], jobs[0], large)
    finally:
        master.stop()
        remove_folder(folder)


def _logged_in(master: MasterProcess, name: str) -> Api:
    body = {"username": name, "password": hashed(master.password), "isHashed": True}
    return Api(master.url, Api(master.url).post("/api/v1/auth/login", body).json["token"])


def _tokens(attempts: Attempts, experiment_id: int) -> list[tuple[str, str]]:
    services = bind(attempts.store, secret=attempts.identity.secret)
    query = select(Allocation.id, Allocation.token).join(Trial, Trial.id == Allocation.trial_id).order_by(Trial.id)
    with attempts.store.autocommit() as session:
        rows = session.execute(query.where(Trial.experiment_id == experiment_id)).all()
    return [(row.id, services.identities.session_token(row.id, row.token)) for row in rows]
