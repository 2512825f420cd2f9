"""Experiments on Docker hosts: a real master, two agents, a real Docker daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.contract.conftest import Reference
from tests.support import trainings
from tests.support.cluster import packages
from tests.support.docker.engine import DockerEngine, docker_engine
from tests.support.docker.hosts import USER
from tests.support.docker.masters import Hosts, running_hosts
from tests.support.docker.registry import Registry, running_registry
from tests.support.master import ended_as, files, free_port, image_digests, log_text, only_trial, validations, wait_for
from tests.support.reference import reference
from tests.support.services import page, wait_over
from trainmaster.client.context import collect
from trainmaster.client.errors import APIError
from trainmaster.client.master import Master
from trainmaster.client.transport import Transport

__all__ = ["docker_engine"]
pytestmark = pytest.mark.docker

# What a node finds.
LOOKS = """
import json, os
import trainmaster.core as core
info = core.get_cluster_info()
facts = {
    "uid": os.getuid(), "home": os.path.isdir(os.environ["HOME"]), "addresses": len(info.container_addrs),
    "slots": info.slot_ids, "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0],
    "new_privileges": [line.split()[1] for line in open("/proc/self/status") if line.startswith("NoNewPrivs")][0],
    "rank": info.container_rank,
}
print("FACTS", json.dumps(facts), flush=True)
"""

TELLS_TIMES = """
import time
for _ in range(3):
    print("TIME", time.time(), flush=True)
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def hosts(docker_engine: DockerEngine) -> Iterator[Hosts]:
    with running_hosts(docker_engine, "host1", "host2") as hosts:
        yield hosts


def create(master: Master, text: str, script: str = trainings.COUNTING) -> int:
    return master.create_experiment(text, files(train__py=script)).id


def steps(master: Master, number: int) -> int:
    return max((trial.batches or 0 for trial in master.trials(number)), default=0)


def wait_for_steps(master: Master, number: int, count: int) -> None:
    wait_for(lambda: steps(master, number) >= count, f"step {count} of experiment {number}", 60)


def wait_for_all(master: Master, number: int, trials: int, count: int) -> None:
    """Until so many trials of an experiment have come so far."""
    wait_for(
        lambda: sum((trial.batches or 0) >= count for trial in master.trials(number)) >= trials,
        f"step {count} of {trials} trials",
    )


def test_a_search_ends_and_leaves_nothing_behind(hosts: Hosts, docker_engine: DockerEngine) -> None:
    master = hosts.master.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 6, "max_concurrent_trials": 4}
    number = create(
        master, trainings.experiment(searcher, epochs=3, value={"type": "double", "minval": 1, "maxval": 2})
    )
    ended_as(master, number, "COMPLETED")
    trials = master.trials(number)
    assert {trial.state for trial in trials} == {"COMPLETED"}
    assert validations(master, [trial.id for trial in trials]) == {trial.id: [1, 2, 3] for trial in trials}
    kept = [hosts.folder / "checkpoints" / one.uuid for one in master.checkpoints(number)]
    assert {folder.owner() for folder in kept if folder.exists()} == {USER}
    assert image_digests(master, number) == [docker_engine.image_id()]
    master.delete_experiment(number)
    wait_for(lambda: not any(folder.exists() for folder in kept), "the files of another account to go")


def test_a_job_is_an_ordinary_user_without_capabilities(hosts: Hosts) -> None:
    master = hosts.master.client()
    number = create(master, trainings.experiment(), LOOKS)
    ended_as(master, number, "COMPLETED")
    line = next(line for line in log_text(master, only_trial(master, number).id).splitlines() if "FACTS" in line)
    facts = json.loads(line.partition("FACTS ")[2])
    assert facts["uid"] >= 1000
    assert facts["home"] is True
    assert int(facts["capabilities"], 16) == 0
    assert facts["new_privileges"] == "1"
    assert facts["shm"] == 128 * 2**20


def test_a_service_in_a_container_is_reached_and_prioritised(hosts: Hosts, tmp_path: Path) -> None:
    master = hosts.master.client()
    (tmp_path / "word.txt").write_text("from the container")
    port = free_port()
    text = f"{{entrypoint: python3 -m http.server {port}, environment: {{proxy_ports: [{{proxy_port: {port}}}]}}}}"
    service = master.tasks.create(text, collect(tmp_path))
    assert page(hosts.master, f"/proxy/{service}:{port}/word.txt") == "from the container"
    waiting = master.tasks.launch("command", {"entrypoint": "echo hello", "resources": {"slots": 2}})["id"]
    master.tasks.set_priority("command", waiting, 5)
    assert master.tasks.get("command", waiting)["config"]["resources"]["priority"] == 5
    wait_over(master, waiting)
    master.tasks.end(service)
    wait_over(master, service)


