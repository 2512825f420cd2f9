"""Measures pages that show what happens: from a report in a job to the screen, and what open tabs cost the master.

A tab is a live connection that follows one experiment and reads its board after each hint, with the ETag of its last
answer, as the page does. All tabs are played by one process beside the one that reports.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect

from benchmarks.ingest import Sender, waiting_jobs
from benchmarks.load import flood
from benchmarks.measure import Deadline, Sample, figure, say
from tests.support.api.http import Api
from tests.support.api.jobs import Job
from tests.support.master import MasterProcess, files, make_folder, remove_folder, wait_ended, wait_for
from trainmaster.client.session_calls import hashed

REPORTS = 60
TABS = 200
TOGETHER = 16  # tabs that open at the same time
JOBS = 32
SECONDS = 10.0  # of each measurement
ROUNDS = 3  # of reporting without and with tabs
EVERY = 1.0  # seconds between two reports of a job that does something else too
CONFIG = """
resource_manager: {type: local, slots: 1, poll_interval: 1}
limits: {live_connections: 1000}
"""
_TICK = os.sysconf("SC_CLK_TCK")
_TRAINING = """
import random, time
from trainmaster import core

hparams = core.get_cluster_info().trial.hparams
with core.init(tensorboard_mode=core.TensorboardMode.MANUAL) as context, open(hparams["times"], "a") as times:
    for steps in range(1, hparams["reports"] + 1):
        time.sleep(random.uniform(0.4, 1.0))
        print(steps, time.time(), file=times, flush=True)
        context.train.report_validation_metrics(steps, {"error": 1 / steps})
