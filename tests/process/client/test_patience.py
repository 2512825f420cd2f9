"""Waits and followed logs while the master is away: nothing is lost or doubled, and two sentences are said."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.master import free_port
from tests.support.scripted_server import Answer, serving
from trainmaster.client.cluster import ClusterView
from trainmaster.client.errors import ClientError, HostNotFound, MasterUnreachable, NoSuchThing
from trainmaster.client.patience import Patience
from trainmaster.client.transport import Transport

AWAY = Answer(503, b'{"message": "The database does not answer now."}')
GONE = Answer(close=True)
RUNS, ENDED = ({"task": {"endTime": end}} for end in (None, "2026-01-01T00:00:00Z"))


def lines(*numbers: int) -> bytes:
    return b"".join(json.dumps({"result": {"id": str(number)}}).encode() + b"\n" for number in numbers)


def answer(found: object) -> Answer:
    return Answer(body=json.dumps(found).encode())


def test_a_log_is_followed_through_breaks_and_restarts() -> None:
    broken = lines(1, 2)
    answers = [
        answer(RUNS),
        Answer(body=broken, length=len(broken) + 100),  # killed in the middle of a stream
        *[AWAY] * 4,
        *[GONE] * 3,
        answer(RUNS),
        Answer(body=lines(1, 2, 3)),  # a master that sends all again, and is stopped in an orderly way
        answer(ENDED),
        Answer(body=lines(4)),
    ]
    notices: list[str] = []
    with serving(answers) as server:
        http = Transport(server.url)
        found = [line["id"] for line in ClusterView(http).task_log("t", follow=True, notice=notices.append)]
        http.close()
        asked = [request.path for request in server.requests if "logs" in request.path]
    assert found == ["1", "2", "3", "4"]
    assert [path.partition("?")[2] for path in asked] == [
        "follow=true", "follow=true&afterId=2", "follow=false&afterId=3",
    ]  # fmt: skip
    first, second = notices
    assert first == "The database does not answer now. Waiting for it, 10 min at most."
    assert re.fullmatch(r"The master answers again after \d+ s\.", second)


def test_followed_master_log_restarts_with_new_master() -> None:
    def entries(*found: tuple[int, int]) -> bytes:
        made = [
            {"result": {"logEntry": {"id": number, "timestamp": f"2026-01-01T00:00:{at:02}Z"}}} for number, at in found
        ]
        return b"".join(json.dumps(each).encode() + b"\n" for each in made)

    answers = [
        Answer(body=entries((7, 1), (8, 2))),
        Answer(body=entries((7, 1), (8, 2), (9, 2))),  # the same master
        Answer(body=entries((0, 30), (1, 31))),  # another one
        Answer(404),
    ]
    with serving(answers) as server:
        http = Transport(server.url)
        entries_of = ClusterView(http).master_log(offset=-2, follow=True)
        found = [next(entries_of)["id"] for _ in range(5)]
        with pytest.raises(NoSuchThing):
            next(entries_of)
        http.close()
        asked = [request.path.partition("?")[2] for request in server.requests]
    assert asked == ["offset=-2&follow=true", *["offset=0&follow=true"] * 3]
    assert found == [7, 8, 9, 0, 1]


def test_patience_runs_out_and_unknown_host_fails_at_once() -> None:
    http = Transport(f"127.0.0.1:{free_port()}")
    notices: list[str] = []
    with pytest.raises(MasterUnreachable, match="does not answer"):
        Patience(3.0, notices.append).ask(lambda: http.request("GET", "/x"))
    assert len(notices) == 1
    with pytest.raises(MasterUnreachable):
        list(ClusterView(http).task_log("t", notice=notices.append))
    elsewhere = Transport("no-such-host.invalid")
    with pytest.raises(HostNotFound):  # most likely a wrong address, which no waiting corrects
        Patience(600.0, notices.append).ask(lambda: elsewhere.request("GET", "/x"))
    assert len(notices) == 1


def test_the_patience_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DET_PATIENCE", "1.5")
    assert Patience().seconds == 1.5
    with serving([*[AWAY] * 8, answer({})]) as server:
        http = Transport(server.url)
        assert Patience(60.0).ask(lambda: http.request("GET", "/x")) == {}
        http.close()
    first, second = [record.message for record in caplog.records]
    assert first.startswith("The database does not answer now. Waiting for it")
    assert second.startswith("The master answers again")
    for wrong in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv("DET_PATIENCE", wrong)
        with pytest.raises(ClientError, match="DET_PATIENCE must be a number of seconds"):
            Patience()
