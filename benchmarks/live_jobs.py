"""Measures what live jobs cost the master: each waits in a long poll for preemption and reports every 30 seconds.

One process plays all jobs. It leases their allocations, which wait in the `local` queue behind a job that holds its
only slot, and speaks HTTP as their runtimes do: two kept connections each (where the system allows too few open files,
one, and a new one for each report). Processor time is that of the master and of
its PostgreSQL together, from `/proc`.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import random
import resource
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import post
from benchmarks.measure import Deadline, Sample, Unavailable, figure, say
from tests.support.api.http import Api
from tests.support.api.jobs import config, create
from tests.support.master import MasterProcess, make_folder, remove_folder, wait_for
from trainmaster.client.session_calls import hashed

REPORT_EVERY = 30.0  # seconds, of each job
LONG_POLL = 300  # seconds
SETTLE = 35.0  # seconds before the measurement, and until each job has reported: newcomers are asked to take turns
SECONDS = 40.0  # of the measurement
ME_EVERY = 0.2  # seconds between two small requests of a user
PATIENCE = 120.0  # seconds for all jobs to hear of a pause
SPARE_DESCRIPTORS = 2000
TAILS = (0.5, 0.99)
_END = b"\r\n\r\n"
_TICK = os.sysconf("SC_CLK_TCK")
_REPORT = (
    '{"stream":"core","first":%d,"node_rank":0,"records":[{"t":%.3f,"kind":"metrics","group":"training",'
    '"steps_completed":%d,"metrics":{"loss":0.5,"accuracy":0.9}}]}'
)


COUNTS = (300, 2_000, 10_000)
SUBMITS = 30  # jobs a second, at least


def run(deadline: Deadline, counts: Sequence[int] = COUNTS) -> None:
    """Measure with as many live jobs each, as far as the time allows. Raises Unavailable."""
    for count in counts:
        if deadline.left < 2 * SETTLE + SECONDS + count / SUBMITS:
            say("fleet", f"{count:,} live jobs", "left out: out of time")
            continue
        _measure(count)


def _measure(count: int) -> None:
    kept = _descriptors(2 * count)
    if not _descriptors(count):
        raise Unavailable(f"{count} jobs need more file descriptors than are allowed (ulimit -Hn)")
    folder = make_folder()
    # They all come from one address.
    limits = f"limits: {{anonymous_connections: {3 * count + 512}, connection_rate: {3 * count + 512}}}\n"
    master = MasterProcess(folder, limits + "resource_manager: {type: local, slots: 1}\n").start()
    try:
        began = time.monotonic()
        user, experiment = _submitted(master, count)
        jobs = list(_leased(master))
        say("fleet", f"{count:,} jobs", f"submitted and leased in {time.monotonic() - began:.0f} s")
        with Player(master.port, jobs, user.token, kept=kept) as player:
            player.play(SETTLE)
            player.play(PATIENCE, player.all_have_reported)
            player.play(SETTLE)
            player.forget()
            before, begin = _processor_seconds(master.pid), time.monotonic()
            player.play(SECONDS)
            took = time.monotonic() - begin
            cores = {name: (now - before[name]) / took for name, now in _processor_seconds(master.pid).items()}
            memory = {name: mib for name, mib in _memory(master.pid).items()}
            say(
                "fleet",
                f"{count:,} live jobs",
                f"{figure(100 * sum(cores.values()))} % of a core "
                f"(master {figure(100 * cores['master'])}, PostgreSQL {figure(100 * cores['postgres'])})",
                f"GET /me {Sample(player.me, tails=TAILS)}",
                f"reports {Sample(player.reports, tails=TAILS)}",
                f"master {memory['master']:.0f} MiB, PostgreSQL {memory['postgres']:.0f} MiB",
                *([] if kept else ["a new connection for each report"]),
                *([f"{player.put_off} reports put off"] if player.put_off else []),
            )
            answered, heard = player.pause(user, experiment)
            say(
                "fleet",
                f"pause of {count:,} jobs",
                f"answered after {figure(answered)} s",
                f"heard by the last after {figure(heard)} s",
                f"GET /me meanwhile {Sample(player.me, tails=TAILS)}",
            )
    finally:
        master.stop()  # its jobs are played: nothing else is to be ended
        remove_folder(folder)


def _descriptors(connections: int) -> bool:
    """Whether this process and the master may each open so many connections; raises the limit as far as it may go."""
    needed = (connections + SPARE_DESCRIPTORS) * 5 // 4  # the master keeps a fifth for the database, files and jobs
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= needed


def _submitted(master: MasterProcess, count: int) -> tuple[Api, int]:
    """A logged-in user, and an experiment of so many trials whose jobs all wait in the queue."""
    body = {"username": "determined", "password": hashed(master.password), "isHashed": True}
    user = Api(master.url, Api(master.url).post("/api/v1/auth/login", body).json["token"])
    holder = create(user, config())
    path = f"/api/v1/experiments/{holder}"
    wait_for(lambda: user.get(path).json["experiment"]["state"] == "STATE_RUNNING", "the slot to be taken")
    searcher = {"name": "random", "metric": "loss", "max_trials": count, "max_concurrent_trials": count}
    space = {"x": {"type": "double", "minval": 0, "maxval": 1}}
    experiment = create(user, config(searcher=searcher, hyperparameters=space))
    wait_for(lambda: len(_folders(master)) > count, "all jobs to be submitted", deadline=3600, every=1.0)
    return user, experiment


def _folders(master: MasterProcess) -> list[Path]:
    return [path.parent.parent for path in (master.data / "jobs").glob("*/*/.local/submitted")]


@dataclass
class PlayedJob:
    """One job: its address in the API and its token, and how many reports it has sent."""

    allocation_id: str
    token: str
    sent: int = 0
    heard: float | None = None  # when it was asked to leave
    poll: _Connection | None = field(default=None, repr=False)
    report: _Connection | None = field(default=None, repr=False)


def _leased(master: MasterProcess) -> Iterator[PlayedJob]:
    for folder in _folders(master):
        facts = json.loads((folder / "job.json").read_text())
        job = PlayedJob(facts["allocation_id"], (folder / "secrets" / "token").read_text().strip())
        body = {"job_id": "played-1", "node_rank": 0, "num_nodes": 1, "node_name": "node-a", "slot_ids": [0]}
        body["fetches_context"] = True  # type: ignore[assignment]
        answer = Api(master.url, job.token).post(f"/api/x1/allocations/{job.allocation_id}/lease", body)
        if answer.status == 200:
            yield job


class Player:
    """Plays all jobs in one thread."""

    def __init__(self, port: int, jobs: Sequence[PlayedJob], user_token: str, *, kept: bool) -> None:
        self._port, self._jobs, self._kept = port, jobs, kept
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.me: list[float] = []
        self.reports: list[float] = []
        self.put_off = 0  # reports that were asked to come again later
        self._user_token = user_token
        self._user: _Connection | None = None

    def __enter__(self) -> Player:
        started = time.monotonic()
        for number, job in enumerate(self._jobs):
            # As jobs come: spread over the interval.
            share = number / len(self._jobs)
            self._at(started + share * SETTLE * 0.8, lambda job=job: self._poll(job))  # type: ignore[misc]
            self._at(started + random.random() * REPORT_EVERY, lambda job=job: self._report(job))  # type: ignore[misc]
        self._at(started, self._me)
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()

    def all_have_reported(self) -> bool:
        """Whether each job has had the answer to a report, and sent the next one."""
        return all(job.sent > 1 for job in self._jobs)

    def forget(self) -> None:
        """Drop what was measured."""
        self.me, self.reports, self.put_off = [], [], 0

    def play(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Play for so long, or until that is true."""
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end and not until():
            while self._due and self._due[0][0] <= now:
                heapq.heappop(self._due)[2]()
            wait = min(self._due[0][0] if self._due else end, end) - time.monotonic()
            for key, _ in self._selector.select(max(wait, 0)):
                key.data.go_on()

    def pause(self, user: Api, experiment: int) -> tuple[float, float]:
        """Pause the experiment; seconds until that was answered, and until the last job had heard of it."""
        self.forget()
        asked = time.monotonic()
        answered: list[float] = []
        connection = _Connection(self._port, self._selector)
        head = {"Authorization": f"Bearer {user.token}"}
        request = post(f"/api/v1/experiments/{experiment}/pause", head, b"{}")
        connection.ask(request, lambda _, took: answered.append(took))
        self.play(PATIENCE, lambda: bool(answered and self.me) and all(job.heard is not None for job in self._jobs))
        missing = sum(job.heard is None for job in self._jobs)
        if missing or not answered:
            say("fleet", "pause", f"{missing} jobs heard nothing of it within {PATIENCE:.0f} s")
        last = max((job.heard for job in self._jobs if job.heard is not None), default=asked)
        return answered[0] if answered else PATIENCE, last - asked

    def _at(self, when: float, what: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (when, self._order, what))

    def _poll(self, job: PlayedJob) -> None:
        if job.poll is None:
            job.poll = _Connection(self._port, self._selector)
            path = f"/api/v1/allocations/{job.allocation_id}/signals/preemption?timeout_seconds={LONG_POLL}"
            job.poll.request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {job.token}".encode()

        def hear(body: bytes, _: float) -> None:
            if json.loads(body)["preempt"]:
                job.heard = time.monotonic()
            else:
                self._poll(job)

        job.poll.ask(job.poll.request + _END, hear)

    def _report(self, job: PlayedJob) -> None:
        if job.heard is not None:
            return
        job.report = job.report or _Connection(self._port, self._selector)
        job.sent += 1
        body = _REPORT % (job.sent, time.time(), job.sent)
        head = {"Authorization": f"Bearer {job.token}"}
        request = post(f"/api/x1/allocations/{job.allocation_id}/reports", head, body.encode())

        def leave() -> None:
            if not self._kept and job.report is not None:
                job.report.close()
                job.report = None

        def hear(body: bytes, took: float) -> None:
            assert json.loads(body)["acked"] == job.sent
            self.reports.append(took * 1000)
            leave()
            self._at(time.monotonic() + REPORT_EVERY - took, lambda: self._report(job))

        def put_off(seconds: float) -> None:
            self.put_off += 1
            job.sent -= 1
            leave()
            self._at(time.monotonic() + seconds * (1 + random.random() / 4), lambda: self._report(job))

        job.report.ask(request, hear, put_off)

    def _me(self) -> None:
        self._user = self._user or _Connection(self._port, self._selector)

        def hear(_: bytes, took: float) -> None:
            self.me.append(took * 1000)
            self._at(time.monotonic() + ME_EVERY, self._me)

        head = f"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._user_token}"
        self._user.ask(head.encode() + _END, hear)


