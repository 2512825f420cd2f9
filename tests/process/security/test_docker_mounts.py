"""Mounts give no access to folders that the job's account cannot enter."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.packages import Unavailable
from tests.support.cluster.users import ensure_users, run_as
from trainmaster.agent.account import account_for
from trainmaster.agent.engine import ContainerError
from trainmaster.agent.mounts import Mounts
from trainmaster.containers import Bind
from trainmaster.containers.docker import ContainerUser, DockerStart, check_binds, container_body

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="not root: processes of two accounts are needed")
ATTACKER, VICTIM = "tmbob", "tmalice"


@pytest.fixture
def people() -> Iterator[Path]:
    """A folder with one of the victim, closed above what is open, and one of the attacker."""
    try:
        ensure_users()
    except Unavailable as reason:
        pytest.skip(str(reason))
    folder = Path(tempfile.mkdtemp(prefix="tm-people-", dir="/var/tmp"))
    folder.chmod(0o755)
    for name in (ATTACKER, VICTIM):
        (folder / name / "project").mkdir(parents=True)
        (folder / name / "project" / "data").write_text(f"{name}'s data")
        for path in (folder / name, folder / name / "project", folder / name / "project" / "data"):
            os.chown(path, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
    (folder / VICTIM).chmod(0o700)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def attacker() -> ContainerUser:
    return account_for(ATTACKER, ATTACKER)


@pytest.mark.parametrize(
    "path",
    [
        "/", "//", "/.", "/run", "/run/", "//run", "/./run", "//run/docker.sock", "/run/./docker.sock", "/var/run",
        "/var/run//docker.sock", "/run/user/0", "/proc", "/proc/1/root/run/docker.sock", "/proc/self/root", "//proc/1",
        "/sys/fs", "/dev", "/dev/sda", "/dev/shm/../mem", "/var/lib/docker", "/var/lib/docker/overlay2/x/diff",
        "/var//lib/./docker/", "/var/lib/containerd", "/srv/docker.sock", "/home/x/../../run",
    ],
)  # fmt: skip
def test_a_source_that_no_job_may_mount_in_whatever_spelling(path: str) -> None:
    assert check_binds([Bind(path, "/x")])


@pytest.mark.parametrize("target", ["//", "//proc", "/./proc", "/proc//x", "//sys", "/dev/.", "//run/determined"])
def test_a_target_that_no_job_may_mount_on_in_whatever_spelling(target: str) -> None:
    assert check_binds([Bind("/data", target)])


def test_ordinary_folders_are_mounted() -> None:
    assert (
        check_binds([Bind(path, "/x") for path in ("/data", "/dev/shm", "/home/a/b", "/runs", "/var/lib/data")]) == []
    )


def test_folder_below_another_users_closed_folder_is_rejected(people: Path, attacker: ContainerUser) -> None:
    closed = people / VICTIM / "project"
    for path in (closed, closed / "data", people / ATTACKER / ".." / VICTIM / "project"):
        with pytest.raises(ContainerError, match=f"cannot be opened by {ATTACKER}"):
            Mounts().open([Bind(str(path), "/x")], attacker)
    own = Mounts().open([Bind(f"{people}//{ATTACKER}/./project", "/x")], attacker)
    assert [bind.host_path for bind in own.binds] == [str(people / ATTACKER / "project")]


def test_link_to_forbidden_mount_source_is_rejected(people: Path, attacker: ContainerUser) -> None:
    home = people / ATTACKER
    closed = {"root": "/", "proc": "/proc", "self": "/proc/self/root", "run": "/run"}
    for name, target in {**closed, "shut": str(people / VICTIM / "project")}.items():
        run_as(ATTACKER, ["ln", "-s", target, str(home / name)])
        with pytest.raises(ContainerError, match=r"jobs may not mount|cannot be opened"):
            Mounts().open([Bind(str(home / name), "/x")], attacker)
    run_as(ATTACKER, ["ln", "-s", "project", str(home / "mine")])
    sources = Mounts().open([Bind(str(home / "mine"), "/x", True)], attacker)
    assert list(sources.binds) == [Bind(str(home / "project"), "/x", True)], "what Docker is told holds no link"


def test_the_agents_own_folder_and_dockers_data(people: Path, attacker: ContainerUser) -> None:
    own = people / ATTACKER / "agent"
    (own / "jobs" / "other").mkdir(parents=True)
    os.symlink(own, people / "alias")
    mounts = Mounts(kept=[str(people / "alias")])
    for path in (own, own / "jobs" / "other", people / "alias" / "jobs", people / ATTACKER, people):
        with pytest.raises(ContainerError, match="a folder of Docker or of the agent"):
            mounts.open([Bind(str(path), "/x")], attacker)


def test_a_host_that_allows_some_folders_only(people: Path, attacker: ContainerUser) -> None:
    (people / "pub").mkdir()
    mounts = Mounts(roots=[str(people / "pub"), str(people / VICTIM)])
    assert mounts.open([Bind(str(people / "pub"), "/x")], attacker).binds
    for path, why in ((people / ATTACKER, "outside of the folders"), (people / VICTIM / "project", "cannot be opened")):
        with pytest.raises(ContainerError, match=why):
            mounts.open([Bind(str(path), "/x")], attacker)


def test_mount_folder_replaced_by_link_at_start_is_detected(people: Path, attacker: ContainerUser) -> None:
    place = people / ATTACKER / "project"
    # A process of this machine sees at the path of the mount what stands there, as a container does.
    sources = Mounts().open([Bind(str(place), str(place)), Bind("/usr", "/usr")], attacker)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            assert sources.differences(process.pid) == []
            place.rename(place.with_name("aside"))
            place.symlink_to(people / VICTIM / "project")
            assert sources.differences(process.pid) == [str(place)]
        finally:
            process.kill()
    assert sources.differences(process.pid) == [], "one that has ended"


def test_container_limits_processes_and_memory() -> None:
    account = ContainerUser("a", 1000, 1000)
    start = DockerStart("img", Path("/j"), Path("/n"), Path("/h"), account, {}, memory=2**30)
    host = container_body(start)["HostConfig"]
    assert (host["PidsLimit"], host["Memory"]) == (32768, 2**30)
