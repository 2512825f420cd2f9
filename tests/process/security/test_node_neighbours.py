"""Other accounts on a job's node: its servers answer only the job's processes, and a port that another account takes is
reported with that account."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.process.runtime.conftest import stage
from tests.process.runtime.test_whole_job import archive
from tests.support.cluster.layout import USERS
from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users
from tests.support.master import wait_for
from trainmaster.launchers.admission import enter, guarded
from trainmaster.master.lifecycle.allocation import Attempt, verdict
from trainmaster.master.lifecycle.states import OutcomeKind
from trainmaster.master.values.exits import ExitRecord
from trainmaster.runtime.errors import PortTaken
from trainmaster.runtime.ports import ReservedPorts

__all__ = ["stage"]

OTHER = USERS[0]


@pytest.fixture
def other() -> str:
    """The name of another account of this machine."""
    if os.geteuid() != 0:
        pytest.skip("not root: no process can be started as another account")
    try:
        ensure_users()
    except Unavailable as reason:
        pytest.skip(str(reason))
    return OTHER


def as_other(account: str, code: str, *arguments: str) -> subprocess.Popen[str]:
    command = ["/usr/bin/python3", "-c", code, *arguments]
    return subprocess.Popen(
        command, user=account, group="nogroup", extra_groups=[], cwd="/", stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


# -- servers of a job -----------------------------------------------------------------------------------------------


class Rendezvous(BaseHTTPRequestHandler):
    """Answers each request with its path, as the key-value store of a framework does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.path.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[int]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), guarded(Rendezvous, "secret-of-the-job"))
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield found.server_port
    found.shutdown()
    thread.join()
    found.server_close()


ASKS = """
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), source_address=(sys.argv[2], 0))
c.request("GET", sys.argv[3], headers={"X-Trainmaster-Node": sys.argv[4]})
print(c.getresponse().status)
"""


def asked(account: str, port: int, path: str, *, shows: str = "", source: str = "127.0.0.1") -> int:
    out, _ = as_other(account, ASKS, str(port), source, path, shows).communicate(timeout=60)
    return int(out)


def test_job_server_refuses_other_accounts_of_node(other: str, server: int) -> None:
    assert asked(other, server, "/rank_0/addresses") == 403
    connection = http.client.HTTPConnection("127.0.0.1", server)
    connection.request("GET", "/rank_0/addresses")
    assert connection.getresponse().read() == b"/rank_0/addresses"


def test_another_node_is_admitted_by_the_secret_of_the_job(other: str, server: int) -> None:
    source = "127.0.0.2"  # as another machine's: no socket of this account is there
    assert asked(other, server, "/trainmaster-node", shows="é", source=source) == 403
    assert asked(other, server, "/x", shows="secret-of-the-job", source=source) == 403
    assert asked(other, server, "/trainmaster-node", shows="secret-of-the-job", source=source) == 200
    assert asked(other, server, "/x", source=source) == 200
    assert asked(other, server, "/x", source="127.0.0.3") == 403


def test_a_node_with_another_secret_is_not_admitted(server: int) -> None:
    with pytest.raises(http.client.HTTPException, match="403"):
        enter("127.0.0.1", server, "wrong")
    enter("127.0.0.1", server, "secret-of-the-job")


# -- reserved ports -------------------------------------------------------------------------------------------------

LISTENS = """
import socket, sys
held = socket.socket()
held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
held.bind(("127.0.0.1", int(sys.argv[1])))
held.listen()
print("listens", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def thief(other: str) -> Iterator[Callable[[int], None]]:
    processes = []

    def take(port: int) -> None:
        process = as_other(other, LISTENS, str(port))
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"

    yield take
    for process in processes:
        process.communicate(timeout=60)  # closes its input


def test_account_that_took_reserved_port_is_named(other: str, thief: Callable[[int], None]) -> None:
    ports = ReservedPorts(3)
    assert ports.stolen() == ""
    with socket.create_server(("127.0.0.1", ports.numbers[0])):
        ports.check()  # the job's own
    thief(ports.numbers[1])
    with pytest.raises(PortTaken, match=f"port {ports.numbers[1]} of this job was taken by account {other}"):
        ports.check()
    ports.close()


FAILS = """
import sys, time
from pathlib import Path
from trainmaster import core
port = core.get_cluster_info().runtime_info.torch_port
Path(sys.argv[1], "port.new").write_text(str(port))
Path(sys.argv[1], "port.new").rename(Path(sys.argv[1], "port"))
while not Path(sys.argv[1], "taken").exists():
    time.sleep(0.02)
sys.exit("RuntimeError: EADDRINUSE")
"""


def test_taken_port_makes_failure_of_job_infrastructure(
    other: str, thief: Callable[[int], None], stage: Callable[..., Any], tmp_path: Any
) -> None:
    files = archive(**{"train.py": FAILS})
    job, _ = stage(f"{sys.executable} train.py {tmp_path}", context=files)
    process = job.start()
    port = int(wait_for(lambda: (tmp_path / "port").read_text() if (tmp_path / "port").exists() else None, "the port"))
    thief(port)
    (tmp_path / "taken").touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    record = job.exit_record()
    sentence = f"port {port} of this job was taken by account {other}, which listens there"
    assert record["fault"] == sentence
    assert sentence in record["message"]
    seen = ExitRecord(0, record["exit_code"], evidence=record["evidence"], fault=record["fault"])
    outcome = verdict(Attempt(leased=True, exits={0: seen}, first_exit_at=1.0), 100.0, 600.0)
    assert outcome is not None
    assert (outcome.kind, sentence in outcome.text) == (OutcomeKind.INFRASTRUCTURE, True)
