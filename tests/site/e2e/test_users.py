"""Jobs run as their submitting users: an unprivileged master, two users, real Slurm, real sudo."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainmaster
from tests.site.dispatchers.access.conftest import helper_installed
from tests.support import trainings
from tests.support.access.installed import PROGRAM, SERVICE, Installed
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.slurm import slurm_cluster
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
    wait_for,
)
from tests.support.reference import reference
from tests.support.services import wait_over
from trainmaster.client.errors import APIError, NotAllowed
from trainmaster.client.master import Master

__all__ = ["helper_installed", "slurm_cluster"]
pytestmark = pytest.mark.slurm
PEOPLE = {"determined": "tmalice", "admin": "tmbob"}

CONFIG = """
resource_manager:
  type: slurm
  cluster_name: test
  job_storage_root: {jobs}
  container_run_type: none
  poll_interval: 1
  environment: {{SLURM_CONF: {conf}}}
  impersonation: sudo
  helper: {program}
  require_user_link: true
checkpoint_storage: {{type: shared_fs, host_path: {checkpoints}}}
"""

WHO = """
import getpass, os
print("I am", getpass.getuser(), flush=True)
""" + trainings.COUNTING  # fmt: skip


@pytest.fixture(scope="module")
def jobs(slurm_cluster: Cluster) -> Iterator[Path]:
    root = Path(slurm_cluster.layout.job_root) / f"users-{os.getpid()}"
    root.mkdir()
    root.chmod(0o1777)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def process(slurm_cluster: Cluster, helper_installed: Installed, jobs: Path) -> Iterator[MasterProcess]:
    folder = make_folder()
    checkpoints = folder / "checkpoints"
    checkpoints.mkdir()
    checkpoints.chmod(0o1777)
    source = folder / "source"
    package = Path(trainmaster.__file__).parent
    shutil.copytree(package, source / "trainmaster", ignore=shutil.ignore_patterns("__pycache__"))
    helper_installed.allow(jobs, slurm_cluster.environment, storage_roots=[str(checkpoints)])
    conf = slurm_cluster.layout.slurm_conf
    text = CONFIG.format(jobs=jobs, conf=conf, program=PROGRAM, checkpoints=checkpoints)
    process = MasterProcess(folder, text, user=SERVICE, environment={"PYTHONPATH": str(source)})
    process.start()
    yield process
    process.clean_up()
    errors = process.errors()
    remove_folder(folder)
    assert errors == []


@pytest.fixture
def people(process: MasterProcess) -> dict[str, Master]:
    """A client for each account, whose user is linked to it."""
    admin = process.client("admin")
    for user, account in PEOPLE.items():
        known = pwd.getpwnam(account)
        admin.link_user(user, uid=known.pw_uid, user=account, gid=known.pw_gid, group=account)
    return {account: process.client(user) for user, account in PEOPLE.items()}


def create(master: Master, **keys: Any) -> int:
    return master.create_experiment(trainings.experiment(**keys), files(train__py=WHO)).id


def _jobs_in(jobs: Path) -> set[Path]:
    return {path for path in jobs.iterdir() if path.is_dir() and not path.name.startswith(".")}


def folder_of(jobs: Path, account: str, known: set[Path]) -> Path:
    """The new job folder of an account."""

    def look() -> Path | None:
        made = [path for path in _jobs_in(jobs) - known if path.owner() == account]
        return made[0] if made else None

    return wait_for(look, f"the job folder of {account}")


def test_user_without_link_is_rejected_with_advice(process: MasterProcess) -> None:
    with pytest.raises(APIError, match=r"none is linked.*link-with-agent-user"):
        create(process.client("determined"))


@pytest.mark.parametrize(
    ("uid", "account", "why"),
    [
        (0, "root", "never run as root"),
        (1, "daemon", "system account"),
        (0, "tmalice", "never run as root"),
        (4_000_000, "tmalice", "has the uid"),
        (4_000_000, "-x", "cannot be the name"),
        (2**32, "somebody", "is not an id"),
    ],
)
def test_user_cannot_be_linked_to_root_or_system_account(
    process: MasterProcess, uid: int, account: str, why: str
) -> None:
    with pytest.raises(APIError, match=why):
        process.client("admin").link_user("determined", uid=uid, user=account, gid=5000, group="people")


def test_only_administrators_link(process: MasterProcess) -> None:
    with pytest.raises(NotAllowed, match="Only an administrator"):
        process.client("determined").link_user("determined", uid=5000, user="x", gid=5000, group="x")


def test_the_link_is_made_by_det_and_shown(process: MasterProcess) -> None:
    known = pwd.getpwnam("tmalice")
    words = ["--agent-uid", str(known.pw_uid), "--agent-user", "tmalice", "--agent-gid", str(known.pw_gid)]
    command = [sys.executable, "-m", "trainmaster.cli.det", "user", "link-with-agent-user", "determined", *words]
    environment = {"DET_MASTER": process.url, "DET_USER": "admin", "DET_PASS": process.password}
    environment["DET_DEBUG_CONFIG_PATH"] = str(process.folder / "det-of-admin")
    done = subprocess.run(
        [*command, "--agent-group", "tmalice"], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert "run as tmalice" in done.stdout
    shown = {user["username"]: user["agentUserGroup"] for user in process.client("admin").users()}
    assert shown["determined"]["agentUser"] == "tmalice"  # type: ignore[index]
    assert shown["determined"]["agentUid"] == known.pw_uid  # type: ignore[index]


def test_users_cannot_read_each_others_job_folders(
    process: MasterProcess, people: dict[str, Master], jobs: Path, slurm_cluster: Cluster
) -> None:
    known = _jobs_in(jobs)
    made = {account: create(master, epochs=100_000) for account, master in people.items()}
    folders = {account: folder_of(jobs, account, known) for account in made}
    for account, folder in folders.items():
        wait_for((folder / "output.txt").exists, f"{account}'s output")
        wait_for(lambda folder=folder: list((folder / "spool").iterdir()), f"{account}'s spool")  # type: ignore[misc]
        inside = [path for path in folder.rglob("*") if path.is_file()]
        assert {"token", "output.txt", "job.json"} <= {path.name for path in inside}
        for other in (*(set(folders) - {account}), SERVICE):
            assert run_as(other, ["ls", str(folder)]).returncode != 0
            for path in inside:
                assert run_as(other, ["cat", str(path)]).returncode != 0
        shown = slurm_cluster.command("squeue", "-h", "-u", account, "-o", "%u %j")
        assert f"{account} {folder.name}" in shown.splitlines()
    # The other way round: a person reads what is their own.
    assert run_as("tmalice", ["cat", str(folders["tmalice"] / "secrets/token")]).returncode == 0
    for account, master in people.items():
        trial = only_trial(master, made[account]).id
        wait_for(lambda m=master, t=trial, a=account: f"I am {a}" in log_text(m, t), f"{account}'s log")  # type: ignore[misc]
    for account, master in people.items():
        master.cancel(made[account])
    for account, master in people.items():
        ended_as(master, made[account], "CANCELED")


def test_checkpoints_of_a_person_go_with_their_experiment(process: MasterProcess, people: dict[str, Master]) -> None:
    """The master's own account may not even look into them."""
    number = create(people["tmalice"], epochs=3, save_at=2)
    ended_as(people["tmalice"], number, "COMPLETED")
    folders = [process.folder / "checkpoints" / one.uuid for one in people["tmalice"].checkpoints(number)]
    wait_for(lambda: sum(folder.exists() for folder in folders) == 1, "the policy to leave one")
    assert [folder.owner() for folder in folders if folder.exists()] == ["tmalice"]
    people["tmalice"].delete_experiment(number)
    wait_for(lambda: not any(folder.exists() for folder in folders), "the folders to go")


