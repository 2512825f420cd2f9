"""A real PBS reached over SSH by a master on another machine, and by sudo as the submitting users."""

from __future__ import annotations

import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.site.dispatchers.access.conftest import helper_installed, ssh_server
from tests.support import trainings
from tests.support.access.installed import PROGRAM, SERVICE, Installed
from tests.support.access.sshd import Sshd
from tests.support.cluster.layout import USERS
from tests.support.cluster.users import run_as
from tests.support.master import (
    MasterProcess,
    ended_as,
    files,
    free_port,
    log_text,
    make_folder,
    only_trial,
    remove_folder,
    validations,
    wait_for,
)
from tests.support.pbs.site import PbsSite, pbs_site
from trainmaster.client.master import Master

__all__ = ["helper_installed", "pbs_site", "ssh_server"]
pytestmark = pytest.mark.pbs
PEOPLE = dict(zip(USERS, ("determined", "admin"), strict=True))  # account: user of the master
STARTS = 180.0  # seconds; a scheduler may look at its queue only every minute

CONFIG = """
resource_manager:
  type: pbs
  cluster_name: test
  job_storage_root: {jobs}
  container_run_type: none
  poll_interval: 1
  pools_cached_for: 5
  environment: {site.environment}
  commands: {site.options[commands]}
  python: {site.options[python]}
  {way}
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
"""

WHO = """
import getpass
print("I am", getpass.getuser(), flush=True)
""" + trainings.COUNTING  # fmt: skip


