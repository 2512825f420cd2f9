"""Experiments that move to another pool while they wait and while they train: Docker hosts and this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import trainings
from tests.support.docker.engine import IMAGE, DockerEngine, docker_engine
from tests.support.docker.masters import Hosts, running_hosts
from tests.support.master import ended_as, files, log_text, only_trial, validations, wait_for
from trainmaster.client.master import Master

__all__ = ["docker_engine"]
pytestmark = pytest.mark.docker

POOLS = """
  resource_pools: [{pool_name: one}, {pool_name: two}]
additional_resource_managers:
  - {type: local, cluster_name: here, pool_name: here, slots: 1, poll_interval: 0.3}
"""


@pytest.fixture(scope="module")
def hosts(docker_engine: DockerEngine) -> Iterator[Hosts]:
    """A host of two slots in pool one, a host of one slot in pool two, and the master's own machine."""
    with running_hosts(docker_engine, more=POOLS) as hosts:
        hosts.add("large", slots=2, pool="one")
        hosts.add("small", slots=1, pool="two")
        yield hosts


def begin(hosts: Hosts, pool: str, slots: int, **hparams: Any) -> tuple[int, str]:
    """An experiment in a pool: its id, and that of its job."""
    master = hosts.master.client()
    keys = {"resources": {"slots_per_trial": slots, "resource_pool": pool}, "environment": {"image": IMAGE}}
    text = trainings.experiment(**{"epochs": 3, **hparams}, keys=keys)
    made = master.create_experiment(text, files(train__py=trainings.COUNTING))
    return made.id, str(made.raw["jobId"])


def trained(master: Master, number: int) -> int:
    return max((trial.batches or 0 for trial in master.trials(number)), default=0)


def attempts(master: Master, number: int) -> int:
    return len(master.task(only_trial(master, number).task_id)["allocations"])


def test_a_job_that_waits_goes_to_another_pool_and_runs_there(hosts: Hosts) -> None:
    master = hosts.master.client()
    blocker, blocking = begin(hosts, "one", 2, epochs=100_000)
    wait_for(lambda: trained(master, blocker) > 0, "the first job to run")
    waits, waiting = begin(hosts, "one", 1)
    wait_for(
        lambda: [job for job in master.jobs(pool="one") if job.job_id == waiting and job.explanation], "why it waits"
    )
    for pool, why in (
        ("too", "no resource pool 'too'. Did you mean 'two'"),
        ("here", "asks for 2 slots, and this machine has 1"),
        ("two", "asks for 2 slots, and the agents of pool two have 1 together"),
    ):
        refused = hosts.master.det("job", "update", blocking, "--resource-pool", pool, check=False)
        assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr
    hosts.master.det("job", "update", waiting, "--resource-pool", "two")
    ended_as(master, waits, "COMPLETED")
    told = log_text(master, only_trial(master, waits).id)
    assert "It goes to pool two from now on" in told
    assert "in pool two" in told
    assert only_trial(master, waits).restarts == 0
    assert master.experiment(waits).raw["resourcePool"] == "two"
    assert not master.experiment(blocker).ended_for_good
    master.kill(blocker)
    ended_as(master, blocker, "CANCELED")


def test_running_job_saves_and_continues_in_another_pool(hosts: Hosts) -> None:
    master = hosts.master.client()
    number, job = begin(hosts, "two", 1, epochs=10, stay_at=2)
    wait_for(lambda: trained(master, number) >= 2, "some epochs")
    hosts.master.det("job", "update-batch", f"{job}.resource-pool=here")
    ended_as(master, number, "COMPLETED")
    trial = only_trial(master, number)
    told = log_text(master, trial.id)
    assert "leaving after epoch" in told
    assert "starting after epoch 0" in told
    assert (trial.restarts, attempts(master, number)) == (0, 2)
    assert validations(master, [trial.id]) == {trial.id: list(range(1, 11))}
    assert "in pool here" in told
