"""Requests that would keep the master busy, fill its memory or shut others out are refused or ended."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any, cast

import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy import Engine, text
from starlette.types import Message

from tests.process.api.conftest import log_in
from tests.support.api import people
from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job, config, create
from tests.support.bound import bind
from tests.support.master import MasterProcess, serving, wait_for
from trainmaster.config import source
from trainmaster.config.limits import Limits
from trainmaster.config.messages import ConfigError
from trainmaster.master.admission.connections import Connections
from trainmaster.master.admission.request_shares import Shares
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.request_context import RequestContext
from trainmaster.master.http.error_envelope import AnsweredErrors
from trainmaster.master.http.job_calls import BURST, JobCalls
from trainmaster.master.http.statement_cancellation import _Client
from trainmaster.master.services.errors import Busy
from trainmaster.master.services.store import Store

Json = dict[str, Any]
TIGHT = """
resource_manager: {type: local, slots: 1, poll_interval: 0.2}
limits: {statement: 1, header: 1, body: 1, metric_names: 50, things: 30,
         anonymous_connections: 20, user_connections: 30}
"""


@pytest.fixture(scope="module")
def tight() -> Iterator[MasterProcess]:
    """A master whose limits are met quickly."""
    with serving(TIGHT) as process:
        yield process


@pytest.fixture(scope="module")
def hurried(tight: MasterProcess) -> Api:
    return Api(tight.url, log_in(tight, "determined"))


def refused(answer: Answer, *words: str, status: int = 400) -> str:
    assert answer.status == status, answer.content[:500]
    sentence = answer.sentence
    for word in words:
        assert word in sentence
    return sentence


# -- YAML --------------------------------------------------------------------------------------------------------------


def ladder(first: str, step: str, levels: int) -> str:
    """Anchors a0 to aN, each made of the one before."""
    rows = [f"a0: &a0 {first}", *(f"a{n}: &a{n} {step.format(f'*a{n - 1}')}" for n in range(1, levels + 1))]
    return "\n".join(rows) + "\n"


TEN = "[{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}]"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ladder("{x: 1}", "{{<<: " + TEN + "}}", 9), "limits.config_values"),
        (ladder("{}", "{{<<: " + TEN + "}}", 9), "limits.config_values"),
        (ladder("[1]", TEN, 9), "limits.config_values"),
        (ladder("[1]", "[{}]", 3000), "nested more than 100 deep"),
        (ladder("{x: 1}", "{{<<: {}}}", 3000), "nested more than 100 deep"),
        ("a:\n" + "- a\n" * 240_000, "limits.config_values"),
        ("a:\n" + "- a\n" * 500_000, "limits.config"),
        ("a: 1\n" * 150_000, "limits.config_values"),
        ("\x01" * 900_000, "control character"),
        ("b: &b {? [1] : 2}\nc: {<<: *b}", "a key must be a text"),
    ],
)  # fmt: skip
def test_a_small_yaml_text_cannot_make_much_work(text: str, complaint: str) -> None:
    text = re.sub(r"\{\{|\}\}", lambda found: found[0][0], text)
    with pytest.raises(ConfigError, match=re.escape(complaint)) as caught:
        source.read(text, "experiment.yaml")
    assert len(str(caught.value)) < 20_000


def test_json_configurations_have_depth_and_size_limits(user: Api) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = {"a": deep}
    wide = {f"k{n}": n for n in range(101_000)}
    for hyperparameters, words in ((deep, "nested more than 100 deep"), (wide, "limits.config_values")):
        template = {"hyperparameters": hyperparameters}
        refused(user.post("/api/v1/templates/bomb", {"name": "bomb", "config": template}), words)
        refused(user.post("/api/v1/preview-hp-search", {"config": {**template, "searcher": {}}}), words)
        refused(user.post("/api/v1/commands", {"config": {"environment": template}}), words)


# -- searches ----------------------------------------------------------------------------------------------------------


def space(**axis: Any) -> Json:
    return {"x": {"type": "double", "minval": 0, "maxval": 1, **axis}}


GRID = {"name": "grid", "metric": "loss"}
RANDOM = {"name": "random", "metric": "loss"}
HALVING = {"name": "async_halving", "metric": "loss", "time_metric": "t", "max_time": 9, "max_trials": 9}
ADAPTIVE = {**HALVING, "name": "adaptive_asha"}


@pytest.mark.parametrize(
    ("searcher", "hyperparameters", "words"),
    [
        (GRID, space(count=10**8), "limits.grid_axis"),
        (GRID, {f"x{n}": space(count=100)["x"] for n in range(9)}, "limits.trials"),
        ({**RANDOM, "max_trials": 2**53}, {}, "limits.trials"),
        ({**RANDOM, "max_trials": 30_000, "max_concurrent_trials": 0}, {}, "limits.trials_at_once"),
        ({**HALVING, "num_rungs": 2**40}, {}, "rungs"),
        ({**HALVING, "num_rungs": 90, "divisor": 1e300}, {}, "rungs"),
        ({**ADAPTIVE, "bracket_rungs": [2**40]}, {}, "rungs"),
        ({**ADAPTIVE, "bracket_rungs": [90], "divisor": 1e300}, {}, "rungs"),
        (RANDOM | {"max_trials": 1}, {f"x{n}": 1 for n in range(2_001)}, "limits.hyperparameters"),
    ],
)
def test_too_large_search_is_refused_before_creation(
    user: Api, searcher: Json, hyperparameters: Json, words: str
) -> None:
    whole = json.loads(config(searcher=searcher, hyperparameters=hyperparameters))
    refused(user.post("/api/v1/preview-hp-search", {"config": whole}), words)
    refused(user.post("/api/v1/experiments", {"config": json.dumps(whole), "activate": False}), words)


def test_divisor_near_one_makes_no_endless_brackets(user: Api) -> None:
    searcher = {**ADAPTIVE, "divisor": 1.0000001, "max_rungs": 2**50, "max_time": 2**50, "max_trials": 1000}
    assert user.post("/api/v1/preview-hp-search", {"config": json.loads(config(searcher=searcher))}).status == 200


# -- the database ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [r"^(a+)(a+)(a+)(a+)\4\3\2\1\1b$", "(.)" * 12 + r"\12", r"(a)[\1]", r"(?=a)"])
def test_a_search_by_a_pattern_that_refers_back_is_refused(user: Api, job: Job, pattern: str) -> None:
    found = user.get(f"/api/v1/trials/{job.trial_id}/logs", searchText=pattern, enableRegex=True)
    refused(found, "is not a regular expression" if "?" in pattern else "refers back")


def test_ordinary_log_patterns_find_their_lines(user: Api, job: Job) -> None:
    lines = [{"t": 1e9, "line": line} for line in ("loss = 0.25", "lossless", "a+b")]
    assert job.send(lines, stream="log-0").status == 200
    for pattern, count in ((r"\yloss\y", 1), (r"\mloss", 2), (r"^a\+b$", 1), (r"[0-9]+\.[0-9]{2}", 1), ("(?i)LOSS", 2)):
        path = f"/api/v1/trials/{job.trial_id}/logs"
        assert len(list(user.lines(path, searchText=pattern, enableRegex=True))) == count
    assert user.get(path, searchText="x" * 1001).status == 400


@contextmanager
def held(master: MasterProcess, experiment: int) -> Iterator[Engine]:
    """Inside the block nobody else can lock the experiment's row."""
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=2)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT FROM experiments WHERE id = :id FOR UPDATE"), {"id": experiment})
            yield engine
    finally:
        engine.dispose()


