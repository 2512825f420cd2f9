"""Settings of a pool of Docker hosts for its containers, and the accounts that they run as."""

from __future__ import annotations

import json
import pwd
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.docker.engine import DockerEngine, docker_engine
from tests.support.docker.hosts import USER
from tests.support.docker.masters import Hosts, running_hosts
from tests.support.master import wait_for
from tests.support.services import wait_over
from trainmaster.client.master import Master

__all__ = ["docker_engine"]
pytestmark = pytest.mark.docker

LINKED = "tmbob"
POOLS = """
  resource_pools:
    - {pool_name: default}
    - pool_name: special
      task_container_defaults:
        startup_hook: export FROM_HOOK=the-pool
        work_dir: /tmp
        network_mode: host
        nccl_port_range: 1234:1250
        environment_variables: {cpu: [KIND=cpu], cuda: [KIND=cuda]}
    - {pool_name: of-root}
    - {pool_name: of-people}"""
LOOKS = """
import json, os, pwd
facts = {
    "uid": os.getuid(), "folder": os.getcwd(), "hook": os.environ.get("FROM_HOOK"),
    "ports": os.environ.get("NCCL_PORT_RANGE"), "kind": os.environ.get("KIND"),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize, "seen": os.path.exists("deep/er/word"),
    "mine": os.access("deep", os.W_OK),
}
print("FACTS", json.dumps(facts), flush=True)
"""


@pytest.fixture(scope="module")
def hosts(docker_engine: DockerEngine) -> Iterator[Hosts]:
    with running_hosts(docker_engine, "host1", more=POOLS) as hosts:
        hosts.add("host2", pool="special")
        hosts.add("host3", pool="of-root", job_user="root")
        hosts.add("host4", pool="of-people", linked_users=True)
        client = hosts.master.client()
        wait_for(lambda: len([a for a in client.agents() if a["slots"]]) == 4, "all agents")
        yield hosts


def log(master: Master, task_id: str) -> list[str]:
    return [str(line["log"]) for line in master.cluster.task_log(task_id)]


def facts(master: Master, pool: str = "", **config: Any) -> dict[str, Any]:
    """What a command finds in its container."""
    resources = {"slots": 0, **({"resource_pool": pool} if pool else {}), **config.pop("resources", {})}
    command = {"entrypoint": ["python3", "-c", LOOKS], "resources": resources, **config}
    task = master.tasks.launch("command", command)["id"]
    wait_over(master, task)
    lines = log(master, task)
    found = next((line for line in lines if "FACTS" in line), None)
    assert found, lines
    answer: dict[str, Any] = json.loads(found.partition("FACTS ")[2])
    return answer


def test_pool_settings_apply_to_its_containers(hosts: Hosts) -> None:
    """Its hook, its folder, its variables; where it says nothing of a size, what the master's file says."""
    master = hosts.master.client()
    found = facts(master, "special")
    assert (found["hook"], found["folder"], found["ports"]) == ("the-pool", "/tmp", "1234:1250")
    assert (found["kind"], found["shm"]) == ("cpu", 128 * 2**20)
    assert facts(master, "special", work_dir="/var")["folder"] == "/var"
    plain = facts(master)
    assert (plain["hook"], plain["ports"], plain["kind"]) == (None, None, None)
    assert plain["folder"] == "/run/determined/workdir"


def test_a_relative_mount_stands_below_the_work_directory(hosts: Hosts) -> None:
    """The folders above it are the job's own."""
    source = hosts.folder / "shared"
    source.mkdir(exist_ok=True)
    source.chmod(0o755)
    (source / "word").write_text("here")
    bind = {"host_path": str(source), "container_path": "deep/er", "read_only": True}
    found = facts(hosts.master.client(), bind_mounts=[bind])
    assert (found["seen"], found["mine"]) == (True, True)
    assert facts(hosts.master.client(), bind_mounts=[bind], work_dir="/tmp")["seen"] is True


def test_a_shell_of_root_lets_its_owner_in(hosts: Hosts) -> None:
    """sshd of root gives up rights in parts, which takes capabilities that no other job has."""
    master = hosts.master.client()
    # The image has no sshd; the host's, of the same release, with its libraries and people stands in for it.
    needed = subprocess.run(["ldd", "/usr/sbin/sshd"], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in needed.split() if word.startswith("/lib/") and "/libc.so" not in word]
    paths = ["/usr/sbin/sshd", "/etc/passwd", "/etc/group", *libraries]
    binds = [{"host_path": path, "container_path": path, "read_only": True} for path in paths]
    config = {"resources": {"resource_pool": "of-root", "slots": 0}, "bind_mounts": binds}
    shell = master.tasks.launch("shell", config)["id"]
    master.tasks.wait_ready(shell, 60)
    said = hosts.master.det("shell", "open", shell, "--", "id", "-u")
    assert said.stdout.strip() == "0"
    # With a terminal, for as long as somebody types; the published client keeps such a connection too.
    said = hosts.master.det("shell", "open", shell, "--", "-tt", "tty; sleep 2; id -u; echo at the end")
    *_, terminal, account, last = said.stdout.splitlines()
    assert (terminal.startswith("/dev/pts/"), account, last) == (True, "0", "at the end"), said
    master.tasks.kill("shell", shell)
    wait_over(master, shell)
    assert facts(master, "of-root")["uid"] == 0


def test_slots_of_agents_name_the_jobs_in_their_containers(hosts: Hosts) -> None:
    """As the published client joins them: by the id of the container, in the lists of tasks and of agents."""
    master = hosts.master.client()
    task = master.tasks.launch("command", {"entrypoint": ["sleep", "600"], "resources": {"slots": 1}})["id"]

    def container() -> str | None:
        slots = (slot for agent in master.agents() for slot in agent["slots"].values())
        mine = (slot["container"] for slot in slots if slot["container"] and slot["container"]["parent"] == f"{task}.1")
        held = next(mine, None)
        return str(held["id"]) if held and held["state"] == "STATE_RUNNING" else None

    found = wait_for(container, "the container")
    summaries = master._http.request("GET", "/api/v1/tasks")["allocationIdToSummary"].values()
    (mine,) = [one for one in summaries if one["taskId"] == task]
    assert [one["containerId"] for one in mine["resources"]] == [found]
    master.tasks.kill("command", task)
    wait_over(master, task)


def test_jobs_of_a_linked_user_run_as_that_account(hosts: Hosts) -> None:
    """Where the host's administrator allows it; a host that does not, or lacks the account, says so."""
    master, admin = hosts.master.client(), hosts.master.client("admin")
    assert facts(master, "of-people")["uid"] == pwd.getpwnam(USER).pw_uid
    linked = pwd.getpwnam(LINKED)
    admin.link_user("determined", uid=linked.pw_uid, user=LINKED, gid=linked.pw_gid, group=LINKED)
    assert facts(master, "of-people")["uid"] == linked.pw_uid
    assert "its administrator must start the agent there with --linked-users" in refusal(master, "default")
    stranger = f"u{uuid.uuid4().hex[:8]}"
    admin.link_user("determined", uid=48765, user=stranger, gid=48765, group=stranger)
    assert f"There is no account {stranger!r}" in refusal(master, "of-people")


def refusal(master: Master, pool: str) -> str:
    """What the log says of a command that cannot start."""
    task = master.tasks.launch("command", {"entrypoint": ["true"], "resources": {"slots": 0, "resource_pool": pool}})
    wait_over(master, task["id"])
    return " ".join(log(master, task["id"]))