class _Connection:
    """A kept HTTP connection with one request at a time."""

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setblocking(False)
        self._heard = bytearray()
        self._hear: Callable[[bytes, float], None] | None = None
        self._put_off: Callable[[float], None] | None = None
        self._asked = 0.0
        self.request = b""
        selector.register(self._socket, selectors.EVENT_READ, self)

    def ask(
        self, request: bytes, hear: Callable[[bytes, float], None], put_off: Callable[[float], None] | None = None
    ) -> None:
        """`put_off` gets the seconds after which the master asks to come again."""
        self._hear, self._put_off, self._asked = hear, put_off, time.monotonic()
        self._socket.send(request)  # small: it fits into the socket's buffer

    def go_on(self) -> None:
        block = self._socket.recv(1 << 16)
        if not block:
            raise Unavailable(f"the master closed a connection after {bytes(self._heard[:300])!r}")
        self._heard += block
        end = self._heard.find(_END)
        if end < 0:
            return
        head = bytes(self._heard[:end]).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(self._heard) < end + 4 + length:
            return
        body = bytes(self._heard[end + 4 : end + 4 + length])
        del self._heard[: end + 4 + length]
        _, later, seconds = head.partition(b"retry-after:")
        if later and self._put_off is not None:
            self._put_off(float(seconds.split(b"\r\n")[0]))
            return
        if not head.startswith(b"http/1.1 200"):
            raise Unavailable(f"the master answered {head.splitlines()[0]!r}: {body[:300]!r}")
        hear = self._hear
        assert hear is not None
        hear(body, time.monotonic() - self._asked)

    def close(self) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._socket)
        self._socket.close()


def _processes(master: int) -> dict[int, str]:
    """The master's process and those of its PostgreSQL, by pid."""
    parents, names = {}, {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (path / "stat").read_text().partition(") ")
            parents[int(path.name)] = int(rest.split()[1])
            names[int(path.name)] = name.partition("(")[2]
    found = {master: "master"}
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        found |= {pid: "postgres" if names[pid] == "postgres" else "other" for pid in new}
        grown = bool(new)
    return found


def _processor_seconds(master: int) -> dict[str, float]:
    """Of the master and of PostgreSQL, since their starts; its processes that have ended count by their parent."""
    found = {"master": 0.0, "postgres": 0.0, "other": 0.0}
    for pid, name in _processes(master).items():
        with contextlib.suppress(OSError):
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            found[name] += sum(map(int, parts[11:13])) / _TICK
            if name == "postgres":
                found[name] += sum(map(int, parts[13:15])) / _TICK
    found.pop("other")
    return found


def _memory(master: int) -> dict[str, float]:
    """MiB, by proportional set sizes: PostgreSQL's processes share most of theirs."""
    found = {"master": 0.0, "postgres": 0.0, "other": 0.0}
    for pid, name in _processes(master).items():
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    found[name] += int(line.split()[1]) / 1024
    return found
