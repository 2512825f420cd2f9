"""Runs real master processes for tests: starts, kills and restarts them on the same folder and port."""

from __future__ import annotations

import base64
import contextlib
import os
import pwd
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from tests.support.database import PreparedData
from tests.support.forked import ForkedAdmin
from trainmaster.client.context import REGULAR
from trainmaster.client.errors import ClientError
from trainmaster.client.master import Master
from trainmaster.client.models import Experiment, QueuedJob, Trial
from trainmaster.client.tasks import Kind
from trainmaster.client.transport import Transport

T = TypeVar("T")
STOP_DEADLINE = 60.0  # seconds
# Outside what Linux gives to connections and to those that ask for any port: a master that a test ends finds its own
# port free when it is started again.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A free port of 127.0.0.1."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port among {PORTS}")


def wait_for(look: Callable[[], T | None], what: str, deadline: float = 60.0, every: float = 0.1) -> T:
    """Poll until `look` returns a true value, and return it; raises AssertionError with `what` after the deadline.
    `every`: seconds between two calls, after the first few."""
    until = time.monotonic() + deadline
    pause = min(0.01, every)
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"waited {deadline:.0f} s in vain for {what}"
        time.sleep(pause)
        pause = min(1.5 * pause, every)


ORPHANED_AFTER = 1200  # seconds; no test is as long


def _ending_its_jobs(config: str) -> str:
    """The configuration, so that jobs of this machine end soon after a master that a test did not stop."""
    if "orphaned_after" in config or config.lstrip().startswith("{"):  # JSON, of tests that start no jobs of their own
        return config
    key = f"orphaned_after: {ORPHANED_AFTER}"
    if "resource_manager:" not in config:
        return f"{config}\nresource_manager: {{type: local, {key}}}\n"
    text = re.sub(r"\{type: local\b", f"{{type: local, {key}", config)
    return re.sub(r"^( +)type: local$", rf"\1type: local\n\1{key}", text, flags=re.MULTILINE)


def image_digests(master: Master, number: int) -> list[str]:
    """Which content the images had that an experiment's best trial ran in, by the lineage of its best checkpoint."""
    name = f"of-{number}-{secrets.token_hex(4)}"
    master.registry.create_model(name)
    version = master.registry.register(name, master.experiment(number).best_checkpoint().uuid)["version"]
    origin = master.views.lineage(name, version).training
    assert origin is not None
    master.registry.delete_model(name)
    return [*origin.image_digests]


