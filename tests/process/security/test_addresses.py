"""Addresses that the master connects to: announced by jobs, named in headers, or set in webhooks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from sqlalchemy import Engine
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.api.http import Answer, Api
from tests.support.api.jobs import Job, config, give_slots, jobs_of
from tests.support.api.listener import listening
from tests.support.api.tasks import generic, lines
from tests.support.bound import bind
from tests.support.cluster.layout import USERS
from tests.support.cluster.users import ensure_users
from tests.support.master import MasterProcess, free_port, serving, wait_for
from trainmaster.config.master import parse_master
from trainmaster.config.messages import ConfigError
from trainmaster.master.services import addresses
from trainmaster.master.services.store import Store
from trainmaster.master.services.tasks.listeners import Listeners

SECRET = "internal service of the master's host: secret=42"


def say_where(job: Job, address: str, **more: object) -> Answer:
    return job.api.post(f"/api/v1/allocations/{job.allocation_id}/proxy_address", {"proxyAddress": address, **more})


@pytest.fixture(scope="module")
def neighbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a service on the master's machine that is no job's."""
    folder = tmp_path_factory.mktemp("neighbour")
    (folder / "index.html").write_text(SECRET)
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: answers(port), "the neighbour")
    yield port
    process.kill()
    process.wait()


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# -- H1: where a job is ---------------------------------------------------------------------------------------------


def test_job_cannot_announce_foreign_address_from_its_lease(job: Job) -> None:
    claimed = ["10.99.99.99", "::ffff:127.0.0.1", "169.254.169.254"]
    assert job.lease(run_id="", addresses=claimed).status == 200  # told to its own nodes, for what it is worth
    for address in claimed:
        assert say_where(job, address).status == 400


def test_a_job_that_adds_nodes_at_will_is_refused(
    master: MasterProcess, user: Api, engine: Engine, experiment: Callable[..., int], job: Job
) -> None:
    added = job.lease(run_id="x", node_rank=99, num_nodes=1, addresses=["10.99.99.99"])
    assert (added.status, "has none of rank 99" in added.sentence) == (400, True)
    assert job.lease(run_id="y", node_rank=1, num_nodes=2).status == 400
    fresh = jobs_of(master, user, experiment())[0]
    many = fresh.lease(run_id="a", num_nodes=1000)
    assert (many.status, "it was given 1" in many.sentence) == (400, True)
    give_slots(engine, fresh, 2)
    assert fresh.lease(run_id="a", num_nodes=2).status == 200
    assert fresh.lease(run_id="b", num_nodes=3, node_rank=2).status == 400
    assert fresh.lease(run_id="b", num_nodes=2, node_rank=1).status == 200


@pytest.mark.parametrize(
    "spelling",
    [
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1%lo",
        "127.0.0.001",
        "localhost",
        "::ffff:169.254.169.254",
        "[::1]",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "169.254.169.254",
        "fe80::1",
    ],
)
def test_local_or_special_address_is_rejected_in_any_spelling(job: Job, spelling: str) -> None:
    assert say_where(job, spelling).status == 400


def test_an_address_has_one_spelling() -> None:
    assert str(addresses.canonical("10.0.0.1")) == "10.0.0.1"
    assert str(addresses.canonical("fd00::1")) == "fd00::1"
    assert addresses.seen("::ffff:10.0.0.1") == "10.0.0.1"
    assert addresses.canonical("FD00::1") is None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))  # no packet is sent
        own = addresses.canonical(probe.getsockname()[0])
    assert own is not None
    assert addresses.is_here(own) or own.is_unspecified
    assert not addresses.is_here(addresses.canonical("192.0.2.1"))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def relay(user_with_slots: Api, neighbour: int) -> Iterator[tuple[str, int, int]]:
    """A task that asks for its neighbour's port, and for one of its own; its id and its own port."""
    own = free_port()
    text = f"""
        resources: {{slots: 0}}
        entrypoint: echo stands; exec python3 -m http.server {own} --bind 127.0.0.1
        environment:
          proxy_ports:
          - {{proxy_port: {neighbour}, unauthenticated: true}}
          - {{proxy_port: {own}}}
          - {{proxy_port: {user_with_slots.url.rpartition(":")[2]}, unauthenticated: true}}
    """
    task_id = generic(user_with_slots, text)
    wait_for(lambda: "stands" in lines(user_with_slots, task_id), "the job")
    wait_for(lambda: user_with_slots.get(f"/proxy/{task_id}:{own}/").status == 200, "its own service")
    yield task_id, own, neighbour
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