def test_a_shell_is_entered_as_its_owner(process: MasterProcess, people: dict[str, Master], tmp_path: Path) -> None:
    """The server is that of the job's user, who needs no root for it."""
    master = people["tmalice"]
    shell = master.tasks.launch("shell", {"resources": {"slots": 1}})["id"]
    master.tasks.wait_ready(shell, 60)
    told = {"DET_MASTER": process.url, "DET_USER": "determined", "DET_PASS": process.password, "HOME": str(tmp_path)}
    det = [sys.executable, "-m", "trainmaster.cli.det", "shell", "open", shell, "--", "id -un; pwd"]
    done = subprocess.run(det, env={**os.environ, **told}, capture_output=True, text=True, timeout=120, check=False)
    assert PEOPLE["determined"] in done.stdout.splitlines(), done  # after all that a login there prints
    master.tasks.kill("shell", shell)
    wait_over(master, shell)


def test_published_client_enters_shell_as_linked_account(
    process: MasterProcess, people: dict[str, Master], tmp_path: Path
) -> None:
    try:
        det = reference.environment() / "bin" / "det"
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")
    told = {"DET_MASTER": process.url, "DET_USER": "determined", "DET_PASS": process.password, "HOME": str(tmp_path)}
    done = subprocess.run(
        [det, "shell", "start"], env={**os.environ, **told}, input="echo I am $(id -un)\nexit\n",
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    shells = people["tmalice"].tasks.list("shell")
    for shell in shells:
        people["tmalice"].tasks.kill("shell", shell["id"])
    assert f"I am {PEOPLE['determined']}" in done.stdout, done
    for shell in shells:
        wait_over(people["tmalice"], shell["id"])


def test_another_users_job_under_known_token_is_left_alone(
    process: MasterProcess, people: dict[str, Master], jobs: Path, slurm_cluster: Cluster
) -> None:
    known = _jobs_in(jobs)
    number = create(people["tmalice"], epochs=100_000)
    token = folder_of(jobs, "tmalice", known).name
    for name in (token, "bobs own"):
        command = ["sbatch", "--parsable", "--hold", "-p", "main", "-o", "/dev/null", "-J", name, "--wrap", "true"]
        done = run_as("tmbob", command, environment=slurm_cluster.environment)
        assert done.returncode == 0, done.stderr
    try:
        wait_for(lambda: "of tmbob instead of tmalice" in process.log.read_text(), "the forgery being seen")
        external = wait_for(lambda: [j for j in people["tmalice"].jobs() if j.type == "EXTERNAL"], "the queue")
        assert [(job.name, job.owner, job.state) for job in external] == [("bobs own", "tmbob", "QUEUED")]
        people["tmalice"].kill(number)
        ended_as(people["tmalice"], number, "CANCELED")
        wait_for(lambda: not queued(slurm_cluster, "tmalice"), "the end of the job")
        wait_for(
            lambda: queued(slurm_cluster, "tmbob") == sorted([token, "bobs own"]),
            "nothing but what is left alone",
        )
    finally:
        run_as("tmbob", ["scancel", "-u", "tmbob"], environment=slurm_cluster.environment)
        wait_for(lambda: not queued(slurm_cluster, "tmbob"), "the end of the jobs in between")


def queued(cluster: Cluster, account: str) -> list[str]:
    """Names of an account's jobs that have not ended."""
    return sorted(cluster.command("squeue", "-h", "-u", account, "-o", "%j").splitlines())


def test_a_master_that_comes_back_still_ends_jobs_as_their_users(
    process: MasterProcess, people: dict[str, Master], slurm_cluster: Cluster
) -> None:
    made = {account: create(master, epochs=100_000, keys={"max_restarts": 0}) for account, master in people.items()}
    for account, master in people.items():
        wait_for(lambda m=master, n=made[account]: only_trial(m, n).batches >= 1, "the first report")  # type: ignore[misc]
    process.kill()
    process.start()
    for account, user in zip(PEOPLE.values(), PEOPLE, strict=True):
        process.client(user).kill(made[account])
        ended_as(process.client(user), made[account], "CANCELED")
        wait_for(lambda account=account: not queued(slurm_cluster, account), f"the end of {account}'s job")  # type: ignore[misc]


def test_a_persons_job_finds_the_master_at_its_new_address(
    process: MasterProcess, people: dict[str, Master], jobs: Path
) -> None:
    gate = jobs / "gate"
    number = create(people["tmalice"], epochs=10, wait_at=5, wait_for=str(gate))
    wait_for(lambda: only_trial(people["tmalice"], number).batches >= 5, "the reports at the old address")
    process.kill()
    process.port = free_port()
    process.url = f"http://127.0.0.1:{process.port}"
    process.start()
    gate.touch()
    ended_as(process.client("determined"), number, "COMPLETED")
    trial = only_trial(process.client("determined"), number)
    assert (trial.attempts, trial.restarts, trial.batches) == (1, 0, 10)


def test_master_address_file_of_another_user_reaches_no_job(slurm_cluster: Cluster, process: MasterProcess) -> None:
    folder, jobs = make_folder(), Path(tempfile.mkdtemp(dir=slurm_cluster.layout.job_root))
    jobs.chmod(0o1777)
    run_as("tmbob", ["sh", "-c", "echo http://127.0.0.1:9 >master-url"], cwd=str(jobs))
    keys = {"jobs": jobs, "conf": slurm_cluster.layout.slurm_conf, "program": PROGRAM, "checkpoints": folder}
    text = CONFIG.format(**keys).replace("impersonation: sudo", "").replace("require_user_link: true", "")
    other = MasterProcess(folder, text, user=SERVICE, environment={"PYTHONPATH": str(process.folder / "source")})
    try:
        other.start()
        assert "master-url belongs to somebody else" in other.log.read_text()
        master = other.client()
        number = create(master, epochs=100_000)
        path = folder_of(jobs, SERVICE, set()) / "job.json"
        wait_for(path.exists, "what the job is told")
        told = json.loads(path.read_text())
        assert (told["master_url_file"], told["master_url"]) == (None, other.url)
        master.kill(number)
        ended_as(master, number, "CANCELED")
    finally:
        other.clean_up()
        remove_folder(folder)
        shutil.rmtree(jobs)


def test_a_new_link_changes_new_jobs_only(
    process: MasterProcess, people: dict[str, Master], jobs: Path, slurm_cluster: Cluster
) -> None:
    known = _jobs_in(jobs)
    first = create(people["tmalice"], epochs=100_000)
    folder_of(jobs, "tmalice", known)
    bob = pwd.getpwnam("tmbob")
    process.client("admin").link_user("determined", uid=bob.pw_uid, user="tmbob", gid=bob.pw_gid, group="tmbob")
    second = create(people["tmalice"], epochs=3)
    ended_as(people["tmalice"], second, "COMPLETED")
    assert "I am tmbob" in log_text(people["tmalice"], only_trial(people["tmalice"], second).id)
    assert queued(slurm_cluster, "tmalice") != []
    people["tmalice"].kill(first)
    ended_as(people["tmalice"], first, "CANCELED")
    wait_for(lambda: not queued(slurm_cluster, "tmalice"), "the end of the first job")


def doctor(process: MasterProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["-m", "trainmaster.cli.admin", "doctor", "--config", str(process.config), "--data", str(process.data)]
    environment = {"PYTHONPATH": str(process.folder / "source")}
    return run_as(SERVICE, [sys.executable, *command, *words], environment=environment)


def test_doctor_reports_checkpoint_folder_closed_to_users(process: MasterProcess, people: dict[str, Master]) -> None:
    checkpoints = process.folder / "checkpoints"
    account = pwd.getpwnam(SERVICE)
    before = checkpoints.stat()
    os.chown(checkpoints, account.pw_uid, account.pw_gid)
    checkpoints.chmod(0o755)
    try:
        done = doctor(process)
    finally:
        os.chown(checkpoints, before.st_uid, before.st_gid)
        checkpoints.chmod(0o1777)
    assert done.returncode == 1
    named = f"{checkpoints} (mode 0755, uid {account.pw_uid})"
    assert f"WRONG  checkpoint_storage: users cannot make files in {named}" in done.stdout
    for person in ("tmalice", "tmbob"):  # linked
        assert f"WRONG  checkpoint_storage: {person} cannot make files in {named}" in done.stdout
        assert f"{person} can write to {checkpoints}" in doctor(process, "--account", person).stdout


def test_doctor_finds_nothing_wrong(process: MasterProcess) -> None:
    command = ["-m", "trainmaster.cli.admin", "doctor", "--config", str(process.config), "--data", str(process.data)]
    environment = {"PYTHONPATH": str(process.folder / "source")}
    done = run_as(SERVICE, [sys.executable, *command], environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No problems found." in done.stdout
    subprocess.run(["chmod", "go+w", str(PROGRAM)], check=True)
    try:
        done = run_as(SERVICE, [sys.executable, *command], environment=environment)
    finally:
        subprocess.run(["chmod", "go-w", str(PROGRAM)], check=True)
    assert done.returncode == 1
    assert "could then act as any user" in done.stdout
