"""Agents and their master while everything takes its own time: jobs come, end, are cancelled and forgotten, calls and
answers get lost, masters take over.

The agents, the dispatcher and the folders are the real ones. The engine is one in memory and the wire a call, so that
hundreds of orders cross each other within seconds; each call waits a little at random, before and after it.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pwd
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.master import wait_for
from trainmaster.agent.agent import Agent, AgentIdentity
from trainmaster.agent.folders import Folders
from trainmaster.agent.master_link import MasterUnavailable, NotGiven
from trainmaster.agent.plan import ListedContainer
from trainmaster.agent_protocol.messages import AgentReport, Orders, SlotFact
from trainmaster.dispatchers.base import (
    ContainerSpec,
    DispatcherError,
    JobRef,
    JobSpec,
    Rejected,
    Setup,
    SlotType,
    StagedFile,
)
from trainmaster.dispatchers.contract.agents import UnknownAgent
from trainmaster.dispatchers.docker import DockerDispatcher

JOBS = 150
AT_ONCE = 6
PATIENCE = 180.0  # seconds, for all jobs together; they take four where nothing else runs
DELAY = 0.01  # seconds that a call takes at most, before it has an effect and again after it
LOST = 0.02  # share of the calls to the master that do not arrive, and of the answers
TAKEOVERS = 0.03  # share of the controller's passes before which another master takes over


def dawdle() -> None:
    time.sleep(random.random() ** 3 * DELAY)


@contextlib.contextmanager
def wire() -> Iterator[None]:
    """Between an agent and its master."""
    dawdle()
    if random.random() < LOST:
        raise MasterUnavailable("the call got lost")
    try:
        yield
    except (Rejected, UnknownAgent) as error:
        raise NotGiven(str(error)) from None
    except DispatcherError as error:
        raise MasterUnavailable(str(error)) from None
    if random.random() < LOST:
        raise MasterUnavailable("the answer got lost")
    dawdle()


class MemoryEngine:
    """Containers that end by themselves after a moment, or at the first signal. It keeps count of starts."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._seen: dict[str, ListedContainer] = {}
        self._ends: dict[str, float] = {}
        self._news = False

    def containers(self) -> list[ListedContainer]:
        dawdle()
        with self._lock:
            found = list(self._seen.values())
        dawdle()
        return found

    def has_image(self, image: str) -> bool:
        dawdle()
        return True

    def image_digest(self, image: str) -> str:
        dawdle()
        return "sha256:0a1b"

    def labels(self, token: str, job_id: str, rank: int, nodes: int, slots: tuple[int, ...]) -> dict[str, Any]:
        return {"token": token, "job_id": job_id, "node_rank": rank, "num_nodes": nodes, "slot_ids": slots}

    def create(self, body: Mapping[str, Any], name: str) -> str:
        dawdle()
        with self._lock:
            self._seen.setdefault(name, ListedContainer(id=name, status="created", exit_code=None, **body["Labels"]))
        dawdle()
        return name

    def start(self, container: str) -> None:
        dawdle()
        with self._lock:
            seen = self._seen[container]
            self._history.started(seen.token, seen.node_rank)
            self._seen[container] = replace(seen, status="running", started_at=time.time())
            self._ends[container] = time.monotonic() + random.random() * 0.1
        dawdle()

    def signal(self, container: str, name: str) -> None:
        dawdle()
        with self._lock:
            if container in self._ends and name != "SIGUSR2":
                self._end(container, 143)

    def output(self, container: str) -> bytes:
        dawdle()
        return b"hello"

    def remove(self, container: str) -> None:
        dawdle()
        with self._lock:
            self._seen.pop(container, None)
            self._ends.pop(container, None)
        dawdle()

    def watch(self, changed: Callable[[], None], stopped: threading.Event) -> None:
        while not stopped.wait(DELAY):
            with self._lock:
                for name in [name for name, at in self._ends.items() if time.monotonic() >= at]:
                    self._end(name, 0)
                news, self._news = self._news, False
            if news:
                changed()

    def _end(self, container: str, code: int) -> None:
        del self._ends[container]
        self._news = True
        seen = self._seen[container]
        self._seen[container] = replace(seen, status="exited", exit_code=code, finished_at=time.time())


