"""What a configuration becomes on its way to a scheduler."""

from __future__ import annotations

import pytest

from trainmaster.dispatchers.base import SlotType
from trainmaster.master.services.scheduling.job_spec import devices_of, environment_for, image_for, remarks

ASKS = {
    "environment": {"registry_auth": {"username": "ada"}, "add_capabilities": ["SYS_PTRACE"], "drop_capabilities": []},
    "resources": {"devices": [{"host_path": "/dev/fuse", "container_path": "/dev/fuse"}]},
}


def test_the_owner_is_told_what_a_scheduler_does_not_heed() -> None:
    assert remarks("slurm", ASKS, 1, SlotType.CUDA) == [
        "environment.registry_auth and environment.add_capabilities and resources.devices: only Docker hosts heed "
        "this; slurm does not."
    ]
    assert remarks("docker", ASKS, 1, SlotType.CUDA) == []
    assert remarks("slurm", {"environment": None, "resources": {"devices": []}}, 1, SlotType.CUDA) == []


def test_an_order_that_the_scheduler_does_not_keep_is_not_passed_over_in_silence() -> None:
    config = {"resources": {"priority": 10, "weight": 2.0}}
    assert remarks("pbs", config, 1, SlotType.CUDA) == [
        "resources.priority and resources.weight: only Docker hosts heed this; pbs does not."
    ]
    assert remarks("docker", config, 1, SlotType.CUDA) == []
    own = {**config, "environment": ASKS["environment"]}
    assert remarks("own", own, 1, SlotType.CUDA, schedules=True) == [
        "environment.registry_auth and environment.add_capabilities: only Docker hosts heed this; own does not."
    ]
    assert remarks("local", {"resources": {"priority": None, "weight": 1.0}}, 1, SlotType.CPU) == []


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
    config = {"environment": {"image": images, "environment_variables": kinds}}
    devices = devices_of(slots, slot_type)
    assert (image_for(config, devices), environment_for(config, devices)) == (image, variables)
    assert image_for({"environment": {"image": "one"}}, devices) == "one"


@pytest.mark.parametrize(
    ("slots", "slot_type", "said"),
    [
        (8, SlotType.CUDA, None),
        (
            6,
            SlotType.CUDA,
            "6 slots are no multiple of slurm.slots_per_node: the job takes 2 x 4, 2 more than it asks for.",
        ),
        (1, SlotType.CUDA, None),  # gets the one
        (
            1,
            SlotType.CPU,
            "1 slot is no multiple of slurm.slots_per_node: the job takes 1 x 4, 3 more than it asks for.",
        ),
        (0, SlotType.CUDA, None),
    ],
)
def test_what_is_reserved_beyond_what_was_asked_for_is_told(slots: int, slot_type: SlotType, said: str | None) -> None:
    config = {"resources": {}, "slurm": {"slots_per_node": 4}}
    assert remarks("slurm", config, slots, slot_type) == ([said] if said else [])
    assert remarks("docker", config, slots, slot_type) == []
    assert remarks("slurm", {**config, "resources": {"is_single_node": True}}, slots, slot_type) == []


def test_what_a_container_runtime_does_with_shared_memory_and_devices() -> None:
    config = {"resources": {"shm_size": 2**30, "devices": [{"host_path": "/dev/x", "container_path": "/dev/x"}]}}
    assert remarks("slurm", config, 1, SlotType.CUDA, runtime="podman") == []
    assert remarks("slurm", config, 1, SlotType.CUDA, runtime="apptainer") == [
        "resources.devices: only Docker hosts heed this; slurm does not.",
        "resources.shm_size: with apptainer a job uses the node's own /dev/shm, as large as it is.",
    ]
    assert "a job without a container" in remarks("local", config, 1, SlotType.CPU)[1]
