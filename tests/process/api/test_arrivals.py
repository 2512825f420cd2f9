"""Connections that arrive faster than the master can take them are refused, and leave room for others."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse

import pytest
import uvicorn
from fastapi import FastAPI

from tests.support.master import wait_for
from trainmaster.config.limits import Limits
from trainmaster.master.admission.arrivals import BURST, KNOWN_FOR, Arrivals, FairListener
from trainmaster.master.admission.connections import RETRY_AFTER, STRANGERS, Connections
from trainmaster.master.services.addresses import networks

RATE = 4
AT_ONCE = int(BURST) * RATE


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def let_in(arrivals: Arrivals, address: str, tries: int) -> int:
    return sum(arrivals.refusal(address) is None for _ in range(tries))


def test_an_address_where_people_log_in_has_a_rate_of_its_own() -> None:
    clock = Clock()
    arrivals = Arrivals(Limits(connection_rate=RATE), networks(["10.9.0.0/16"]), clock)
    for address in ("10.0.0.1", "10.0.0.2"):
        arrivals.logged_in(address)
        assert let_in(arrivals, address, 100) == AT_ONCE
    assert "10.0.0.1 (limits.connection_rate)" in (arrivals.refusal("10.0.0.1") or "")
    clock.now += 1
    assert let_in(arrivals, "10.0.0.1", 100) == RATE
    assert let_in(arrivals, "10.9.0.1", 1000) == 1000  # a trusted proxy
    clock.now += KNOWN_FOR
    assert let_in(arrivals, "10.0.0.1", 100) == AT_ONCE // 2


def test_strangers_share_a_rate_and_leave_the_others_theirs() -> None:
    arrivals = Arrivals(Limits(connection_rate=RATE), clock=Clock())
    arrivals.logged_in("10.0.0.1")
    assert sum(let_in(arrivals, f"10.1.0.{n}", 1) for n in range(100)) == AT_ONCE // 2
    assert "nobody has logged in lately" in (arrivals.refusal("10.1.0.200") or "")
    assert let_in(arrivals, "10.0.0.1", 100) == AT_ONCE


@contextlib.contextmanager
def serving(connections: Connections, arrivals: Arrivals) -> Iterator[tuple[int, uvicorn.Server]]:
    """The port of a server with one small page."""
    app = FastAPI()

    @app.get("/")
    def page() -> str:
        return "here"

    with FairListener() as listener:
        listener.arrivals = arrivals
        listener.bind(("127.0.0.1", 0))
        made = uvicorn.Config(app, http=connections.protocol, log_config=None, lifespan="off")  # type: ignore[arg-type]
        server = uvicorn.Server(made)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            wait_for(lambda: server.started, "the server")
            yield listener.getsockname()[1], server
        finally:
            server.should_exit = True
            thread.join()


def asked(port: int, address: str) -> tuple[HTTPResponse, str]:
    client = HTTPConnection("127.0.0.1", port, timeout=30, source_address=(address, 0))
    try:
        client.request("GET", "/")
        answer = client.getresponse()
        return answer, answer.read().decode()
    finally:
        client.close()


def test_connection_rate_refuses_one_client_and_serves_others() -> None:
    arrivals = Arrivals(Limits(connection_rate=RATE), clock=Clock())
    arrivals.logged_in("127.0.0.2")
    with serving(Connections(Limits(), 1000), arrivals) as (port, _):
        answers = [asked(port, "127.0.0.1") for _ in range(AT_ONCE)]
        assert [answer.status for answer, _ in answers] == [200] * (AT_ONCE // 2) + [503] * (AT_ONCE // 2)
        refused, sentence = answers[-1]
        assert "limits.connection_rate" in sentence
        assert refused.getheader("Retry-After") == str(RETRY_AFTER)
        assert asked(port, "127.0.0.2")[0].status == 200


def test_many_that_arrive_at_once_are_all_answered() -> None:
    """More than are accepted before other work has its turn."""
    with (
        serving(Connections(Limits(), 4000), Arrivals(Limits())) as (port, _),
        contextlib.ExitStack() as opened,
    ):
        clients = [opened.enter_context(socket.create_connection(("127.0.0.1", port), 30)) for _ in range(200)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for client in clients:
            assert client.recv(4096).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("spread", [False, True])
def test_silent_connections_leave_room_for_others(spread: bool) -> None:
    descriptors = 50
    room = (descriptors - descriptors // 5) // STRANGERS
    with (
        serving(Connections(Limits(), descriptors), Arrivals(Limits())) as (port, server),
        contextlib.ExitStack() as opened,
    ):
        mute = []
        for number in range(3 * room):
            source = f"127.0.1.{number}" if spread else "127.0.1.1"
            client = socket.create_connection(("127.0.0.1", port), 30, (source, 0))
            mute.append(opened.enter_context(client))
        assert asked(port, "127.0.0.1")[0].status == 200
        for client in mute[:room]:  # the oldest had to go
            assert client.recv(1) == b""
        assert len(server.server_state.connections) <= room
