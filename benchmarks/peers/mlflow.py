"""Runs MLflow's tracking server as in its documentation, with a PostgreSQL like ours, in its own environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from benchmarks.load import Refused, post
from benchmarks.measure import Unavailable
from benchmarks.searched import SearchedTrial
from tests.support.api.http import Api
from tests.support.master import free_port, make_folder, remove_folder, wait_for
from tests.support.reference import reference
from trainmaster.master.db.embedded import EmbeddedServer

VERSION = "3.17.2"
REQUIREMENTS = (f"mlflow=={VERSION}", "psycopg2-binary")
START = 120.0  # seconds; it makes its tables first
STOP = 30.0
# Connections of each of its four workers to the database. `log_batch` holds one while it asks for another: with the
# fifteen at most that MLflow allows unasked, requests of 32 clients can wait for each other until they are given up.
_POOL = {"MLFLOW_SQLALCHEMYSTORE_POOL_SIZE": "28", "MLFLOW_SQLALCHEMYSTORE_MAX_OVERFLOW": "0"}
_API = "/api/2.0/mlflow"
_BEGUN = 1_700_000_000_000  # ms since 1970


@dataclass(frozen=True)
class Server:
    port: int

    def new_runs(self, count: int) -> list[str]:
        """The names of that many new runs of one experiment."""
        api = Api(f"http://127.0.0.1:{self.port}")
        experiment = api.post(f"{_API}/experiments/create", {"name": "ingest"}).json["experiment_id"]
        runs = (api.post(f"{_API}/runs/create", {"experiment_id": experiment}) for _ in range(count))
        return [run.json["run"]["info"]["run_id"] for run in runs]

    def fill(self, trials: Sequence[SearchedTrial]) -> str:
        """Make a run of each trial, and return the address of the page that lists them."""
        api = Api(f"http://127.0.0.1:{self.port}")
        experiment = api.post(f"{_API}/experiments/create", {"name": "search"}).json["experiment_id"]

        def log(one: tuple[int, SearchedTrial]) -> None:
            number, trial = one
            mine = Api(f"http://127.0.0.1:{self.port}")
            begun = {"experiment_id": experiment, "run_name": f"trial {number}", "start_time": _BEGUN}
            run = mine.post(f"{_API}/runs/create", begun).json["run"]["info"]["run_id"]
            points = [
                {"key": "val_loss", "value": value, "timestamp": _BEGUN + step, "step": step}
                for step, value in enumerate(trial.values)
            ]
            params = [{"key": key, "value": str(value)} for key, value in trial.hparams.items()]
            mine.post(f"{_API}/runs/log-batch", {"run_id": run, "metrics": points, "params": params})
            mine.post(f"{_API}/runs/update", {"run_id": run, "status": "FINISHED", "end_time": _BEGUN + 1000})

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(log, enumerate(trials, 1)))
        return f"http://127.0.0.1:{self.port}/#/experiments/{experiment}/runs"


@dataclass
class Logger:
    """A client that logs the same metrics at one step after the other of its run, `steps` of them a request."""

    run: str
    metrics: Mapping[str, float]
    steps: int = 1
    done: int = 0

    def ask(self) -> bytes:
        step = range(self.done, self.done + self.steps)
        points = [
            {"key": key, "value": value, "timestamp": 1_700_000_000_000 + n, "step": n}
            for n in step
            for key, value in self.metrics.items()
        ]
        self.done += self.steps
        body = json.dumps({"run_id": self.run, "metrics": points}, separators=(",", ":"))
        return post(f"{_API}/runs/log-batch", {}, body.encode())

    def hear(self, answer: Any) -> None:
        if answer != {}:
            raise Refused(f"the answer is {answer}")


@contextmanager
def serving() -> Iterator[Server]:
    """Raises Unavailable where MLflow cannot be installed or does not start."""
    try:
        environment = reference.installed(f"mlflow-{VERSION}", REQUIREMENTS)
    except reference.NoReference as reason:
        raise Unavailable(f"MLflow {VERSION} is not here: {reason}") from None
    folder = make_folder()
    database = EmbeddedServer(folder)
    try:
        command = [str(environment / "bin" / "mlflow"), "server", "--backend-store-uri", database.start()]
        command += ["--artifacts-destination", str(folder / "artifacts")]
        with _running(command, folder) as port:
            yield Server(port)
    finally:
        database.stop()
        remove_folder(folder)


@contextmanager
def _running(command: Sequence[str], folder: Path) -> Iterator[int]:
    """The port at which the server that `command` starts answers."""
    port = free_port()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MLFLOW"))}
    log = folder / "mlflow.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            stdout=output,
            stderr=output,
            env={**kept, **_POOL},
            cwd=folder,
            start_new_session=True,  # its workers go with it
        )
    try:
        try:
            wait_for(lambda: process.poll() is not None or _answers(port), "MLflow to answer", START)
        except AssertionError as late:
            raise Unavailable(str(late)) from None
        if process.poll() is not None:
            last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
            raise Unavailable(f"MLflow {VERSION} does not start: {last}")
        yield port
    finally:
        _stop(process)


def _answers(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
