"""Whatever one user keeps open, the threads that answer the others stay free."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIWebSocketRoute
from sqlalchemy import Engine, text

from tests.process.security.test_loads import refused
from tests.support.api import people
from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.master import MasterProcess, wait_for
from trainmaster.config.limits import Limits
from trainmaster.master import api, app, http
from trainmaster.master.admission.request_shares import Shares
from trainmaster.master.api.agents import _yard
from trainmaster.master.db.request_context import CURRENT, RequestContext
from trainmaster.master.http.caller_threads import STRANGERS, CallerThreads
from trainmaster.master.http.dependencies import _shared, stranger
from trainmaster.master.http.job_route import JobRoute
from trainmaster.master.http.permissions import ENDPOINTS
from trainmaster.master.services.access.identity import Caller

SOURCES = sorted(path for part in (api, http) for path in Path(part.__path__[0]).glob("*.py"))
MANY = 60  # requests: more than the master has threads
PATIENCE = 10.0  # seconds in which another user's call must be answered, which takes a hundredth of one

# What works in threads without a place of a share.
OWN_TURN = {
    "caller_threads.py": "it takes the places",
    "auth.py": "a few passwords are checked at a time",
    "session_guard.py": "the master's own check of all connections, one at a time",
    "job_route.py": "large bodies of one job are parsed one after the other (Senders.turn), and reports take turns",
}
THREADS = {"run_in_threadpool", "iterate_in_threadpool", "to_thread", "run_sync", "run_in_executor"}

# Endpoints that are coroutines: how one is called whose look waits for a locked table, or why it makes none.
METRICS = "metricName=loss&group=validation"
LOOKS: dict[str, tuple[str, str]] = {  # by endpoint: its query, and a table that it reads
    "GET /api/v1/experiments/{experiment_id}/metrics-stream/batches": (METRICS, "experiments"),
    "GET /api/v1/experiments/{experiment_id}/metrics-stream/trials-sample": (METRICS, "experiments"),
    "GET /api/v1/experiments/{experiment_id}/metrics-stream/trials-snapshot": (METRICS, "experiments"),
    "GET /api/v1/experiments/metrics-stream/metric-names": ("ids={experiment_id}", "experiments"),
    "GET /api/v1/trials/{trial_id}/profiler/available_series": ("", "trials"),
    "GET /api/v1/trials/{trial_id}/profiler/metrics": ("", "trials"),
    "GET /api/v1/tasks/{task_id}/logs": ("", "task_logs"),
    "GET /api/v1/trials/{trial_id}/logs": ("follow=true", "task_logs"),
    "GET /api/v1/tasks/{task_id}/logs/fields": ("", "task_logs"),
    "GET /api/v1/trials/{trial_id}/logs/fields": ("follow=true", "task_logs"),
    "GET /api/x1/tasks/{task_id}/log": ("", "task_logs"),
    "GET /api/x1/experiments/{experiment_id}/search-questions": ("timeoutSeconds=60", "experiments"),
    "POST /api/x1/experiments/{experiment_id}/ask": ("", "experiments"),
    "POST /api/v1/allocations/{allocation_id}/all_gather": ("", "gatherings"),
    "POST /api/v1/allocations/{allocation_id}/notify_container_running": ("", "gatherings"),
    "GET /api/v1/allocations/{allocation_id}/resources/{resources_id}/rendezvous": ("", "allocation_nodes"),
}
NO_LOOKS = {
    "GET /api/v1/master/logs": "from memory",
    "GET /": "a redirection",
    "GET /ui": "a redirection",
    "GET /info": "from memory",
    "GET /det/interactive/{task_id}/{rest:path}": "a redirection",
    "POST /api/v1/auth/login": "a few passwords are checked at a time",
    "POST /login": "a few passwords are checked at a time",
    "POST /session": "a few passwords are checked at a time; tickets by address",
    "POST /api/v1/users/{user_id}/password": "one transaction, then its answer",
    "POST /api/x1/users/{user_id}/password": "one transaction, then its answer",
    "POST /api/x1/allocations/{allocation_id}/lease": "group commit",
    "POST /api/x1/allocations/{allocation_id}/reports": "group commit",
    "POST /api/x1/allocations/{allocation_id}/exit": "group commit",
    "GET /api/v1/allocations/{allocation_id}/signals/preemption": "group commit",
    "GET /api/x1/agents/{agent_id}/orders": "an agent's",
    "PUT /api/x1/agents/{agent_id}/jobs/{token}/remains": "an agent's",
}
PROXIED = "/proxy/{service_id}"


def routes() -> Iterator[APIRoute]:
    for part in app.PARTS:
        for route in part.router.routes:
            if isinstance(route, APIRoute):
                yield route


def keys(route: APIRoute) -> set[str]:
    return {f"{method} {route.path}" for method in route.methods or ()}


def needs(dependant: Dependant) -> set[Any]:
    found = {dependant.call}
    for inner in dependant.dependencies:
        found |= needs(inner)
    return found


def test_only_one_module_lets_work_into_threads() -> None:
    users = {
        path.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Name) and node.id in THREADS)
        or (isinstance(node, ast.Attribute) and node.attr in THREADS)
    }
    assert users == set(OWN_TURN)


def test_every_coroutine_endpoint_is_listed_here() -> None:
    """A new one is called below, or says why it makes no look."""
    found = {
        key
        for route in routes()
        if iscoroutinefunction(route.endpoint)
        for key in keys(route) & set(ENDPOINTS)
        if route.endpoint.__module__ != "trainmaster.master.http.not_served" and not route.path.startswith(PROXIED)
    }
    assert found == set(LOOKS) | set(NO_LOOKS)


def test_every_function_that_is_called_in_a_thread_holds_a_place() -> None:
    places = {_shared, stranger, _yard}
    without = [
        key
        for route in routes()
        if not iscoroutinefunction(route.endpoint) and not needs(route.dependant) & places
        for key in keys(route)
    ]
    assert without == []


def test_streaming_responses_use_no_plain_iterators() -> None:
    """Starlette reads an ordinary iterator in threads of nobody's."""
    wrong = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        coroutines = {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "StreamingResponse":
                content = node.args[0]
                call = content.func if isinstance(content, ast.Call) else None
                fine = (isinstance(call, ast.Name) and call.id in {*coroutines, "with_errors"}) or (
                    isinstance(call, ast.Attribute) and call.attr in ("pieces", "pieces_as")
                )
                if not fine:
                    wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []


def test_job_and_websocket_routes_are_the_reviewed_ones() -> None:
    assert {key for route in routes() if isinstance(route, JobRoute) for key in keys(route)} < set(NO_LOOKS)
    sockets = {route.path for part in app.PARTS for route in part.router.routes if isinstance(route, APIWebSocketRoute)}
    assert sockets == {"/stream", "/api/x1/live", "/proxy/{service_id}/{path:path}"}


@contextlib.contextmanager
def locked(engine: Engine, table: str) -> Iterator[Callable[[], int]]:
    """In the block nobody reads the table; gives how many statements on it wait."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE :like "
        "AND pid <> pg_backend_pid()"
    )
    with engine.begin() as connection:
        connection.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))

        def count() -> int:
            with engine.connect() as other:
                return int(other.execute(waiting, {"like": f"%{table}%"}).scalar_one())

        yield count


@contextlib.contextmanager
def asking(master: MasterProcess, token: str, method: str, path: str, count: int) -> Iterator[None]:
    """In the block so many requests are under way, whose answers nobody reads."""
    body = b"{}" if method == "POST" else b""
    if "/allocations/" in path and method == "POST":
        body = json.dumps({"requestUuid": "00000000-0000-0000-0000-000000000001", "numPeers": 2}).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", master.port)))
            client.sendall(head + body)
        yield


@pytest.mark.parametrize("endpoint", LOOKS)
def test_many_looks_of_one_user_leave_the_threads_to_the_others(
    master: MasterProcess, engine: Engine, admin: Api, job: Job, endpoint: str
) -> None:
    query, table = LOOKS[endpoint]
    other, mallory = people.person(admin), people.person(admin)
    words = {
        "experiment_id": job.experiment_id,
        "trial_id": job.trial_id,
        "task_id": job.task_id,
        "allocation_id": job.allocation_id,
        "resources_id": "0",
    }
    method, path = endpoint.split(" ")
    target = f"{path}?{query}".format_map(words)
    token = job.api.token if "allocation_id" in path else mallory.api.token
    with locked(engine, table) as waiting, asking(master, token, method, target, MANY):
        wait_for(lambda: waiting() >= 1, "a look that waits")
        for _ in range(5):
            began = time.monotonic()
            assert other.api.get("/api/v1/me").status == 200
            assert time.monotonic() - began < PATIENCE
        assert waiting() <= Limits().share + 2  # and what the master itself wants of the table


def test_a_period_has_a_least_value(user: Api, experiment: Callable[..., int]) -> None:
    number = experiment()
    for path in (
        f"/api/v1/experiments/{number}/metrics-stream/batches?{METRICS}",
        f"/api/v1/experiments/{number}/metrics-stream/trials-sample?{METRICS}",
        f"/api/v1/experiments/{number}/metrics-stream/trials-snapshot?{METRICS}",
        f"/api/v1/experiments/metrics-stream/metric-names?ids={number}",
    ):
        for period in ("0.001", "0.99"):
            refused(user.get(f"{path}&periodSeconds={period}"), "limits.stream_period")


def test_each_look_of_a_stream_is_charged_to_its_user() -> None:

    def work() -> None:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass

    async def scene() -> float:
        CURRENT.set(RequestContext(30))
        shares = Shares(waiting=2)
        threads = CallerThreads(shares, Limits())
        began = time.monotonic()
        for _ in range(4):
            await threads.run(Caller(7, "mallory", False), work)
        return shares._work._until[7] - began

    assert asyncio.run(scene()) > 3 * 4 * 0.05


def test_credential_checks_count_against_their_users_share() -> None:

    async def scene() -> tuple[int, int]:
        CURRENT.set(RequestContext(30))
        threads = CallerThreads(Shares(waiting=200), Limits())
        threads.remember("known", Caller(7, "mallory", False))
        inside = {"known": 0, "new": 0}
        lock, go_on = threading.Lock(), threading.Event()

        def check(word: str) -> None:
            with lock:
                inside[word] += 1
            go_on.wait(30)

        tasks = [
            asyncio.create_task(threads.check(word, "10.0.0.1", check, word))
            for word in ("known", "new")
            for _ in range(30)
        ]
        while (inside["known"], inside["new"]) < (Limits().share, STRANGERS):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        found = inside["known"], inside["new"]
        go_on.set()
        await asyncio.gather(*tasks)
        return found

    assert asyncio.run(scene()) == (Limits().share, STRANGERS)