class DirectLink:
    """The calls of one agent, without a wire."""

    url = "http://127.0.0.1:1"
    secret = "is not asked for"

    def __init__(self, dispatcher: DockerDispatcher, agent_id: str, inbox: Path) -> None:
        self._dispatcher, self._id, self._inbox = dispatcher, agent_id, inbox
        self._stopped = threading.Event()

    def sync(self, report: AgentReport) -> Orders:
        with wire():
            return self._dispatcher.sync(self._id, report)

    def wait(self, known: str) -> Orders:
        news = threading.Event()
        cancel = self._dispatcher.subscribe(self._id, news.set)
        try:
            with wire():
                while (orders := self._dispatcher.orders(self._id)).revision == known and not self._stopped.is_set():
                    news.wait(0.2)
                    news.clear()
                return orders
        finally:
            cancel()

    def stop_waiting(self) -> None:
        self._stopped.set()

    @contextlib.contextmanager
    def files(self, token: str, without: Sequence[str] = ()) -> Iterator[IO[bytes]]:
        with wire():
            content = b"".join(self._dispatcher.job_files(self._id, token, without))
        yield io.BytesIO(content)

    def hand_in(self, token: str, node_rank: int, pieces: Iterable[bytes]) -> None:
        archive = self._inbox / f"{self._id}-{secrets.token_hex(4)}"
        archive.write_bytes(b"".join(pieces))
        try:
            with wire():
                self._dispatcher.take_remains(self._id, token, node_rank, archive)
        finally:
            archive.unlink()


class History:
    """What must never happen, noted where it does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: set[tuple[str, int]] = set()
        self._over: set[str] = set()
        self.wrong: list[str] = []

    def started(self, token: str, rank: int) -> None:
        with self._lock:
            if token in self._over:
                self.wrong.append(f"{token} was started after its end")
            if (token, rank) in self._starts:
                self.wrong.append(f"{token} was started twice")
            self._starts.add((token, rank))

    def over(self, token: str) -> None:
        with self._lock:
            self._over.add(token)


def test_no_job_starts_twice_or_leaves_anything_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trainmaster.agent.agent.RETRY", 0.05)
    monkeypatch.setattr("trainmaster.agent.agent.PAUSES", (0.01,))
    options = {"cancel_grace": 0.1, "poll_interval": 0.1}
    dispatcher = DockerDispatcher(Setup(name="hosts", prefix="s-", job_root=tmp_path / "master", options=options))
    dispatcher.lead()
    history = History()
    me = pwd.getpwuid(os.geteuid()).pw_name
    engines = [MemoryEngine(history), MemoryEngine(history)]
    agents, threads, folders = [], [], []
    (tmp_path / "inbox").mkdir()
    for name, engine in zip(("h1", "h2"), engines, strict=True):
        slots = [SlotFact(id=number, type=SlotType.CPU, name="cpu") for number in range(2)]  # type: ignore[call-arg]
        data = Folders(tmp_path / name)
        agent = Agent(
            AgentIdentity(name, name, "", slots, ("127.0.0.1",), me),
            DirectLink(dispatcher, name, tmp_path / "inbox"),  # type: ignore[arg-type]
            engine,  # type: ignore[arg-type]
            data,
        )
        agents.append(agent)
        folders.append(data)
        threads.append(threading.Thread(target=agent.run, name=name))
    try:
        for thread in threads:
            thread.start()
        wait_for(lambda: sum(view.up for view in dispatcher.agents()) == 2, "both agents", PATIENCE)
        _drive(dispatcher, history)
        left = "the removal of what the jobs left on their hosts"
        wait_for(lambda: not any(data.known() for data in folders), left, PATIENCE)
    finally:
        for agent in agents:
            agent.stop()
        for thread in threads:
            thread.join(PATIENCE)
        dispatcher.close()
    assert history.wrong == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert [engine.containers() for engine in engines] == [[], []]


def _drive(dispatcher: DockerDispatcher, history: History) -> None:
    """As a controller does, which is in a hurry: what has ended is forgotten at once."""
    left, live = JOBS, set[Any]()
    deadline = time.monotonic() + PATIENCE
    while left or live:
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain for the end of {live}"
        if random.random() < TAKEOVERS:
            dispatcher.follow()
            dispatcher.lead()
        while left and len(live) < AT_ONCE:
            spec = JobSpec(
                token=f"s-{secrets.token_hex(6)}",
                allocation_id="1.1.1",
                pool="default",
                slots=random.choice((0, 1, 1, 2, 4)),
                slot_type=SlotType.CPU,
                container=ContainerSpec("docker", "image"),
                files={"job.py": StagedFile(b"pass")},
            )
            dispatcher.submit(spec)
            live.add(spec.token)
            left -= 1
        if random.random() < 0.5:
            dispatcher.cancel([JobRef(random.choice(sorted(live)), "")])
        for job in dispatcher.observe().jobs:
            if job.state.terminal and job.token in live:
                history.over(job.token)
                dispatcher.forget(job.token)
                live.discard(job.token)
        time.sleep(random.random() * DELAY)
