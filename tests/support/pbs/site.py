"""Finds this machine's PBS, as an ordinary user; makes no assumptions on its paths, queues or hosts.

The environment may override what it finds:

    TRAINMASTER_PBS_BIN     folder of PBS's commands
    TRAINMASTER_PBS_CONF    PBS_CONF_FILE for the commands and the jobs
    TRAINMASTER_PBS_QUEUE   queue for the jobs; default: the server's
    TRAINMASTER_PBS_USER    account for the jobs when the tests run as root; default: tmalice, who is made if need be
    TRAINMASTER_PBS_JOBS    folder for job folders that all hosts see; default: one in the user's home
    TRAINMASTER_PBS_PYTHON  Python 3.8 or later on the hosts; default: python3
"""

from __future__ import annotations

import getpass
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users, run_as
from tests.support.pbs.openpbs import CONF
from trainmaster.dispatchers.base import DispatcherError, Pool, Setup
from trainmaster.dispatchers.pbs import PbsDispatcher
from trainmaster.dispatchers.pbs.options import PbsOptions

FOUND = "TRAINMASTER_PBS_"


@dataclass(frozen=True)
class PbsSite:
    """One PBS and one account that may use it."""

    bin: Path
    environment: dict[str, str]
    user: str
    jobs: Path  # job folders of tests go below it
    options: dict[str, Any] = field(default_factory=dict)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """One of PBS's commands as the user; never raises for its status."""
        words = [str(self.bin / argv[0]), *argv[1:]]
        if self.user == getpass.getuser():
            environment = {**os.environ, **self.environment}
            return subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=60)
        return run_as(self.user, words, environment=self.environment)

    def command(self, *argv: str) -> str:
        """What one of PBS's commands prints."""
        done = self.run(*argv)
        assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @cached_property
    def pool(self) -> Pool:
        """The queue for the jobs. Raises Unavailable."""
        pools = {pool.name: pool for pool in self._dispatcher().pools()}
        named = os.environ.get(f"{FOUND}QUEUE")
        if named and named not in pools:
            raise Unavailable(f"{FOUND}QUEUE is {named!r}, and there are {', '.join(pools)}")
        usable = [pool for pool in pools.values() if pool.up and pool.slots_total]
        found = pools[named] if named else next((pool for pool in usable if pool.is_default), None)
        if found is None and not usable:
            raise Unavailable("no queue of this PBS takes jobs")
        return found or usable[0]

    @cached_property
    def history(self) -> bool:
        return self._dispatcher().probe().accounting

    def two_nodes(self) -> dict[str, Any]:
        """Options under which a trial gets two nodes: two hosts where there are, else two parts of one. Skips the test
        when there is room for one slot only."""
        if self.pool.nodes >= 2:
            return {}
        if self.pool.slots_total >= 2:
            return {"place": "free"}
        pytest.skip("this PBS has one slot: no job can have two nodes")

    def is_here(self) -> bool:
        """Whether all hosts of this PBS are this machine, under whatever names."""
        own = {address[4][0] for address in socket.getaddrinfo(os.uname().nodename, None)}
        for line in self.command("pbsnodes", "-a").splitlines():
            key, _, name = line.strip().partition(" = ")
            if key == "Mom":
                addresses = {str(address[4][0]) for address in socket.getaddrinfo(name, None)}
                if not addresses & own and not all(map(_is_ours, addresses)):
                    return False
        return True

    def setup(self, folder: Path, **options: Any) -> Setup:
        return Setup(name="test", prefix="conf-", job_root=folder, options={**self.options, **options})

    def _dispatcher(self) -> PbsDispatcher:
        return PbsDispatcher(self.setup(self.jobs))


def _is_ours(address: str) -> bool:
    """Whether this machine has an address: nothing else can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def find() -> PbsSite:
    """The site of this machine. Raises Unavailable with one line that says why there is none."""
    conf = os.environ.get(f"{FOUND}CONF") or os.environ.get("PBS_CONF_FILE")
    if conf is None and not Path("/etc/pbs.conf").exists() and CONF.exists():
        conf = str(CONF)
    environment = {"PBS_CONF_FILE": conf} if conf else {}
    options = PbsOptions(environment=environment)
    given = os.environ.get(f"{FOUND}BIN")
    path = given or f"{os.environ.get('PATH', '')}:{options.pbs_bin}"
    qsub = shutil.which("qsub", path=path)
    if qsub is None:
        raise Unavailable("no PBS: qsub is neither on PATH nor where pbs.conf says")
    binaries = Path(qsub).parent
    said = subprocess.run([qsub, "--version"], capture_output=True, text=True, check=False, timeout=60)
    if "pbs_version" not in said.stdout + said.stderr:
        raise Unavailable(f"no PBS: {qsub} is another scheduler's")
    user = _user()
    python = os.environ.get(f"{FOUND}PYTHON", "python3")
    more = {"type": "pbs", "container_run_type": "none", "environment": environment, "python": python}
    commands = {name: str(binaries / name) for name in ("qsub", "qstat", "qselect", "qdel", "qsig", "pbsnodes")}
    patient = {"submits_per_second": 100, "pools_cached_for": 0, "commands": commands}
    site = PbsSite(binaries, environment, user, _jobs(user), {**more, **patient})
    try:
        _ = site.pool
    except DispatcherError as error:
        raise Unavailable(f"no PBS that answers: {error}") from None
    return site


def _user() -> str:
    if os.geteuid() != 0:
        return getpass.getuser()
    named = os.environ.get(f"{FOUND}USER")
    if named:
        return named
    ensure_users()
    return "tmalice"


def _jobs(user: str) -> Path:
    return Path(os.environ.get(f"{FOUND}JOBS") or pwd.getpwnam(user).pw_dir)


def folder_for(site: PbsSite) -> Path:
    """A new folder of the user's for job folders."""
    folder = Path(tempfile.mkdtemp(prefix="tm-pbs-", dir=site.jobs))
    account = pwd.getpwnam(site.user)
    os.chown(folder, account.pw_uid, account.pw_gid)
    return folder


@pytest.fixture(scope="session")
def pbs_site() -> PbsSite:
    try:
        return find()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def pbs_folder(pbs_site: PbsSite) -> Iterator[Path]:
    """A folder of the user's that all hosts see, gone afterwards."""
    folder = folder_for(pbs_site)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def run_suite_as(user: str, module: Path, arguments: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run a test module as an ordinary user, from a copy of the sources that the user can read."""
    import sys

    import trainmaster

    top = Path(trainmaster.__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory(prefix="tm-pbs-suite-", dir="/var/tmp") as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
        for name in ("trainmaster", "tests"):
            shutil.copytree(top / name, copy / name, ignore=skipped)
        shutil.copy(top / "pyproject.toml", copy)
        passed_on = {name: value for name, value in os.environ.items() if name.startswith((FOUND, "PBS_"))}
        return run_as(
            user,
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(copy / module)],
            environment={**passed_on, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=580,
            cwd=str(copy),
        )
