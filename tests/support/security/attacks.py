"""Load attacks of one user on the master: all kinds at once, repeated until stopped."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from tests.support import trainings
from tests.support.api.http import Api
from tests.support.api.jobs import config
from tests.support.master import files

LADDER = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 7))
WIDE = json.dumps(
    {"filterGroup": {"kind": "group", "children": [{"kind": "field", "columnName": "id", "value": 1}] * 20_000}}
)
FLOODING = """
import os, signal
pid = os.getppid()
while True:
    words = open(f"/proc/{pid}/cmdline").read().split(chr(0))
    found = [word for word in words if word.endswith("runtime.zip")]
    if found:
        break
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
folder = found[0].rpartition("/")[0]
for stream in ("evil", "core", "log-0"):
    with open(f"{folder}/spool/{stream}.jsonl", "ab") as file:
        file.write(b"\\n" * 2**21)
os.kill(pid, signal.SIGKILL)
"""
BACKWARDS = r"^(a+)(a+)(a+)(a+)\4\3\2\1\1b$"
SLOW = "(a|b|ab)*c{1,200}.*(x|xx|xxx)+y$"


class Attackers:
    """One user's, each in threads, against one master."""

    def __init__(self, url: str, token: str) -> None:
        self._api = Api(url, token)
        self._open: list[socket.socket] = []
        trial = self._unmanaged()
        logs, report = f"/api/v1/trials/{trial}/logs", f"/api/v1/trials/{trial}/metrics"
        create, preview, find = "/api/v1/experiments", "/api/v1/preview-hp-search", "/api/v1/experiments-search"
        deep: Any = 1
        for _ in range(900):
            deep = {"a": deep}
        at_once = {"name": "random", "metric": "m", "max_trials": 30_000, "max_concurrent_trials": 0}
        self.attacks: dict[str, Callable[[], int]] = {
            "merge keys": self._posting(create, _experiment(LADDER)),
            "many lines": self._posting(create, _experiment("a:\n" + "- a\n" * 240_000)),
            "large text": self._posting(create, _experiment("a:\n" + "- a\n" * 2_000_000)),
            "a grid": self._posting(preview, _search({"name": "grid", "metric": "m"}, count=10**8)),
            "a search": self._posting(preview, _search({"name": "random", "metric": "m", "max_trials": 2**53})),
            "trials at once": self._posting(create, _experiment(config(searcher=at_once))),
            "a wide filter": self._posting(find, {"filter": WIDE}),
            "a long path": self._posting(find, {"sort": f"hp.{'.'.join('a' * 5000)}=asc"}),
            "brackets": self._posting(create, b"[" + b"[]," * 2_000_000 + b"1]"),
            "metric names": self._posting(report, _report({f"m{n}": n for n in range(100_000)})),
            "deep metrics": self._posting(report, _report({"m": deep})),
            "back references": lambda: self._api.get(logs, searchText=BACKWARDS, enableRegex=True).status,
            "slow patterns": lambda: self._api.get(logs, searchText=SLOW, enableRegex=True).status,
            "half requests": self._half_requests,
        }
        self.answers: dict[str, Counter[int]] = {name: Counter() for name in self.attacks}

    def start(self) -> None:
        """From now on, until the process ends: what is under way by then is not waited for."""
        order = _experiment(trainings.experiment(keys={"max_restarts": 5})) | {"activate": True}
        made = self._api.post("/api/v1/experiments", order | {"modelDefinition": files(train__py=FLOODING)})
        assert made.status == 200, made.content
        for name, attack in self.attacks.items():
            for _ in range(2):
                threading.Thread(target=self._go_on, args=(name, attack), daemon=True).start()

    def _go_on(self, name: str, attack: Callable[[], int]) -> None:
        while True:
            try:
                status = attack()
            except (OSError, HTTPException):  # the master closed the connection
                status = 0
            self.answers[name][status] += 1

    def _posting(self, path: str, body: Any) -> Callable[[], int]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()  # once: an attacker is in no hurry either
        return lambda: self._api.call("POST", path, raw=raw).status

    def _half_requests(self) -> int:
        """So many at a time that they would be all descriptors of an ordinary limit."""
        address = urlsplit(self._api.url)
        for _ in range(50):
            with contextlib.suppress(OSError):
                client = socket.create_connection((address.hostname or "", address.port or 0), 10)
                client.sendall(b"POST /api/v1/experiments HTTP/1.1\r\nHost: x\r\n")
                self._open.append(client)
        while len(self._open) > 600:
            self._open.pop(0).close()
        time.sleep(0.5)  # no faster than this
        return 0

    def _unmanaged(self) -> int:
        """A trial that the user reports for himself, with lines in its log that are slow to search."""
        made = self._api.post("/api/v1/experiments", {"config": config(), "unmanaged": True})
        experiment = int(made.json["experiment"]["id"])
        trial = self._api.post("/api/v1/trials", {"experimentId": experiment, "unmanaged": True}).json["trial"]
        lines = [{"log": ("ab" * 300 + "c") * 100, "taskId": trial["taskId"]} for _ in range(20)]
        assert self._api.post("/api/v1/task/logs", {"logs": lines}).status == 200
        return int(trial["id"])


def _experiment(text: str) -> dict[str, Any]:
    return {"config": text, "activate": False}


def _search(searcher: Any, **axis: Any) -> dict[str, Any]:
    space = {"x": {"type": "double", "minval": 0, "maxval": 1, **axis}}
    return {"config": json.loads(config(searcher=searcher, hyperparameters=space))}


def _report(measured: Any) -> dict[str, Any]:
    return {"group": "training", "metrics": {"metrics": {"avgMetrics": measured}, "stepsCompleted": 1}}


@contextlib.contextmanager
def attacking(url: str, token: str) -> Iterator[dict[str, dict[str, int]]]:
    """Attackers in a process of their own, so that whoever measures has his own interpreter. Behind the block, what is
    given says how often each kind had which answer."""
    command = [sys.executable, "-m", "tests.support.security.attacks", url, token]
    found: dict[str, dict[str, int]] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "they have begun\n"
            yield found
        finally:
            said, _ = process.communicate("\n", timeout=120)
            found.update(json.loads(said))


def main() -> None:
    os.nice(10)  # on a site they have machines of their own
    attackers = Attackers(sys.argv[1], sys.argv[2])
    attackers.start()
    print("they have begun", flush=True)
    sys.stdin.readline()
    print(json.dumps(attackers.answers))


if __name__ == "__main__":
    main()