def test_a_gang_meets_on_two_hosts(hosts: Hosts) -> None:
    master = hosts.master.client()
    keys = {"resources": {"slots_per_trial": 4}}
    number = create(master, trainings.experiment(keys=keys), LOOKS)
    ended_as(master, number, "COMPLETED")
    text = log_text(master, only_trial(master, number).id)
    facts = [json.loads(line.partition("FACTS ")[2]) for line in text.splitlines() if "FACTS" in line]
    assert sorted(one["rank"] for one in facts) == [0, 1]
    assert {one["addresses"] for one in facts} == {2}
    assert [one["slots"] for one in facts] == [[0, 1], [0, 1]]


def test_higher_priority_gang_preempts_without_loss(hosts: Hosts) -> None:
    master = hosts.master.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 2, "max_concurrent_trials": 2}
    keys = {"resources": {"slots_per_trial": 2, "priority": 60}}
    low = create(master, trainings.experiment(searcher, epochs=10, stay_at=3, keys=keys))
    wait_for_all(master, low, 2, 3)
    high = create(master, trainings.experiment(keys={"resources": {"slots_per_trial": 4, "priority": 10}}), LOOKS)
    ended_as(master, high, "COMPLETED")
    assert not master.experiment(low).ended_for_good
    ended_as(master, low, "COMPLETED")
    for trial in master.trials(low):
        assert trial.restarts == 0
        assert "leaving after epoch" in log_text(master, trial.id)
        assert validations(master, [trial.id])[trial.id] == list(range(1, 11))


def test_drained_agent_keeps_its_jobs_and_gets_no_new_ones(hosts: Hosts) -> None:
    master, admin = hosts.master.client(), hosts.master.client("admin")
    gated = hosts.gate("of-the-drained", 1, resources={"slots_per_trial": 2})
    running = create(master, trainings.experiment(epochs=3, **gated))
    wait_for_steps(master, running, 1)
    (where,) = (agent["id"] for agent in master.agents() if any(slot["container"] for slot in agent["slots"].values()))
    with pytest.raises(APIError, match="administrator"):
        master.disable_agent(where)
    admin.disable_agent(where, drain=True)
    try:
        other = create(master, trainings.experiment(epochs=1, keys={"resources": {"slots_per_trial": 2}}))
        ended_as(master, other, "COMPLETED")
        entity = hosts.entity(master, where)
        assert (entity["enabled"], entity["draining"]) == (False, True)
        hosts.open("of-the-drained")
        ended_as(master, running, "COMPLETED")
        assert only_trial(master, running).restarts == 0
        assert f"host{3 - int(where[-1])}" in log_text(master, only_trial(master, other).id)
    finally:
        admin.enable_agent(where)
    assert hosts.entity(master, where)["enabled"] is True


def test_private_image_and_device_work_with_hidden_password(hosts: Hosts, tmp_path: Path) -> None:
    try:
        with running_registry(hosts.engine, tmp_path) as registry:
            _run_from(hosts, registry)
    except packages.Unavailable as reason:
        pytest.skip(str(reason))


def _run_from(hosts: Hosts, registry: Registry) -> None:
    master = hosts.master.client()
    programs = [{"host_path": path, "container_path": path, "read_only": True} for path in ("/usr", "/lib", "/lib64")]
    environment = {
        "image": registry.image,
        "registry_auth": {**registry.login, "server": registry.address},
        "add_capabilities": ["SYS_PTRACE"],
    }
    keys = {
        "environment": environment,
        "bind_mounts": programs,
        "resources": {"slots_per_trial": 1, "devices": ["/dev/null:/dev/sink"]},
    }
    script = f"{LOOKS}\nopen('/dev/sink', 'w').write('gone')\n"
    text = trainings.experiment(keys=keys)
    created = master.create_experiment(text, files(train__py=script))
    ended_as(master, created.id, "COMPLETED")
    found = master.experiment(created.id)
    shown = json.dumps([created.raw, found.raw, master.jobs(), master.agents()], default=str)
    assert '"password": "********"' in shown
    told = [shown, log_text(master, only_trial(master, created.id).id), hosts.master.log.read_text()]
    assert not [
        place for place in (*told, *(agent.log.read_text() for agent in hosts.agents)) if registry.password in place
    ]
    # What people copy from there holds a mask, which stands for the original's in a fork only.
    copied = found.raw["originalConfig"]
    assert registry.password not in copied
    with pytest.raises(APIError, match="password holds"):
        master.create_experiment(copied, files(train__py=script))
    registry.remove_image()
    ended_as(master, _fork(hosts, copied, script, created.id), "COMPLETED")