@pytest.fixture(scope="module")
def folder(pbs_site: PbsSite) -> Iterator[Path]:
    if not pbs_site.is_here():
        pytest.skip("the hosts of this PBS are other machines: they would not reach a master on 127.0.0.1")
    folder = make_folder()
    package = Path(trainmaster.__file__).parent
    shutil.copytree(package, folder / "source/trainmaster", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    remove_folder(folder)


@dataclass(frozen=True)
class Served:
    """A master and the folder of its jobs."""

    process: MasterProcess
    jobs: Path

    def move(self) -> None:
        """Kill it, and start it again at another address."""
        self.process.kill()
        self.process.port = free_port()
        self.process.url = f"http://127.0.0.1:{self.process.port}"
        self.process.start()


@contextmanager
def serving(folder: Path, site: PbsSite, user: str, jobs: Path, way: str) -> Iterator[Served]:
    own = folder / user
    own.mkdir(mode=0o755)
    text = CONFIG.format(jobs=jobs, site=site, way=way, checkpoints=jobs / "checkpoints")
    process = MasterProcess(own, text, user=user, environment={"PYTHONPATH": str(folder / "source")})
    process.start()
    yield Served(process, jobs)
    process.clean_up()
    assert process.errors() == []


@pytest.fixture
def jobs() -> Iterator[Path]:
    """A folder like /tmp, for everybody's job folders."""
    root = Path(tempfile.mkdtemp(prefix="tm-pbs-jobs-", dir="/var/tmp"))
    (root / "checkpoints").mkdir()
    for path in (root, root / "checkpoints"):
        path.chmod(0o1777)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def over_ssh(pbs_site: PbsSite, ssh_server: Sshd, folder: Path, jobs: Path) -> Iterator[Served]:
    """The master of one person, who logs in as another, whose jobs they are."""
    if pbs_site.user not in USERS:
        pytest.skip(f"{pbs_site.user} is no account of ours, that keys could be given to")
    (stranger,) = set(USERS) - {pbs_site.user}
    keys = folder / "keys"
    keys.mkdir()
    for path in (ssh_server.key, ssh_server.known_hosts):
        shutil.copy(path, keys)
        shutil.chown(keys / path.name, stranger)
    (keys / ssh_server.key.name).chmod(0o600)
    ssh_server.start_if_stopped()
    login = f"host: 127.0.0.1, port: {ssh_server.port}, user: {pbs_site.user}"
    trust = f"identity_file: {keys / ssh_server.key.name}, known_hosts: {keys / ssh_server.known_hosts.name}"
    with serving(folder, pbs_site, stranger, jobs, f"ssh: {{{login}, {trust}}}") as served:
        yield served


def experiment(site: PbsSite, **more: Any) -> str:
    keys = {"resources": {"slots_per_trial": 1, "resource_pool": site.pool.name}, "max_restarts": 0}
    return trainings.experiment(keys={**keys, "pbs": {"pbsbatch_args": ["-l walltime=00:10:00"]}}, **more)


def create(master: Master, site: PbsSite, epochs: int) -> int:
    return master.create_experiment(experiment(site, epochs=epochs), files(train__py=WHO)).id


def job_of(master: Master, number: int) -> str:
    """The PBS job id of the experiment's only trial, once it reports."""
    wait_for(lambda: only_trial(master, number).batches >= 1, f"the first report of experiment {number}", STARTS)
    return str(master.task(only_trial(master, number).task_id)["allocations"][-1]["jobId"])


def owner_of(site: PbsSite, job: str) -> str:
    (line,) = [line for line in site.command("qstat", "-x", "-f", job).splitlines() if "Job_Owner = " in line]
    return line.partition(" = ")[2].partition("@")[0]


def test_trials_over_ssh_survive_cut_and_master_move(over_ssh: Served, ssh_server: Sshd, pbs_site: PbsSite) -> None:
    process, master = over_ssh.process, over_ssh.process.client()
    number, second = create(master, pbs_site, 150), create(master, pbs_site, 1000)
    for experiment in (number, second):
        assert owner_of(pbs_site, job_of(master, experiment)) == pbs_site.user
    ssh_server.stop()
    wait_for(lambda: "cannot be observed, all states stay" in process.log.read_text(), "the cut being seen")
    ssh_server.start()
    over_ssh.move()
    master = process.client()
    ended_as(master, number, "COMPLETED", STARTS)
    trial = only_trial(master, number)
    assert (trial.attempts, trial.restarts) == (1, 0)
    assert validations(master, [trial.id]) == {trial.id: list(range(1, 151))}
    assert f"I am {pbs_site.user}" in log_text(master, trial.id)
    master.cancel(second)
    ended_as(master, second, "CANCELED", STARTS)
    assert only_trial(master, second).batches == master.checkpoints(second)[0].steps_completed


@pytest.fixture
def by_sudo(pbs_site: PbsSite, helper_installed: Installed, folder: Path, jobs: Path) -> Iterator[Served]:
    """The master of a service account, whose users are linked to the accounts of two people."""
    helper_installed.allow(jobs, pbs_site.environment, programs=pbs_site.options["commands"])
    way = f"impersonation: sudo\n  helper: {PROGRAM}\n  require_user_link: true"
    with serving(folder, pbs_site, SERVICE, jobs, way) as served:
        for account, user in PEOPLE.items():
            known = pwd.getpwnam(account)
            link: dict[str, Any] = {"uid": known.pw_uid, "user": account, "gid": known.pw_gid, "group": account}
            served.process.client("admin").link_user(user, **link)
        yield served


def test_two_people_run_as_themselves(by_sudo: Served, pbs_site: PbsSite) -> None:
    process, jobs = by_sudo.process, by_sudo.jobs
    made = {account: create(process.client(user), pbs_site, 1000) for account, user in PEOPLE.items()}
    ids = {account: job_of(process.client(user), made[account]) for account, user in PEOPLE.items()}
    for account, job in ids.items():
        assert owner_of(pbs_site, job) == account
        (folder,) = [path for path in jobs.glob("det-*") if path.owner() == account]
        for other in (*(set(USERS) - {account}), SERVICE):
            assert run_as(other, ["ls", str(folder)]).returncode != 0
            assert run_as(other, ["cat", str(folder / "job.json")]).returncode != 0
    by_sudo.move()  # jobs believe the service account's word of where it is now
    for account, user in PEOPLE.items():
        master = process.client(user)
        seen = only_trial(master, made[account]).batches
        wait_for(lambda m=master, a=account, n=seen: only_trial(m, made[a]).batches > n, f"{account}'s next report")  # type: ignore[misc]
        trial, line = only_trial(master, made[account]).id, f"I am {account}"  # the log may arrive after the report
        wait_for(lambda m=master, t=trial, n=line: n in log_text(m, t), f"{account}'s log")  # type: ignore[misc]
        master.kill(made[account])
        ended_as(master, made[account], "CANCELED", STARTS)
    wait_for(lambda: not set(ids.values()) & alive(pbs_site), "the end of both jobs", STARTS)


def alive(site: PbsSite) -> set[str]:
    """Ids of all jobs that have not ended."""
    return set(site.command("qselect").split())