def test_proxy_does_not_reach_another_process_port(user_with_slots: Api, relay: tuple[str, int, int]) -> None:
    task_id, own, neighbour = relay
    assert user_with_slots.get(f"/proxy/{task_id}:{own}/").status == 200
    for api in (Api(user_with_slots.url), user_with_slots):
        answer = api.get(f"/proxy/{task_id}:{neighbour}/index.html")
        assert (answer.status, SECRET in answer.content.decode()) == (403, False)


def test_proxy_refuses_masters_own_port(user_with_slots: Api, relay: tuple[str, int, int]) -> None:
    task_id, _, _ = relay
    port = user_with_slots.url.rpartition(":")[2]
    assert Api(user_with_slots.url).get(f"/proxy/{task_id}:{port}/info").status == 403


def test_bytes_over_a_websocket_go_nowhere_else_either(user_with_slots: Api, neighbour: int) -> None:
    text = f"""
        resources: {{slots: 0}}
        entrypoint: echo stands; exec sleep 600
        environment: {{proxy_ports: [{{proxy_port: {neighbour}, proxy_tcp: true, unauthenticated: true}}]}}
    """
    task_id = generic(user_with_slots, text)
    wait_for(lambda: "stands" in lines(user_with_slots, task_id), "the job")

    async def enter() -> None:
        async with connect(f"ws{user_with_slots.url[4:]}/proxy/{task_id}:{neighbour}/", open_timeout=60, proxy=None):
            raise AssertionError("it was let in")

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(enter())
    assert refused.value.response.status_code == 403
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


def test_a_program_that_a_job_starts_apart_is_still_the_jobs(user_with_slots: Api) -> None:
    port = free_port()
    text = f"""
        resources: {{slots: 0}}
        entrypoint: env -i setsid {sys.executable} -m http.server {port} --bind 127.0.0.1 & echo stands; exec sleep 600
        environment: {{proxy_ports: [{{proxy_port: {port}}}]}}
    """
    task_id = generic(user_with_slots, text)
    wait_for(lambda: user_with_slots.get(f"/proxy/{task_id}:{port}/").status == 200, "its service")
    user_with_slots.post(f"/api/v1/tasks/{task_id}/kill")


@pytest.mark.parametrize("kind", ["experiments", "generic-tasks"])
def test_a_service_for_everybody_needs_the_sites_leave(user: Api, kind: str) -> None:
    environment = {"proxy_ports": [{"proxy_port": 8888, "unauthenticated": True}]}
    task = json.dumps({"entrypoint": "true", "resources": {"slots": 0}, "environment": environment})
    text = task if kind == "generic-tasks" else config(environment=environment)
    answer = user.post(f"/api/v1/{kind}", {"config": text})
    assert (answer.status, "unauthenticated_services" in answer.sentence) == (400, True)


# -- H2: where a caller is ------------------------------------------------------------------------------------------


def test_forwarded_header_does_not_change_callers_address(job: Job) -> None:
    header = {"X-Forwarded-For": "169.254.169.254", "X-Forwarded-Proto": "https"}
    path = f"/api/v1/allocations/{job.allocation_id}/proxy_address"
    assert job.api.call("POST", path, {"proxyAddress": "169.254.169.254"}, headers=header).status == 400
    spoof = {"X-Forwarded-For": "10.1.2.3"}
    assert job.api.call("POST", path, {"proxyAddress": "10.1.2.3"}, headers=spoof).status == 400
    assert job.api.call("POST", path, {"proxyAddress": ""}, headers=spoof).status == 200  # 127.0.0.1