def _fork(hosts: Hosts, text: str, script: str, parent: int) -> int:
    """As the web page does."""
    transport = Transport(hosts.master.url)
    try:
        Master(transport).login("determined", hosts.master.password)
        body = {"config": text, "modelDefinition": files(train__py=script), "activate": True, "parentId": parent}
        return int(transport.request("POST", "/api/v1/experiments", body=body)["experiment"]["id"])
    finally:
        transport.close()


def test_trial_log_says_missing_image_cannot_be_pulled(hosts: Hosts) -> None:
    master = hosts.master.client()
    keys = {"environment": {"image": "127.0.0.1:1/missing:1"}}
    number = create(master, trainings.experiment(keys=keys))
    trial = wait_for(lambda: next(iter(master.trials(number)), None), "the trial")
    wait_for(lambda: "cannot be pulled" in log_text(master, trial.id), "the sentence", 60)
    master.kill(number)
    ended_as(master, number, "CANCELED")


def test_a_killed_agent_adopts_its_containers_when_it_comes_back(hosts: Hosts) -> None:
    master = hosts.master.client()
    keys = {"resources": {"slots_per_trial": 4}}
    searcher = {"name": "random", "metric": "error", "max_trials": 3, "max_concurrent_trials": 3}
    small = create(master, trainings.experiment(searcher, epochs=100_000, pause=0.1))
    wait_for_all(master, small, 3, 3)
    before = running(hosts)
    for agent in hosts.agents:
        agent.kill()
    seen = steps(master, small)
    wait_for_steps(master, small, seen + 5)  # containers and the master go on without their agents
    assert running(hosts) == before
    for agent in hosts.agents:
        agent.start()
    gang = create(master, trainings.experiment(keys=keys), LOOKS)
    master.cancel(small)
    for number, state in ((small, "CANCELED"), (gang, "COMPLETED")):
        ended_as(master, number, state)
        assert all(trial.restarts == 0 for trial in master.trials(number))
    for trial in master.trials(small):
        assert "leaving after epoch" in log_text(master, trial.id)
        assert validations(master, [trial.id])[trial.id] == list(range(1, trial.batches + 1))
    assert len(attempts(master, small)) == 3


def test_a_killed_master_finds_everything_as_it_was(hosts: Hosts) -> None:
    master = hosts.master.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 6, "max_concurrent_trials": 6}
    number = create(master, trainings.experiment(searcher, epochs=6, **hosts.gate("of-the-found", 3)))
    wait_for_all(master, number, 4, 3)  # as many as there are slots
    hosts.master.kill()
    before = running(hosts)
    hosts.master.start()
    assert running(hosts) == before
    hosts.open("of-the-found")
    master = hosts.master.client()
    ended_as(master, number, "COMPLETED")
    ids = [trial.id for trial in master.trials(number)]
    assert validations(master, ids) == {trial: list(range(1, 7)) for trial in ids}
    assert len(attempts(master, number)) == 6


def test_removed_container_is_restarted_without_charge(hosts: Hosts) -> None:
    master = hosts.master.client()
    number = create(master, trainings.experiment(epochs=8, save_at=3, stay_at=5))
    wait_for_steps(master, number, 5)
    for name in running(hosts):
        hosts.engine.remove(name)
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    assert trial.restarts == 0
    assert "removed by someone else" in log_text(master, trial.id)
    assert "starting after epoch 3" in log_text(master, trial.id)


def test_trial_of_lost_agent_runs_on_another_agent(docker_engine: DockerEngine) -> None:
    with running_hosts(docker_engine, "lost", slots=1, reattach=2) as hosts:
        master = hosts.master.client()
        number = create(master, trainings.experiment(epochs=100_000, pause=0.1, save_at=3))
        wait_for_steps(master, number, 4)
        hosts.agents[0].kill()
        (orphan,) = running(hosts)
        hosts.engine.pause(orphan)  # its host is cut off: nothing is heard of the container either
        hosts.add("other", slots=1)
        trial = only_trial(master, number)
        wait_for(lambda: "starting after epoch 3" in log_text(master, trial.id), "the second attempt", 60)
        assert "lost" in log_text(master, trial.id)
        # It comes back late: the container is ended, and nothing of it is counted.
        hosts.engine.unpause(orphan)
        hosts.agents[0].start()
        wait_for(lambda: orphan not in running(hosts), "the end of the late container")
        assert only_trial(master, number).restarts == 0
        assert len(attempts(master, number)) == 2
        master.kill(number)
        ended_as(master, number, "CANCELED")