WAITING = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE%'")


def waiting(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(WAITING).scalar_one())


def test_a_statement_that_takes_too_long_ends_with_a_sentence(tight: MasterProcess, hurried: Api) -> None:
    number = create(hurried, config(), activate=False)
    with held(tight, number):
        refused(hurried.post(f"/api/v1/experiments/{number}/activate"), "limits.statement", "1 s", status=408)
    assert hurried.get(f"/api/v1/experiments/{number}").status == 200


def test_a_statement_ends_when_its_client_goes(master: MasterProcess, user: Api) -> None:
    number = create(user, config(), activate=False)
    with held(master, number) as engine:
        with socket.create_connection(("127.0.0.1", master.port)) as client:
            path = f"/api/v1/experiments/{number}/activate"
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {user.token}\r\n".encode())
            client.sendall(b"Content-Length: 2\r\nContent-Type: application/json\r\n\r\n{}")
            wait_for(lambda: waiting(engine) == 1, "the statement to wait")
        wait_for(lambda: waiting(engine) == 0, "the statement to end")
    user.post(f"/api/v1/experiments/{number}/kill")


def test_slow_body_is_read_whole_while_client_is_watched() -> None:
    pieces = [b"a", b"b", b"c"]

    async def scene() -> None:
        go_on = [asyncio.Event() for _ in pieces]
        taken = iter(range(len(pieces)))

        async def receive() -> Message:
            number = next(taken)
            await go_on[number].wait()
            return {"type": "http.request", "body": pieces[number], "more_body": number + 1 < len(pieces)}

        client = _Client(RequestContext(1.0), receive)
        client.watch()
        await asyncio.sleep(0)  # the watcher waits for the first piece
        found = []
        for event in go_on:
            reading = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            event.set()
            found.append(await reading)
        assert [message["body"] for message in found] == pieces
        client.stop()

    asyncio.run(scene())


