"""What tests of the ring `unit` may not do: start a process, or open a connection. Other rings are for those."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest

# Events of Python's audit, https://docs.python.org/3/library/audit_events.html
FORBIDDEN = frozenset({"os.exec", "os.fork", "os.posix_spawn", "os.system", "socket.connect", "subprocess.Popen"})

_watched: list[str] = []  # the id of the test that runs


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched or event not in FORBIDDEN:
        return
    if event != "socket.connect" or arguments[0].type == socket.SOCK_STREAM:  # of datagrams: it only finds the route
        raise RuntimeError(
            f"{_watched[0]} caused {event}{arguments[:1]}: a test in tests/unit starts no process and opens no "
            "connection. Move it to tests/service, tests/process or tests/site."
        )


sys.addaudithook(_refuse)  # once, and for good: Python removes none


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> Iterator[None]:
    _watched.append(request.node.nodeid)
    yield
    _watched.clear()