def running(hosts: Hosts) -> set[str]:
    """Names of the containers that run."""
    return {name for name in hosts.names() if hosts.engine.is_running(name)}


def attempts(master: Master, number: int) -> list[str]:
    """Ids of all attempts of an experiment's trials."""
    tasks = [trial.task_id for trial in master.trials(number)]
    return [allocation["allocationId"] for task in tasks for allocation in master.task(task)["allocations"]]


def test_the_queue_is_shown_and_changed(hosts: Hosts) -> None:
    master = hosts.master.client()
    searcher = {"name": "random", "metric": "error", "max_trials": 2, "max_concurrent_trials": 2}
    keys = {"resources": {"slots_per_trial": 2}}
    blocker = create(master, trainings.experiment(searcher, epochs=100_000, pause=0.1, keys=keys))
    wait_for_steps(master, blocker, 1)
    gang = trainings.experiment(keys={"resources": {"slots_per_trial": 4}})

    def queued() -> int:
        number = create(master, gang, TELLS_TIMES)
        wait_for(
            lambda: [job.explanation for job in master.jobs() if job.entity_id == str(number)] not in ([], [""]),
            "why it waits",
        )
        return number

    def queue() -> list[str]:
        return [job.entity_id for job in master.jobs() if job.entity_id in map(str, (blocker, first, second))]

    first, second = queued(), queued()  # what is asked for within a tenth of a second is queued in any order
    assert queue() == [str(blocker), str(first), str(second)]
    ids = {job.entity_id: job.job_id for job in master.jobs()}
    hosts.master.det("job", "update", ids[str(second)], "--ahead-of", ids[str(first)])
    assert queue() == [str(blocker), str(second), str(first)]
    hosts.master.det("job", "update-batch", f"{ids[str(first)]}.priority=50")
    assert {job.entity_id: job.raw["priority"] for job in master.jobs()}[str(first)] == 50
    refused = hosts.master.det("job", "update", ids[str(first)], "--priority", "100", check=False)
    assert "1 (served first) to 99" in refused.stderr
    agents = json.loads(hosts.master.det("agent", "list", "--json").stdout)
    assert [agent["id"] for agent in agents] == ["host1", "host2"]

    def taken() -> list[str]:
        slots = json.loads(hosts.master.det("slot", "list", "--json").stdout)
        return [slot["container"]["parent"] for slot in slots if slot["container"]]

    wait_for(lambda: len(taken()) == 4, "both trials on their slots")
    assert set(taken()) == set(attempts(master, blocker))
    master.kill(blocker)
    for number in (first, second):
        ended_as(master, number, "COMPLETED")
    earlier, later = (times(log_text(master, only_trial(master, number).id)) for number in (second, first))
    assert max(earlier) < min(later), "the slots of all were given to both"


def times(log: str) -> list[float]:
    return [float(line.partition("TIME ")[2]) for line in log.splitlines() if "TIME " in line]


def test_published_client_lists_and_changes_agents(hosts: Hosts, tmp_path: Path) -> None:
    try:
        environment = reference.environment()
    except reference.NoReference as reason:
        pytest.skip(str(reason))
    theirs = Reference(environment, hosts.master, tmp_path, user="admin")
    rows = theirs.rows("agent", "list")
    assert [(row["Agent ID"], row["Slots"], row["Resource Pool"], row["Enabled"]) for row in rows] == [
        ("host1", "2", "default", "True"),
        ("host2", "2", "default", "True"),
    ]
    theirs.det("agent", "disable", "host2")
    try:
        assert [row["Enabled"] for row in theirs.rows("agent", "list")] == ["True", "False"]
    finally:
        theirs.det("agent", "enable", "host2")
    theirs.det("slot", "disable", "host1", "0")
    try:
        assert hosts.entity(hosts.master.client(), "host1")["slots"]["0"]["enabled"] is False
    finally:
        theirs.det("slot", "enable", "host1", "0")
    master = hosts.master.client()
    number = create(master, trainings.experiment(epochs=100_000, pause=0.1))
    wait_for_steps(master, number, 1)
    job = next(job for job in master.jobs() if job.entity_id == str(number))
    theirs.det("job", "update", job.job_id, "--priority", "7")
    assert next(row["Priority"] for row in theirs.rows("job", "list") if row["ID"] == job.job_id) == "7"
    theirs.det("job", "update-batch", f"{job.job_id}.priority=8")
    assert next(row["Priority"] for row in theirs.rows("job", "list") if row["ID"] == job.job_id) == "8"
    master.kill(number)
    ended_as(master, number, "CANCELED")