"""
# The table beside the curves has their last place as its last column.
_WATCH = """() => {
    window.seen = [];
    const look = () => {
        const last = [...document.querySelectorAll(".chart-table th, .tab table th")].at(-1)?.textContent ?? "";
        const steps = Number(last.replace(/[^0-9.]/g, ""));
        if (steps && steps !== window.seen.at(-1)?.[0]) window.seen.push([steps, Date.now() / 1000]);
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
    look();
}"""


def run(deadline: Deadline) -> None:
    say("live", "from a report in a job to the page", latencies())
    if deadline.left > (2 * ROUNDS + 4) * SECONDS:
        for line in tabs():
            say("live", *line)


# -- from a report to the screen ------------------------------------------------------------------------------------


def latencies(reports: int = REPORTS) -> Sample:
    """From the call that reports in a real job to the change of the page's curves and their table, for each report."""
    from tests.support.webui.chromium import chromium, visiting

    with _master() as master, chromium() as browser, visiting(browser, master.url) as visit:
        visit.sign_in("determined", master.password)
        client = master.client()
        times = master.folder / "times"
        times.touch()
        hparams = {"times": str(times), "reports": reports}
        config = {
            "name": "reports",
            "entrypoint": "python3 train.py",
            "hyperparameters": hparams,
            # The second one waits: of several trials all curves are in one chart.
            "searcher": {"name": "random", "metric": "error", "max_trials": 2},
        }
        number = client.create_experiment(json.dumps(config), files(train__py=_TRAINING)).id
        page = visit.open(f"experiments/{number}?table=1")
        page.locator(".freshness.live").wait_for()
        page.evaluate(_WATCH)
        page.wait_for_function("reports => window.seen.at(-1)?.[0] === reports", arg=reports, timeout=reports * 3_000)
        seen: list[tuple[float, float]] = page.evaluate("window.seen")
        called = [line.split() for line in times.read_text().splitlines()][:reports]
        client.kill(number)
        wait_ended(client, number)
    shown = [next(moment for place, moment in seen if place >= int(steps)) - float(at) for steps, at in called]
    return Sample([seconds * 1000 for seconds in shown[1:]])  # the first one draws the first chart


# -- open tabs ------------------------------------------------------------------------------------------------------


def tabs(count: int = TABS) -> Iterator[tuple[str, ...]]:
    """What open tabs cost the master: memory, processor time, and the rate of reports without and with them."""
    with _master() as master:
        jobs = waiting_jobs(master, JOBS)
        users = [_token(master) for _ in range(4)]
        topics = [f"experiment:{job.experiment_id}" for job in jobs]
        begin = _memory(master.pid)
        with _opened(master, users, topics, count) as played:
            _all_have_begun(played, count)
            yield (f"memory of {count} open tabs", f"{figure(_memory(master.pid) - begin)} MB")
            idle = _processor(master.pid, SECONDS)
            yield (f"processor of {count} tabs without news", f"{figure(idle * 100)} % of a core")
        with _reporting(jobs):
            without = _processor(master.pid, SECONDS)
            with _opened(master, users, topics, count) as played:
                _all_have_begun(played, count)
                before = played()
                within = _processor(master.pid, SECONDS)
                hints, reads = (now - then for now, then in zip(played(), before, strict=True))
        yield (
            f"processor of {count} tabs on {JOBS} experiments that report each second",
            f"{figure((within - without) * 100)} % of a core, beside {figure(without * 100)} % without tabs",
            f"{figure(hints / SECONDS)} hints and {figure(reads / SECONDS)} answers a second",
        )
        senders = [Sender(job, sent=job.sent.get("core", 0)) for job in jobs]
        rates: dict[bool, list[float]] = {False: [], True: []}
        flood(master.port, senders, 2)
        for _ in range(ROUNDS):
            rates[False].append(flood(master.port, senders, SECONDS / 2)[0])
            with _opened(master, users, topics, count) as played:
                _all_have_begun(played, count)
                rates[True].append(flood(master.port, senders, SECONDS / 2)[0])
        alone, beside = (sum(rates[way]) / ROUNDS for way in (False, True))
        yield (
            f"single reports of {JOBS} clients beside {count} tabs on their experiments",
            f"{figure(beside)} a second, {figure(alone)} without them",
            f"{figure(beside / alone)} of it",
        )


@contextmanager
def _master() -> Iterator[MasterProcess]:
    folder = make_folder()
    master = MasterProcess(folder, CONFIG).start()
    try:
        yield master
    finally:
        master.clean_up()
        remove_folder(folder)


def _token(master: MasterProcess) -> str:
    body = {"username": "determined", "password": hashed(master.password), "isHashed": True}
    return str(Api(master.url).post("/api/v1/auth/login", body).json["token"])


@contextmanager
def _opened(
    master: MasterProcess, tokens: Sequence[str], topics: Sequence[str], count: int
) -> Iterator[Callable[[], tuple[int, int]]]:
    """The tabs, in a process of their own. Yields what tells how many hints they have heard and answers read."""
    context = multiprocessing.get_context("spawn")
    hints, reads, ready, over = context.Value("l"), context.Value("l"), context.Event(), context.Event()
    given = (master.url, list(tokens), list(topics), count, hints, reads, ready, over)
    process = context.Process(target=_play, args=given, daemon=True)
    process.start()
    try:
        assert ready.wait(60), "the tabs did not open"
        yield lambda: (hints.value, reads.value)
    finally:
        over.set()
        process.join(30)


def _play(
    url: str, tokens: Sequence[str], topics: Sequence[str], count: int, hints: Any, reads: Any, ready: Any, over: Any
) -> None:
    async def play() -> None:
        places = asyncio.Semaphore(TOGETHER)
        opened = [asyncio.Event() for _ in range(count)]
        tabs = []
        for number, event in enumerate(opened):
            tab = _Tab(url, tokens[number % len(tokens)], topics[number % len(topics)], hints, reads)
            tabs.append(asyncio.create_task(tab.live(places, event)))
        for event in opened:
            await event.wait()
        ready.set()
        await asyncio.to_thread(over.wait)
        for task in tabs:
            task.cancel()
        await asyncio.gather(*tabs, return_exceptions=True)

    asyncio.run(play())


@dataclass
class _Tab:
    url: str
    token: str
    topic: str
    hints: Any
    reads: Any
    mark: str = ""

    async def live(self, places: asyncio.Semaphore, opened: asyncio.Event) -> None:
        where = urlsplit(self.url)
        await places.acquire()
        self.reader, self.writer = await asyncio.open_connection(where.hostname, where.port)
        ticket = json.loads(await self._call("POST", "/api/x1/tickets", b'{"purpose":"live"}'))["ticket"]
        async with connect(f"ws{self.url[4:]}/api/x1/live", proxy=None) as socket:
            await socket.send(json.dumps({"ticket": ticket, "follow": [self.topic]}))
            places.release()
            opened.set()
            try:
                while True:
                    await self._hear(socket)
            finally:
                self.writer.close()

    async def _hear(self, socket: ClientConnection) -> None:
        message = json.loads(await socket.recv())
        if "topic" not in message:
            return
        assert "error" not in message, message
        self.hints.value += 1
        await self._call("GET", f"/api/x1/experiments/{self.topic.partition(':')[2]}/board")
        self.reads.value += 1

    async def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        mark = f"If-None-Match: {self.mark}\r\n" if self.mark else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\nAccept-Encoding: gzip\r\n"
            f"Content-Type: application/json\r\n{mark}Content-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        status = int(lines[0].split()[1])
        assert status in (200, 304), lines[0]
        self.mark = headers.get("etag", self.mark) if method == "GET" else self.mark
        return await self.reader.readexactly(int(headers.get("content-length", 0)) if status == 200 else 0)


@contextmanager
def _reporting(jobs: Sequence[Job]) -> Iterator[None]:
    """In the block each job reports each second."""
    over = threading.Event()

    def report() -> None:
        steps = 0
        while not over.is_set():
            steps += 1
            began = time.monotonic()
            for job in jobs:
                job.send([job.training(steps, loss=1.0)])
            over.wait(max(EVERY - (time.monotonic() - began), 0))

    thread = threading.Thread(target=report)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _memory(pid: int) -> float:
    """Resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} tells no memory")


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _processor(pid: int, seconds: float) -> float:
    """The share of one core that a process takes."""
    before, began = _ticks(pid), time.monotonic()
    time.sleep(seconds)
    return (_ticks(pid) - before) / _TICK / (time.monotonic() - began)


def _all_have_begun(played: Callable[[], tuple[int, int]], count: int) -> None:
    """Wait until as many answers have been read as there are tabs: each begins with a hint."""
    wait_for(lambda: played()[1] >= count, "the tabs to begin")


if __name__ == "__main__":
    run(Deadline(600))
