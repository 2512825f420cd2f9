"""What a configuration becomes on its way to a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainmaster import plugins
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.scheduling.effects import JobPlace, remarks
from trainmaster.master.services.scheduling.job_spec import devices_of, environment_for, image_for
from trainmaster.master.values.configs import StoredConfig

ASKS: dict[str, Any] = {
    "environment": {"registry_auth": {"username": "ada"}, "add_capabilities": ["SYS_PTRACE"], "drop_capabilities": []},
    "resources": {"devices": [{"host_path": "/dev/fuse", "container_path": "/dev/fuse"}]},
}


def cluster(kind: str, runtime: str = "none") -> Cluster:
    """A cluster of the dispatcher `kind`, which is asked nothing but its traits."""
    plugin = plugins.load(plugins.DISPATCHERS, kind)
    return Cluster(kind, plugin.__new__(plugin), Path("/nowhere"), container_runtime=runtime)


def told(kind: str, config: dict[str, Any], *, schedules: bool = False, runtime: str = "none") -> list[str]:
    return remarks(JobPlace.of(cluster(kind, runtime), schedules=schedules), StoredConfig(config))


def test_remarks_name_settings_scheduler_does_not_support() -> None:
    assert told("slurm", ASKS) == [
        "environment.registry_auth and environment.add_capabilities and resources.devices: slurm does not support this."
    ]
    assert told("docker", ASKS) == []
    assert told("slurm", {"environment": None, "resources": {"devices": []}}) == []


def test_unsupported_priority_and_weight_are_remarked() -> None:
    config = {"resources": {"priority": 10, "weight": 2.0}}
    assert told("pbs", config) == ["resources.priority and resources.weight: pbs does not support this."]
    assert told("docker", config) == []
    own = {**config, "environment": ASKS["environment"]}
    assert told("local", own, schedules=True) == [
        "environment.registry_auth and environment.add_capabilities: local does not support this."
    ]
    assert told("local", {"resources": {"priority": None, "weight": 1.0}}) == []


@pytest.mark.parametrize(
    ("slots", "slot_type", "image", "variables"),
    [
        (1, "cuda", "of-cuda", {"KIND": "cuda"}),
        (1, "rocm", "of-rocm", {}),
        (1, "cpu", "of-cpu", {"KIND": "cpu"}),
        (0, "cuda", "of-cpu", {"KIND": "cpu"}),  # it has none of the pool's accelerators
    ],
)
def test_image_and_variables_go_by_the_kind_of_slots(
    slots: int, slot_type: str, image: str, variables: dict[str, str]
) -> None:
    kinds = {"cpu": ["KIND=cpu"], "cuda": ["KIND=cuda"], "rocm": []}
    images = {kind: f"of-{kind}" for kind in ("cpu", "cuda", "rocm")}
    config = StoredConfig({"environment": {"image": images, "environment_variables": kinds}})
    devices = devices_of(slots, slot_type)
    assert (image_for(config, devices), environment_for(config, devices)) == (image, variables)
    assert image_for(StoredConfig({"environment": {"image": "one"}}), devices) == "one"


def test_unsupported_shared_memory_and_devices_are_remarked() -> None:
    config = {"resources": {"shm_size": 2**30, "devices": [{"host_path": "/dev/x", "container_path": "/dev/x"}]}}
    assert told("slurm", config, runtime="podman") == []
    assert told("slurm", config, runtime="apptainer") == [
        "resources.devices: slurm does not support this.",
        "resources.shm_size: with apptainer a job uses the node's own /dev/shm, as large as it is.",
    ]
    assert "a job without a container" in told("local", config)[1]