def test_one_users_slow_requests_leave_the_others_their_threads(master: MasterProcess, user: Api, admin: Api) -> None:
    number = create(user, config(), activate=False)
    other = people.person(admin)
    with ThreadPoolExecutor(60) as pool:
        with held(master, number) as engine:
            path = f"/api/v1/experiments/{number}/activate"
            under_way = [pool.submit(user.post, path) for _ in range(60)]
            wait_for(lambda: waiting(engine) == Limits().share, "their share to be used")
            assert all(other.api.get("/api/v1/experiments").status == 200 for _ in range(20))
            assert waiting(engine) == Limits().share
        assert {answer.result().status for answer in under_way} <= {200, 409}
    user.post(f"/api/v1/experiments/{number}/kill")


def test_more_than_may_wait_is_refused_and_places_are_handed_on() -> None:
    async def scene() -> None:
        shares = Shares(waiting=2)
        order: list[int] = []

        async def work(number: int, until: asyncio.Event) -> None:
            async with shares.one_of(("a", 0), 1, "share"):
                order.append(number)
                await until.wait()

        go_on = asyncio.Event()
        tasks = [asyncio.create_task(work(number, go_on)) for number in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match=r"limits\.waiting"):
            await work(9, go_on)
        async with shares.one_of(("b", 0), 1, "share"):
            pass  # others have a share of their own
        tasks[1].cancel()
        go_on.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [0, 2]
        assert not shares._queues

    asyncio.run(scene())


# -- trees and texts ---------------------------------------------------------------------------------------------------


def fields(count: int) -> str:
    child = {"kind": "field", "columnName": "id", "operator": "=", "value": 1}
    return json.dumps({"filterGroup": {"kind": "group", "conjunction": "or", "children": [child] * count}})


def test_a_wide_filter_a_long_path_and_many_columns_are_refused(user: Api) -> None:
    search = "/api/v1/experiments-search"
    assert user.post(search, {"filter": fields(400)}).status == 200
    refused(user.post(search, {"filter": fields(20_000)}), "limits.conditions")
    long = "hp." + ".".join("a" * 600)
    refused(user.post(search, {"sort": f"{long}=asc"}), "at most 500 are allowed")
    assert user.post(search, {"sort": f"hp.{'.'.join('a' * 200)}=asc"}).status == 200
    refused(user.post(search, {"sort": ",".join(["id=asc"] * 600)}), "limits.conditions")
    refused(user.post("/api/v1/projects/1/experiments/kill", {"experimentIds": list(range(20_001))}), "limits.ids")


def test_names_notes_and_labels_have_a_length(user: Api, experiment: Callable[..., int]) -> None:
    path = f"/api/v1/experiments/{experiment()}"
    for change, key in (
        ({"name": "n" * 1001}, "limits.name"),
        ({"notes": "n" * 2_000_001}, "limits.text"),
        ({"labels": ["n"] * 501}, "limits.labels"),
        ({"labels": ["n" * 1001]}, "limits.name"),
    ):
        refused(user.call("PATCH", path, change), key)


def nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = {"a": value}
    return value


def test_a_metric_that_is_nested_deep_is_the_senders_fault(job: Job) -> None:
    for depth in (100, 900):
        assert job.send([job.training(1, x=nested(depth))]).status == 400
        body = {"group": "training", "metrics": {"metrics": {"avgMetrics": {"x": nested(depth)}}, "stepsCompleted": 1}}
        assert job.api.post(f"/api/v1/trials/{job.trial_id}/metrics", body).status == 400
        assert job.send([{"t": 1, "kind": "metadata", "metadata": nested(depth)}]).status == 400


def test_too_many_metric_names_are_refused_and_job_continues(job: Job) -> None:
    refused(job.send([job.training(1, **{f"m{n}": n for n in range(50_000)})]), "limits.metric_names")
    for start in (0, 1_500):
        answer = job.send([job.training(2 + start, **{f"m{n}": n for n in range(start, start + 1_500)})])
        if start:
            refused(answer, "limits.metric_names")
    refused(job.send([job.training(9, **{"n" * 1001: 1})]), "limits.metric_name")
    assert job.send([job.training(9_000, m1=1)]).status == 200