def test_guesses_under_others_addresses_count_for_the_guesser(user: Api) -> None:
    nobody = Api(user.url)
    body = {"username": "nobody-there", "password": "wrong", "isHashed": False}
    statuses = [
        nobody.call("POST", "/api/v1/auth/login", body, headers={"X-Forwarded-For": f"10.0.0.{number}"}).status
        for number in range(8)
    ]
    assert statuses[0] == 401
    assert statuses[-1] == 429


BEHIND = """
trusted_proxies: [127.0.0.1, 10.7.0.0/16]
resource_manager: {type: local, slots: 1, poll_interval: 0.2}
"""


@pytest.mark.parametrize(
    ("told", "client"),
    [
        ("10.9.9.9", "10.9.9.9"),
        ("1.1.1.1, 10.9.9.9", "10.9.9.9"),  # the first is what the stranger said of themselves
        ("10.9.9.9, 10.7.0.1", "10.9.9.9"),  # through two proxies of ours
        ("fd00::9", "fd00::9"),
        ("not an address", "127.0.0.1"),
    ],
)
def test_only_trusted_proxy_sets_client_address(told: str, client: str) -> None:
    from trainmaster.master.http.origins import ProxyHeaders  # as the master puts it together

    seen: list[object] = []

    async def app(scope: object, _: object, __: object) -> None:
        seen.append(scope)

    scope = {
        "type": "http",
        "client": ("127.0.0.1", 5),
        "scheme": "http",
        "headers": [
            (b"host", b"inner"),
            (b"x-forwarded-for", told.encode()),
            (b"x-forwarded-proto", b"https"),
            (b"x-forwarded-host", b"outer.example"),
        ],
    }
    trusted = addresses.networks(parse_master(BEHIND).trusted_proxies)
    stranger = {**scope, "client": ("10.8.8.8", 5)}
    asyncio.run(ProxyHeaders(app, trusted)(scope, None, None))  # type: ignore[arg-type]
    asyncio.run(ProxyHeaders(app, trusted)(stranger, None, None))  # type: ignore[arg-type]
    assert (scope["client"][0], scope["scheme"], scope["headers"][0]) == (client, "https", (b"host", b"outer.example"))
    assert (stranger["client"][0], stranger["scheme"]) == ("10.8.8.8", "http")


@pytest.mark.parametrize("wrong", ["[nowhere]", "[10.0.0.1/8]", "[1.2]", "yes"])
def test_networks_are_written_as_networks(wrong: str) -> None:
    for key in (f"trusted_proxies: {wrong}", f"services_networks: {wrong}", f"webhooks: {{allow_networks: {wrong}}}"):
        with pytest.raises(ConfigError):
            parse_master(key)


# -- M4: where a webhook goes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed() -> Iterator[MasterProcess]:
    with serving("resource_manager: {type: local, slots: 1, poll_interval: 0.2}\n") as process:
        yield process


@pytest.fixture(scope="module")
def chair(closed: MasterProcess) -> Api:
    """Its administrator."""
    from tests.process.api.conftest import log_in

    return Api(closed.url, log_in(closed, "admin"))


def told_about(chair: Api, url: str) -> str:
    """What a test of a webhook there says, without the address."""
    trigger = {"triggerType": "TRIGGER_TYPE_CUSTOM", "condition": {}}
    body = {"name": f"w{len(url)}-{os.urandom(4).hex()}", "url": url, "webhookType": "WEBHOOK_TYPE_DEFAULT"}
    made = chair.post("/api/v1/webhooks", {**body, "mode": "WEBHOOK_MODE_SPECIFIC", "triggers": [trigger]})
    assert made.status == 200, made.content
    answer = chair.post(f"/api/v1/webhooks/{made.json['webhook']['id']}/test")
    assert answer.status == 400
    said = answer.sentence
    assert "pw" not in said.split("did not accept")[0].split("receive events")[1]
    return said.partition("did not accept")[2]


