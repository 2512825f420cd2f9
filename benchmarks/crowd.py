"""Plays what many connections, or the runtimes of many jobs, do at the same time; a process of its own.

`python -m benchmarks.crowd` reads one JSON object from stdin: `kind`, `port` and what the kind needs. It prints a line
when it has begun, plays until stdin ends, and then prints what the master answered, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from trainmaster.runtime.backoff import Backoff

Json = dict[str, Any]
BEGUN = "it has begun"
ADDRESSES = 100  # of 127.0.0.0/8, where connections come from many
OPENED_AT_ONCE = 200  # connections that one process opens at the same time
HALF = b"POST /api/v1/experiments HTTP/1.1\r\nHost: x\r\n"
SPOOLED = 120  # records of a job that was without a master for an hour or two
REPORT_EVERY = 30.0
POLL = 300
AGAIN = 5.0  # seconds until a client whose connection was closed opens the next one
SLOW = 5.0  # seconds between two bytes of a slow client
LINE = "epoch 17: loss 0.4312, accuracy 0.8831, 431 samples a second on each of the node's slots"


@dataclass
class Crowd:
    """What is played, and what came of it."""

    port: int
    told: Mapping[str, Any]
    answers: Counter[str] = field(default_factory=Counter)
    marks: dict[str, float] = field(default_factory=dict)  # seconds since the beginning
    began: float = field(default_factory=time.monotonic)

    def mark(self, what: str) -> None:
        """Note when something happened last."""
        self.marks[what] = time.monotonic() - self.began


@dataclass
class Channel:
    """A connection that a thread of a runtime keeps; made again after a failure."""

    crowd: Crowd
    token: str
    source: str = "127.0.0.1"
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def call(
        self, method: str, path: str, body: Any = None, patience: float = 75.0
    ) -> tuple[int, Json, float | None]:
        """Status (0: no answer), the answer, and its Retry-After in seconds."""
        try:
            async with asyncio.timeout(patience):
                return await self._exchange(method, path, body)
        except (OSError, EOFError, ValueError, TimeoutError) as error:
            self.close()
            self.crowd.answers[type(error).__name__] += 1
            return 0, {}, None

    async def _exchange(self, method: str, path: str, body: Any) -> tuple[int, Json, float | None]:
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(
                "127.0.0.1", self.crowd.port, local_addr=(self.source, 0)
            )
        raw = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {self.token}"]
        if raw:
            lines += ["Content-Type: application/json", f"Content-Length: {len(raw)}"]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + raw)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = head.rstrip().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        content = await self.reader.readexactly(int(fields["content-length"]))
        status = int(first.split()[1])
        self.crowd.answers[str(status)] += 1
        if fields.get("connection", "").lower() == "close":
            self.close()
        asked = fields.get("retry-after")
        return status, json.loads(content) if status == 200 else {}, float(asked) if asked else None

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


# -- jobs --------------------------------------------------------------------------------------------------------------


async def returning(crowd: Crowd) -> None:
    """The jobs `jobs` (id, token) come back at once, as their runtimes do after hours without a master."""
    async with asyncio.TaskGroup() as group:
        for number, (name, token) in enumerate(crowd.told["jobs"]):
            reports, log, poll = (Channel(crowd, token, _source(number)) for _ in range(3))
            group.create_task(_replayed(reports, name, "core", METRICS, REPORT_EVERY))
            group.create_task(_replayed(log, name, "log-0", LINES, REPORT_EVERY / 2))
            group.create_task(_poll(poll, name))


async def _replayed(channel: Channel, name: str, stream: str, left: list[Json], every: float) -> None:
    backoff = _long_ago()
    await asyncio.sleep(random.random() * backoff.next())  # it is in the middle of such a wait
    acked, path = 0, f"/api/x1/allocations/{name}/reports"
    while True:
        body = {"stream": stream, "first": acked + 1, "records": left, "node_rank": 0}
        status, answer, wait = await channel.call("POST", path, body)
        if status != 200:
            await asyncio.sleep(backoff.next(wait))
            continue
        backoff.reset()
        acked = answer["acked"]
        if left:
            left = []
            channel.crowd.answers["replayed"] += 1
            channel.crowd.mark("last replayed")
        await asyncio.sleep(every)


async def _poll(channel: Channel, name: str) -> None:
    backoff = _long_ago(60.0)
    await asyncio.sleep(random.random() * backoff.next())
    path = f"/api/v1/allocations/{name}/signals/preemption?timeout_seconds={POLL}"
    while True:
        status, answer, wait = await channel.call("GET", path, patience=POLL + 15.0)
        if answer.get("preempt"):
            return
        if status == 200:
            backoff.reset()
        else:
            await asyncio.sleep(backoff.next(wait))


def _long_ago(ceiling: float = 10.0) -> Backoff:
    """The waits of a caller that has failed for an hour."""
    now = [0.0]
    backoff = Backoff(ceiling=ceiling, clock=lambda: now[0])
    backoff.next()
    now[0] = 3600.0
    for _ in range(20):
        backoff.next()
    return backoff


def _metrics(number: int) -> Json:
    measured = {"loss": 1 / number, "accuracy": 0.9, "learning_rate": 0.001}
    record = {"t": 1.7e9 + number, "kind": "metrics", "group": "training", "steps_completed": number}
    return {**record, "metrics": measured}


METRICS = [_metrics(number) for number in range(1, SPOOLED + 1)]
LINES = [{"t": 1.7e9 + number, "stdtype": "stdout", "rank": 0, "line": LINE} for number in range(SPOOLED)]


async def reporting(crowd: Crowd) -> None:
    """One job reports `rate` times a second, `records` each time, one request after the other."""
    name, token = crowd.told["job"]
    channel, sent, due = Channel(crowd, token), 0, time.monotonic()
    while True:
        some = [_metrics(number) for number in range(sent + 1, sent + 1 + crowd.told["records"])]
        body = {"stream": "core", "first": sent + 1, "records": some, "node_rank": 0}
        status, answer, wait = await channel.call("POST", f"/api/x1/allocations/{name}/reports", body)
        sent = answer["acked"] if status == 200 else sent
        due = max(due + 1 / crowd.told["rate"], time.monotonic() + (wait or 0.0))
        await asyncio.sleep(max(0.0, due - time.monotonic()))


# -- connections -------------------------------------------------------------------------------------------------------


async def connecting(crowd: Crowd) -> None:
    """Open `count` connections, and reopen closed ones, as one who means harm: a third says nothing, a third half
    a request, a third a byte now and then. `many`: from `ADDRESSES` addresses instead of one."""
    gate = asyncio.Semaphore(OPENED_AT_ONCE)
    await asyncio.gather(*(_connection(crowd, number, gate) for number in range(crowd.told["count"])))


async def _connection(crowd: Crowd, number: int, gate: asyncio.Semaphore) -> None:
    source = _source(number) if crowd.told["many"] else "127.0.200.1"
    while True:
        try:
            async with gate:
                reader, writer = await asyncio.open_connection("127.0.0.1", crowd.port, local_addr=(source, 0))
        except OSError as error:
            crowd.answers[type(error).__name__] += 1
            await asyncio.sleep(AGAIN)
            continue
        crowd.answers["opened"] += 1
        try:
            crowd.answers[await _held(reader, writer, number % 3)] += 1
        except OSError:
            crowd.answers["closed"] += 1
        finally:
            writer.close()
        await asyncio.sleep(AGAIN)


def _source(number: int) -> str:
    return f"127.0.{1 + number % ADDRESSES}.1"


async def _held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, manner: int) -> str:
    """Hold a connection until the master ends it; returns the answer's status."""
    if manner == 1:
        writer.write(HALF)
    answer = asyncio.ensure_future(reader.read(1 << 12))
    sent = 0
    while manner == 2 and not answer.done():
        writer.write(HALF[sent % len(HALF) : sent % len(HALF) + 1])
        sent += 1
        await asyncio.wait([answer], timeout=SLOW)
    words = (await answer).split()
    return words[1].decode() if len(words) > 1 else "closed"


# -- processes ---------------------------------------------------------------------------------------------------------

KINDS = {"returning": returning, "reporting": reporting, "connecting": connecting}


@contextlib.contextmanager
def playing(kind: str, port: int, **told: Any) -> Iterator[Json]:
    """A crowd in a process of its own in the block. Behind it, what is given has its `answers` and `marks`."""
    found: Json = {}
    command = [sys.executable, "-m", "benchmarks.crowd"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"kind": kind, "port": port, **told}) + "\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() == BEGUN
        try:
            yield found
        finally:
            said, _ = process.communicate("", timeout=60)
            found.update(json.loads(said))


async def _play(told: Mapping[str, Any]) -> None:
    crowd = Crowd(told["port"], told)
    async with _until_stdin_ends(KINDS[told["kind"]](crowd)):
        print(BEGUN, flush=True)
    print(json.dumps({"answers": crowd.answers, "marks": crowd.marks}), flush=True)


@asynccontextmanager
async def _until_stdin_ends(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    yield
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    os.nice(19)  # on a site it has machines of its own
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(_play(json.loads(sys.stdin.readline())))


if __name__ == "__main__":
    main()
