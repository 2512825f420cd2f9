"""A real master on a real database, with a queue whose only slot is taken: the tests play the jobs that wait."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of, kept_in
from tests.support.master import MasterProcess, serving, wait_for
from trainmaster.client.session_calls import hashed
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

RULED = """
security: {authz: {type: rbac, strict_job_queue_control: true}}
resource_manager: {type: local, slots: 1, poll_interval: 0.5}
"""
ONE_SLOT = """
longest_poll: 10
webhooks: {allow_networks: [127.0.0.1]}
resource_manager: {type: local, slots: 1, poll_interval: 0.5}
"""
WITH_SLOTS = """
unauthenticated_services: true
resource_manager: {type: local, slots: 4, poll_interval: 0.2}
"""


@pytest.fixture(scope="package")
def master() -> Iterator[MasterProcess]:
    with serving(ONE_SLOT) as process:
        blocker = Api(process.url, log_in(process, "admin"))
        number = create(blocker, config(name="holds the only slot"))
        wait_for(
            lambda: blocker.get(f"/api/v1/experiments/{number}").json["experiment"]["state"] == "STATE_RUNNING",
            "the job that holds the slot",
        )
        yield process


@pytest.fixture(scope="package")
def running() -> Iterator[MasterProcess]:
    """A master with slots for tasks that really run."""
    with serving(WITH_SLOTS) as process:
        yield process


@pytest.fixture(scope="package")
def user_with_slots(running: MasterProcess) -> Api:
    """An ordinary user there."""
    return Api(running.url, log_in(running, "determined"))


@pytest.fixture(scope="package")
def admin_with_slots(running: MasterProcess) -> Api:
    """Its administrator."""
    return Api(running.url, log_in(running, "admin"))


@pytest.fixture(scope="package")
def rbac_master() -> Iterator[MasterProcess]:
    """A master on which roles say who may do what."""
    with serving(RULED) as process:
        yield process


@pytest.fixture(scope="package")
def rbac_admin(rbac_master: MasterProcess) -> Api:
    """The first administrator of the master that uses roles."""
    return Api(rbac_master.url, log_in(rbac_master, "admin"))


@pytest.fixture(scope="package")
def engine(master: MasterProcess) -> Iterator[Engine]:
    """The master's database, for what the API cannot bring about, such as the passing of a week."""
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=2)
    yield engine
    engine.dispose()


def log_in(master: MasterProcess, user: str) -> str:
    body = {"username": user, "password": hashed(master.password), "isHashed": True}
    answer = Api(master.url).post("/api/v1/auth/login", body)
    assert answer.status == 200, answer.content
    return str(answer.json["token"])


@pytest.fixture
def anonymous(master: MasterProcess) -> Api:
    return Api(master.url)


@pytest.fixture(scope="package")
def user(master: MasterProcess) -> Api:
    return Api(master.url, log_in(master, "determined"))


@pytest.fixture(scope="package")
def admin(master: MasterProcess) -> Api:
    return Api(master.url, log_in(master, "admin"))


@pytest.fixture
def experiment(user: Api) -> Iterator[Callable[..., int]]:
    """Makes experiments; they are killed after the test."""
    made: list[int] = []

    def make(text: str | None = None, **body: Any) -> int:
        made.append(create(user, text, **body))
        return made[-1]

    yield make
    for number in made:
        user.post(f"/api/v1/experiments/{number}/kill")


@pytest.fixture
def job(master: MasterProcess, user: Api, experiment: Callable[..., int]) -> Job:
    """A job with its lease."""
    found = jobs_of(master, user, experiment())[0]
    assert found.lease().status == 200
    return found


@pytest.fixture
def root(master: MasterProcess) -> Path:
    """A folder for checkpoints that the master may write to, whatever account it has."""
    folder = master.folder / f"storage-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o777)
    return folder


@pytest.fixture
def keeping(master: MasterProcess, user: Api, experiment: Callable[..., int], root: Path) -> Job:
    """A job with its lease, whose experiment keeps its checkpoints in `root`."""
    (found,) = jobs_of(master, user, experiment(kept_in(root)))
    assert found.lease().status == 200
    return found
