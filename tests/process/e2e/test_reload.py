"""SIGHUP: the master takes over a changed configuration, and no job is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.process.e2e.conftest import LOCAL
from tests.support import trainings
from tests.support.master import MasterProcess, ended_as, files, log_text, only_trial, wait_for
from trainmaster.client.errors import APIError
from trainmaster.client.master import Master

TWO = """\
resource_manager: {type: local, slots: 4, poll_interval: 0.3}
additional_resource_managers:
  - {type: local, cluster_name: second, pool_name: small, slots: 1, poll_interval: 0.3}
resource_pools:
  - pool_name: careful
    description: for those who wait
    provider: {type: hpc, partition: small}
    task_container_defaults: {environment_variables: [CARE=much]}
"""
SAYS = """
import os, sys
print("care:", os.environ.get("CARE"), flush=True)
"""


def reload(master: MasterProcess, text: str, says: str) -> None:
    """Write a configuration, send SIGHUP, and wait until the master's log says `says` about it."""
    before = master.log.stat().st_size
    master.config.write_text(text)
    os.kill(master.pid, signal.SIGHUP)
    wait_for(lambda: says in master.log.read_bytes()[before:].decode(errors="replace"), f"{says!r} in the master's log")


def pools(master: Master) -> dict[str, int]:
    return {pool["name"]: pool["slotsAvailable"] for pool in master.pools()}


def test_a_reload_adds_and_removes_clusters_while_jobs_go_on(own_master: MasterProcess) -> None:
    own_master.start()
    master = own_master.client()
    runs = master.create_experiment(trainings.experiment(epochs=60, stay_at=2), files(train__py=trainings.COUNTING)).id
    wait_for(lambda: only_trial(master, runs).batches >= 2, "the first epochs")
    assert pools(master) == {"default": 4}

    namesake = TWO.replace("pool_name: small, ", "").replace("partition: small", "partition: default")
    reload(own_master, namesake, "the configuration was reloaded: default, second")
    both = {"default": 4, "careful": 4, "second.default": 1, "second.careful": 1}
    wait_for(lambda: pools(master) == both, "the added pools")
    assert "second.default" in own_master.log.read_text()  # and why it is called so
    reload(own_master, TWO, "the configuration was reloaded: default, second")
    wait_for(lambda: pools(master) == {"default": 4, "small": 1, "careful": 1}, "the renamed pool")
    elsewhere = master.create_experiment(
        trainings.experiment(keys={"resources": {"resource_pool": "careful"}}), files(train__py=SAYS)
    ).id
    ended_as(master, elsewhere, "COMPLETED")
    assert any("care: much" in line for line in log_lines(master, elsewhere))

    # Another number of slots is another dispatcher: the job that the old one started is found by the new one.
    reload(own_master, LOCAL.replace("slots: 4", "slots: 3"), "the configuration was reloaded: default")
    wait_for(lambda: pools(master) == {"default": 3}, "the changed pool")
    saved = only_trial(master, runs).batches
    assert only_trial(master, runs).state == "ACTIVE"
    master.pause(runs)
    wait_for(lambda: only_trial(master, runs).state == "PAUSED", "the pause")
    trial = only_trial(master, runs)
    assert (trial.restarts, trial.batches >= saved) == (0, True)


def log_lines(master: Master, experiment_id: int) -> list[str]:
    return log_text(master, only_trial(master, experiment_id).id).splitlines()


def test_reload_of_invalid_configuration_changes_nothing(own_master: MasterProcess, tmp_path: Path) -> None:
    own_master.config.write_text(TWO)
    own_master.start()
    master = own_master.client()
    runs = master.create_experiment(
        trainings.experiment(epochs=200, stay_at=1, keys={"resources": {"resource_pool": "small"}}),
        files(train__py=trainings.COUNTING),
    ).id
    wait_for(lambda: only_trial(master, runs).batches >= 1, "the first epoch")
    known = pools(master)

    reload(own_master, "resource_manager: {type: local, slot: 4}\n", "unknown key; did you mean slots?")
    reload(own_master, TWO.replace("type: local, slots: 4", "type: nonsense"), "there is no dispatcher 'nonsense'")
    reload(own_master, LOCAL, "'second' has 1 live job and is no longer named")
    moved = TWO.replace("cluster_name: second,", f"cluster_name: second, job_storage_root: {tmp_path}/jobs,")
    reload(own_master, moved, "job_storage_root of the resource manager 'second' cannot change")
    assert pools(master) == known

    reload(own_master, TWO.replace("slots: 4", "slots: 2") + "port: 1\n", "port: the change takes effect when")
    wait_for(lambda: pools(master)["default"] == 2, "the changed pool")
    assert only_trial(master, runs).state == "ACTIVE"
    master.kill(runs)
    ended_as(master, runs, "CANCELED")
    reload(own_master, LOCAL, "the configuration was reloaded: default")
    gone = trainings.experiment(keys={"resources": {"resource_pool": "small"}})
    with pytest.raises(APIError, match="There is no resource pool 'small'"):
        master.create_experiment(gone, files(train__py=SAYS))


def test_jobs_of_removed_cluster_resume_when_it_returns(own_master: MasterProcess) -> None:
    gate = own_master.folder / "gate"
    own_master.config.write_text(TWO)
    own_master.start()
    master = own_master.client()
    runs = master.create_experiment(
        trainings.experiment(epochs=3, wait_at=1, wait_for=str(gate), keys={"resources": {"resource_pool": "small"}}),
        files(train__py=trainings.COUNTING),
    ).id
    wait_for(lambda: only_trial(master, runs).batches >= 1, "the first epoch")
    own_master.stop()
    own_master.config.write_text(LOCAL)
    own_master.start()
    assert "1 live jobs belong to the resource manager 'second'" in own_master.log.read_text()
    own_master.stop()
    own_master.config.write_text(TWO)
    own_master.start()
    gate.touch()
    ended_as(own_master.client(), runs, "COMPLETED")
    assert only_trial(own_master.client(), runs).restarts == 0