class MasterProcess:
    """`trainmaster serve` in a process of its own. `user`: run it as that account (needs root).

    With neither a user nor anything else that only a new program can have, it is forked from a process that has read
    its modules.
    """

    def __init__(
        self,
        folder: Path,
        config: str = "",
        *,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        certificate: Path | None = None,
    ) -> None:
        """`certificate`: the file to trust if the master's configuration has TLS."""
        self.folder, self.user, self.certificate = folder, user, certificate
        self.data = folder / "data"
        self.port = free_port()
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        self.password = f"{secrets.token_urlsafe(12)}aA1"  # as accounts' passwords must be
        self.log = folder / "master.log"
        self._python = python
        self._environment = dict(environment or {})
        # Another interpreter, account or module path needs a new program; coverage is measured from a program's start,
        # and benchmarks measure what users start.
        program = user or environment or python != sys.executable or "COVERAGE_FILE" in os.environ
        self._fork = not program and "PYTEST_VERSION" in os.environ
        self._process: subprocess.Popen[str] | ForkedAdmin | None = None
        self._transports: list[Transport] = []
        self._looked_at = 0  # bytes of the log
        self.config = folder / "master.yaml"
        self.config.write_text(_ending_its_jobs(config))
        if user:
            account = pwd.getpwnam(user)
            for path in (folder, self.config):
                os.chown(path, account.pw_uid, account.pw_gid)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> MasterProcess:
        arguments = ["serve", "--config", str(self.config), "--data", str(self.data), "--port", str(self.port)]
        base = {key: value for key, value in os.environ.items() if not key.startswith(("DET_", "SLURM_"))}
        given = {**self._environment, "TRAINMASTER_INITIAL_PASSWORD": self.password}
        if self._fork:
            if not self.data.exists():
                PREPARED.copy_to(self.data)
            self._process = ForkedAdmin(arguments, {**base, **given}, "/", self.log)
        else:
            self._process = self._new_program(arguments, base, given)
        assert self._process.stdout is not None
        with self._process.stdout as output:
            line = output.readline()
        assert line.strip() == f"listening on {self.url}", f"it said {line!r}; its log:\n{self.log.read_text()[-3000:]}"
        return self

    def _new_program(
        self, arguments: Sequence[str], base: Mapping[str, str], given: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        who: dict[str, Any] = {}
        if self.user:
            account = pwd.getpwnam(self.user)
            base = {key: value for key, value in base.items() if not key.startswith("COVERAGE")}
            base |= {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
            base.pop("XDG_RUNTIME_DIR", None)
            who = {
                "user": account.pw_uid,
                "group": account.pw_gid,
                "extra_groups": os.getgrouplist(account.pw_name, account.pw_gid),
            }
        command = [self._python, "-m", "trainmaster.cli.admin", *arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, env={**base, **given}, cwd="/", text=True, **who
            )

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise

    def client(self, user: str = "determined") -> Master:
        transport = Transport(self.url, certificate=str(self.certificate) if self.certificate else None)
        self._transports.append(transport)
        master = Master(transport)
        master.login(user, self.password)
        return master

    def det(
        self, *arguments: str, check: bool = True, timeout: float = 240, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `det` as a user would."""
        environment = {
            **os.environ,
            "DET_MASTER": self.url,
            "DET_USER": "determined",
            "DET_PASS": self.password,
            "DET_DEBUG_CONFIG_PATH": str(self.folder / "det"),
            **({"DET_MASTER_CERT_FILE": str(self.certificate)} if self.certificate else {}),
        }
        done = subprocess.run(
            [sys.executable, "-m", "trainmaster.cli.det", *arguments],
            env=environment, capture_output=True, text=True, timeout=timeout, check=False, **options,
        )  # fmt: skip
        if check:
            assert done.returncode == 0, f"det {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def clean_up(self) -> None:
        """Stop what it started: trials first, then the master."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ClientError):
                end_everything(self.client("admin"))
        for transport in self._transports:
            transport.close()
        self.stop()

    def errors(self) -> list[str]:
        """Lines of the master's log with errors, which are bugs."""
        return _errors_in(self.log.read_text())

    def new_errors(self) -> list[str]:
        """Errors since the last call."""
        if not self.log.exists() or self.log.stat().st_size == self._looked_at:
            return []
        with self.log.open("rb") as log:
            log.seek(self._looked_at)
            text = log.read()
        self._looked_at += len(text)
        return _errors_in(text.decode(errors="replace"))


def _errors_in(log: str) -> list[str]:
    return [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")]


PREPARED = PreparedData()  # tests/conftest.py removes it at the end
# Masters that serve several tests; tests/conftest.py checks their logs after each test.
SERVING: list[MasterProcess] = []


@contextlib.contextmanager
def serving(config: str) -> Iterator[MasterProcess]:
    """Run a master in its own folder inside the block. Errors in its log fail the test that runs at that time."""
    folder = make_folder()
    process = MasterProcess(folder, config)
    SERVING.append(process)
    try:
        yield process.start()
    finally:
        process.clean_up()
        SERVING.remove(process)
        errors = process.new_errors()
        remove_folder(folder)
    assert errors == [], "the master's log, while it was stopped"


def end_everything(master: Master, deadline: float = 60.0) -> None:
    live = [e.id for e in master.experiments(archived=None) if not e.ended_for_good]
    for experiment_id in live:
        with contextlib.suppress(ClientError):  # it has ended since
            master.kill(experiment_id)
    for job in tasks_of(master):
        with contextlib.suppress(ClientError):  # it has ended since, or with the one that started it
            end_task(master, job)
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        if all(master.experiment(i).ended_for_good for i in live) and not tasks_of(master):
            return
        time.sleep(0.1)


def tasks_of(master: Master) -> list[QueuedJob]:
    """Standalone tasks that wait or run; a service would run for ever."""
    return [job for job in master.jobs() if job.type != "EXPERIMENT"]


def end_task(master: Master, job: QueuedJob) -> None:
    kind = job.type.lower()
    if kind in get_args(Kind):
        master.tasks.kill(cast(Kind, kind), job.entity_id)
    else:
        master.tasks.end(job.entity_id)


def make_folder() -> Path:
    """A folder with a short path that other accounts can reach, for Unix sockets and a database of another user."""
    folder = Path(tempfile.mkdtemp(prefix="tm-e2e-", dir="/var/tmp"))
    folder.chmod(0o711)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder of `make_folder`, and the databases of the masters that had their data below it."""
    PREPARED.forget(folder)
    shutil.rmtree(folder, ignore_errors=True)


def files(**contents: str) -> list[dict[str, Any]]:
    """Files of an experiment; a name's double underscore is a dot: `train__py`."""
    entries = []
    for name, text in contents.items():
        path = name.replace("__", ".")
        content = base64.b64encode(text.encode()).decode()
        entries.append(
            {"path": path, "type": REGULAR, "content": content, "mtime": "0", "mode": 0o644, "uid": 0, "gid": 0}
        )
    return entries


def wait_ended(master: Master, experiment_id: int, deadline: float = 120.0) -> Experiment:
    """Wait for the end and return the experiment; the error message contains the logs."""
    try:
        return wait_for(
            lambda: e if (e := master.experiment(experiment_id)).ended_for_good else None,
            f"the end of experiment {experiment_id}",
            deadline,
        )
    except AssertionError as error:
        raise AssertionError(f"{error}\n{_trials_and_logs(master, experiment_id)}") from None


def ended_as(master: Master, experiment_id: int, state: str, deadline: float = 120.0) -> None:
    """Wait for the end and check the final state; the error message contains the logs."""
    found = wait_ended(master, experiment_id, deadline)
    if found.state != state:
        told = _trials_and_logs(master, experiment_id)
        raise AssertionError(f"experiment {experiment_id} ended as {found.state} ({found.reason}), not {state}\n{told}")


def _trials_and_logs(master: Master, experiment_id: int) -> str:
    """The first trials' states, reasons and logs."""
    trials = master.trials(experiment_id)
    return "\n".join(f"-- trial {t.id} {t.state}: {t.reason}\n{log_text(master, t.id)}" for t in trials[:3])


def only_trial(master: Master, experiment_id: int) -> Trial:
    trials = master.trials(experiment_id)
    assert len(trials) == 1
    return trials[0]


def log_text(master: Master, trial_id: int) -> str:
    return "\n".join(line.log for line in master.logs(trial_id))


def validations(master: Master, trial_ids: Sequence[int]) -> dict[int, list[int]]:
    """Steps of each trial's validation reports, in order."""
    found: dict[int, list[int]] = {}
    for trial_id in trial_ids:
        loads = [load["validation"] for load in master.workloads(trial_id) if "validation" in load]
        found[trial_id] = [load["totalBatches"] for load in loads]
    return found
