"""The database hangs, dies and comes back while a search runs: nothing is lost, doubled or blocked for long."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import trainings
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    log_text,
    make_folder,
    remove_folder,
    validations,
    wait_for,
)
from tests.support.postgres import Postgres
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport

CONFIG = """
resource_manager: {{type: local, slots: 4, poll_interval: 0.3}}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
limits: {{connection_rate: 100000}}  # the crowd has one address, and a new connection for each call
"""
EPOCHS = 20
BOUND = 30.0  # seconds for an answer, whatever the database does
CROWD = 100  # calls at once: twice the connections that the master has


@dataclass(frozen=True)
class Site:
    postgres: Postgres
    process: MasterProcess
    master: Master
    token: str


@pytest.fixture
def site() -> Iterator[Site]:
    folder = make_folder()
    for name in ("database", "master", "checkpoints"):
        (folder / name).mkdir()
    postgres = Postgres(folder / "database")
    postgres.start()
    config = CONFIG.format(checkpoints=folder / "checkpoints") + postgres.configuration()
    process = MasterProcess(folder / "master", config)
    process.start()
    transport = Transport(process.url)
    master = Master(transport)
    yield Site(postgres, process, master, master.login("determined", process.password))
    transport.close()
    process.clean_up()
    postgres.stop()
    complaints = process.errors()
    remove_folder(folder)
    assert complaints == []


def ask(site: Site, path: str) -> tuple[int, dict[str, Any], float]:
    """Status, answer, and how many seconds it took."""
    request = urllib.request.Request(f"{site.process.url}{path}", headers={"Authorization": f"Bearer {site.token}"})
    began = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            found = answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            found = error.code, json.load(error)
    return (*found, time.monotonic() - began)


def all_are_told(site: Site) -> None:
    """A crowd asks at once: everybody gets an answer in bounded time, and it is a sentence."""
    with ThreadPoolExecutor(CROWD) as crowd:
        answers = list(crowd.map(lambda _: ask(site, "/api/v1/me"), range(CROWD)))
    assert {status for status, _, _ in answers} == {503}
    assert {answer["message"] for _, answer, _ in answers} == {
        "The database does not answer now; try again in a moment."
    }
    assert max(seconds for _, _, seconds in answers) < BOUND


def told_in_health(site: Site) -> bool:
    status, health, seconds = ask(site, "/health")
    assert seconds < BOUND
    return status == 503 and "does not answer" in health["database"]


def test_search_continues_through_hung_and_dead_database(site: Site) -> None:
    master = site.master
    searcher = {"name": "random", "metric": "error", "max_trials": 8, "max_concurrent_trials": 4}
    text = trainings.experiment(searcher, epochs=EPOCHS, pause=0.5, value={"type": "double", "minval": 1, "maxval": 9})
    number = master.create_experiment(text, files(train__py=trainings.COUNTING)).id
    wait_for(lambda: sum(trial.batches >= 2 for trial in master.trials(number)) >= 4, "four trials that report")
    (followed, *_) = master.trials(number)
    readers = [site.process.client() for _ in range(2)]
    notices: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        lines = pool.submit(lambda: list(readers[0].logs(followed.id, follow=True, notice=notices.append)))
        waiting = pool.submit(readers[1].experiment(number).wait, 0.5)
        _rides_out_both(site, number, notices)
        assert waiting.result().state == "COMPLETED"
        numbers = [line.number for line in lines.result()]
    assert numbers == [line.number for line in master.logs(followed.id)], "a line is missing or doubled"
    assert [("Waiting for it" in said, "answers again" in said) for said in notices[:2]] == [
        (True, False),
        (False, True),
    ], notices
    reports = validations(master, [trial.id for trial in master.trials(number)])
    assert len(reports) == 8
    for trial in master.trials(number):
        told = log_text(master, trial.id)
        assert (trial.state, trial.attempts, trial.restarts) == ("COMPLETED", 1, 0), told
        assert told.count("starting after epoch") == 1, "a job ran twice"
        assert reports[trial.id] == list(range(1, EPOCHS + 1)), "a report is missing or doubled"
        assert trial.summary["avg_metrics"]["loss"]["count"] == EPOCHS
    log = site.process.log.read_text()
    assert log.count("the database does not answer") == 2, log
    assert log.count("the database answers again") == 2, log


def _rides_out_both(site: Site, number: int, notices: list[str]) -> None:
    master = site.master
    with site.postgres.hanging():
        until = time.monotonic() + 20.0  # how long is the input here
        all_are_told(site)
        wait_for(lambda: told_in_health(site), "/health to say so")
        # A reader says that it waits only after its second try, and each may last as long as a slow answer.
        while time.monotonic() < until or not notices:
            assert time.monotonic() < until + 4 * BOUND, "the reader of the log was not told"
            all_are_told(site)
    back(site)
    reported = steps(master, number)
    wait_for(lambda: steps(master, number) > reported, "reports that come again")
    site.postgres.stop()
    wait_for(lambda: told_in_health(site), "/health to say so")
    all_are_told(site)
    site.postgres.start()
    back(site)
    ended_as(master, number, "COMPLETED")


def back(site: Site) -> None:
    wait_for(lambda: ask(site, "/health")[1]["database"] == "up", "the database to be up")


def steps(master: Master, number: int) -> int:
    return sum(trial.batches for trial in master.trials(number))