def test_body_of_too_many_values_is_refused(user: Api) -> None:
    for raw in (b"[" + b"[]," * 1_100_000 + b"1]", b'{"config": ' + b"[" * 1_100_000):
        answer = user.call("POST", "/api/v1/experiments", raw=raw)
        refused(answer, "limits.request_values", status=413)


def test_a_user_has_only_so_many_of_a_thing(hurried: Api) -> None:
    made = [hurried.post("/api/v1/models", {"name": f"model-{n}"}) for n in range(31)]
    templates = [hurried.post(f"/api/v1/templates/many-{n}", {"config": {"description": "d"}}) for n in range(31)]
    for answers in (made, templates):
        assert [answer.status for answer in answers] == [200] * 30 + [400]
        refused(answers[-1], "limits.things")


def test_job_that_reports_without_pause_is_throttled() -> None:
    calls = JobCalls(bind(cast(Store, None), limits=Limits(job_rate=1)))
    assert [calls.pause("a", 2**20) for _ in range(int(BURST))] == [0.0] * int(BURST)
    assert calls.pause("a", 3 * 2**20) == pytest.approx(3, abs=0.5)
    assert calls.pause("b", 2**20) == 0


# -- connections -------------------------------------------------------------------------------------------------------


def open_to(master: MasterProcess, sent: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", master.port), 30)
    client.sendall(sent)
    return client


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET /api/v1/master HTTP/1.1\r\nHost: x\r\n",
        b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
    ],
)
def test_half_a_request_is_given_up(tight: MasterProcess, half: bytes) -> None:
    with open_to(tight, half) as client:
        answer = b"".join(iter(lambda: client.recv(4096), b""))  # to the end: the master closes it
    assert b"Content-Length" in half or b" 408 " in answer


def test_half_second_request_on_kept_connection_gets_408(tight: MasterProcess) -> None:
    whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with open_to(tight, whole) as client:
        assert client.recv(4096).startswith(b"HTTP/1.1 200")
        client.sendall(b"\r\nGET /hea")
        assert b" 408 " in b"".join(iter(lambda: client.recv(4096), b""))


def test_one_address_cannot_hold_all_connections_silently(tight: MasterProcess, hurried: Api) -> None:
    mute = [open_to(tight, b"GET / HTTP/1.1\r\n") for _ in range(40)]
    try:
        assert hurried.get("/api/v1/experiments").status == 200
    finally:
        for client in mute:
            client.close()


def test_a_users_idle_connections_are_closed_beyond_a_number(tight: MasterProcess, hurried: Api) -> None:
    clients = [HTTPConnection("127.0.0.1", tight.port, timeout=30) for _ in range(35)]
    try:
        for client in clients:
            client.request("GET", "/api/v1/me", headers={"Authorization": f"Bearer {hurried.token}"})
            assert client.getresponse().read()
        first = clients[0].sock
        assert first is None or first.recv(1) == b""
    finally:
        for client in clients:
            client.close()


def test_a_head_without_end_is_refused(tight: MasterProcess) -> None:
    with open_to(tight, b"GET / HTTP/1.1\r\nX: ") as client:
        answer = b""
        try:
            for _ in range(64):
                client.sendall(b"x" * 2**14)
            answer = client.recv(4096)
        except ConnectionError:
            return
    assert b" 431 " in answer


def test_the_master_takes_as_many_descriptors_as_it_may(master: MasterProcess) -> None:
    with open(f"/proc/{master.pid}/limits") as limits:
        (line,) = [line for line in limits if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert int(soft) == min(int(hard), 65_536)


def test_a_connection_outlives_a_bug() -> None:
    app = FastAPI()

    @app.get("/bug")
    def bug() -> None:
        raise AssertionError("a bug")

    @app.get("/fine")
    def fine() -> str:
        return "fine"

    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections = Connections(Limits(), 1000)
        made = uvicorn.Config(AnsweredErrors(app), http=connections.protocol, log_config=None, lifespan="off")  # type: ignore[arg-type]
        server = uvicorn.Server(made)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            client = HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=30)
            for path, status in (("/bug", 500), ("/fine", 200)):
                client.request("GET", path)
                answer = client.getresponse()
                answer.read()
                assert answer.status == status
                kept = client.sock
            assert kept is not None
            client.close()
        finally:
            server.should_exit = True
            thread.join()
