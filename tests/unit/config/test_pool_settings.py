"""The administrator's settings for a pool's jobs reach the jobs."""

from __future__ import annotations

import pytest

from trainmaster.config.master import parse_master
from trainmaster.master.services.scheduling.job_spec import labels
from trainmaster.master.site import pool_settings
from trainmaster.master.values.configs import StoredConfig

CONFIG = """
resource_manager:
  type: slurm
  job_storage_root: /x
  rendezvous_network_interface: ib0
  partition_overrides:
    GPU:
      rendezvous_network_interface: ib1
      proxy_network_interface: eno1
      task_container_defaults: {dtrain_network_interface: hsn0, startup_hook: module load cuda}
resource_pools:
  - pool_name: careful
    provider: {type: hpc, partition: gpu}
    task_container_defaults: {gloo_port_range: 1000-2000, startup_hook: ulimit -n 4096}
task_container_defaults: {gloo_port_range: 10-20, startup_hook: umask 077}
"""


def test_innermost_setting_wins_and_hooks_run_outside_in() -> None:
    config = parse_master(CONFIG)
    found = pool_settings(config, config.resource_manager)
    assert found[""].environment == {"GLOO_PORT_RANGE": "10-20", "DET_SLURM_RENDEZVOUS_IFACE": "ib0"}
    assert found[""].startup_hooks == ("umask 077",)
    assert found["gpu"].environment == {
        "DET_INTER_NODE_NETWORK_INTERFACE": "hsn0",
        "NCCL_SOCKET_IFNAME": "hsn0",
        "GLOO_SOCKET_IFNAME": "hsn0",
        "GLOO_PORT_RANGE": "10-20",
        "DET_SLURM_RENDEZVOUS_IFACE": "ib1",
        "DET_SLURM_PROXY_IFACE": "eno1",
    }
    assert found["careful"].environment == {**found["gpu"].environment, "GLOO_PORT_RANGE": "1000-2000"}
    assert found["careful"].startup_hooks == ("umask 077", "module load cuda", "ulimit -n 4096")


def test_pools_of_docker_hosts_have_settings_of_their_own() -> None:
    """Wherever the file names the pool; sizes and networks too. What nobody says is the manager's."""
    text = """
resource_manager:
  type: agent
  resource_pools:
    - pool_name: near
      task_container_defaults: {startup_hook: module load cuda, work_dir: /w, network_mode: bridge}
resource_pools:
  - pool_name: far
    task_container_defaults: {shm_size_bytes: 1 GiB, dtrain_network_interface: ib0}
task_container_defaults: {startup_hook: umask 077}
"""
    config = parse_master(text)
    found = pool_settings(config, config.managers[0])
    near, far = found["near"], found["far"]
    assert (near.startup_hooks, near.work_dir) == (("umask 077", "module load cuda"), "/w")
    assert (near.network_mode, near.shm_size) == ("bridge", 4 * 2**30)
    assert (far.network_mode, far.shm_size, far.startup_hooks) == ("", 2**30, ("umask 077",))
    assert far.environment["NCCL_SOCKET_IFNAME"] == "ib0"
    assert found[""].network_mode == ""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("project", ("vision/2",)),
        ("workspace", ("lab",)),
        ("label", ("acct:a", "acct:b", "fast")),
        ("label:acct:", ("a", "b")),
        ("label:none", ()),
        ("", ()),
    ],
)
def test_the_labels_that_the_scheduler_gets_for_its_accounts(source: str, words: tuple[str, ...]) -> None:
    config = StoredConfig({"project": "vision/2", "workspace": "lab", "labels": ["fast", "acct:b", "acct:a"]})
    assert labels(source, config) == words