def test_webhook_error_reveals_nothing_of_internal_hosts(chair: Api, neighbour: int) -> None:
    shut = free_port()
    names = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001")
    places = (*names, "[::1]", "[::ffff:127.0.0.1]", "u:pw@127.0.0.1")
    said = {told_about(chair, f"http://{place}:{port}/") for place in places for port in (shut, neighbour)}
    assert len(said) == 1
    said |= {told_about(chair, f"http://{place}/") for place in ("169.254.169.254", "10.0.0.1", "no-such-host.invalid")}
    assert len(said) == 1


def test_a_webhook_does_not_reach_the_inside(chair: Api) -> None:
    with listening() as listener:
        told_about(chair, listener.url)
        assert listener.heard == []


def test_a_name_that_changes_its_meaning_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address that was looked at is the one that is connected to."""
    from trainmaster.master.services.events import webhook_deliveries

    with listening() as listener:
        port = int(listener.url.rpartition(":")[2])
        asked: list[str] = []

        def resolve(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        master = bind(cast(Store, None), webhook_networks=addresses.networks(["127.0.0.1"]))
        with monkeypatch.context() as patched:
            patched.setattr(webhook_deliveries.socket, "getaddrinfo", resolve)  # type: ignore[attr-defined]
            patched.setattr(
                webhook_deliveries.socket,  # type: ignore[attr-defined]
                "create_connection",
                lambda address, timeout, **_: (asked.append(address[0]), real(address, timeout))[1],  # type: ignore[func-returns-value]
            )
            master.webhook_deliveries.post(f"http://rebinding.example:{port}/x", b"{}")
        assert asked == ["rebinding.example", "127.0.0.1"]
        assert listener.heard[0].headers["host"] == f"rebinding.example:{port}"


def real(address: tuple[str, int], timeout: float, *_: object) -> socket.socket:
    """A connection without asking for names."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.settimeout(timeout)
    found.connect(address)
    return found


def test_a_redirect_is_not_followed_inside(admin: Api) -> None:
    with listening() as listener:
        listener.answers += [302]
        told_about(admin, listener.url)
        assert len(listener.heard) == 1


# -- whose a listener is --------------------------------------------------------------------------------------------


def test_allocation_id_marks_listeners_of_job(neighbour: int) -> None:
    here = addresses.canonical("127.0.0.1")
    assert here is not None
    listeners = Listeners()
    assert listeners.there(here, neighbour)
    assert not listeners.there(here, free_port())
    own = pwd.getpwuid(os.geteuid()).pw_name
    for account in (None, own, "no-such-account"):
        assert not listeners.are_of("x.1", account, here, neighbour)
    marked = {**os.environ, "DET_ALLOCATION_ID": "x.1"}
    with listening_as({}, marked) as port:
        assert listeners.are_of("x.1", None, here, port)
        assert not listeners.are_of("x.10", None, here, port)
        assert not listeners.are_of("x.", None, here, port)


def test_another_accounts_listener_is_its_jobs_alone() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: nothing can be run as another account")
    ensure_users()
    here = addresses.canonical("127.0.0.1")
    assert here is not None
    first, second = (pwd.getpwnam(name) for name in USERS[:2])
    with listening_as({"user": first.pw_uid, "group": first.pw_gid, "cwd": "/"}, {"PATH": os.defpath}) as port:
        assert Listeners().are_of("x.1", first.pw_name, here, port)
        assert not Listeners().are_of("x.1", second.pw_name, here, port)
        assert not Listeners().are_of("x.1", None, here, port)
        assert not Listeners().are_of("x.1", "root", here, port)


@contextlib.contextmanager
def listening_as(who: dict[str, Any], environment: dict[str, str]) -> Iterator[int]:
    """A process that listens on a port of the loopback."""
    port = free_port()
    code = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(600)"
    with subprocess.Popen(["/usr/bin/python3", "-c", code], env=environment, **who) as process:
        wait_for(lambda: answers(port), "the listener")
        yield port
        process.kill()
