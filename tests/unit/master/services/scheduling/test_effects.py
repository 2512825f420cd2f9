"""Each key of each configuration has an effect where its job runs, or a sentence: a walk over all keys and places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.compatibility import _sections
from tests.unit.master.services.scheduling.test_job_spec import cluster
from trainmaster.config.experiment import ExperimentConfig, parse_unfinished
from trainmaster.config.shapes import Section
from trainmaster.config.task import TaskConfig
from trainmaster.dispatchers.base import JobFeature
from trainmaster.master.services.scheduling import effects
from trainmaster.master.values.configs import StoredConfig

FEATURES = {feature.value for feature in JobFeature}
SECTIONS = {"slurm", "pbs"}
KINDS = ("slurm", "pbs", "local", "docker")
RUNTIMES = ("none", "apptainer", "podman")


def keys(model: type[Section], above: str = "") -> Iterator[str]:
    """The paths of all keys of a model that have no key below them, those of lists included."""
    yield from (above + key for key in model.ignored)
    for name, field in model.model_fields.items():
        path = above + (field.alias or name)
        below = [key for inner, _ in _sections(field.annotation) for key in keys(inner, path + ".")]
        yield from below or [path]


def tables(path: str, config: str) -> list[str]:
    """The tables of `effects` that a key is in, by itself or by a key above it."""
    parts = path.split(".")
    above = {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    found = {
        "containers": above & effects.IN_CONTAINERS.keys(),
        "features": above & FEATURES,
        "sections": above & SECTIONS,
        "for all": above & effects.FOR_ALL,
        "tasks": above & effects.OF_TASKS.keys(),
        "nowhere": above & effects.NOWHERE.keys(),
        "ignored": above & effects.IGNORED[config],
    }
    names = [name for name, places in found.items() if places]
    # The more exact one counts: bind_mounts.propagation, of bind_mounts.
    return [name for name in names if name in ("nowhere", "ignored")] or names


ALL = [
    *(("experiment", key) for key in sorted(set(keys(ExperimentConfig)))),
    *(("task", key) for key in sorted(set(keys(TaskConfig)))),
]


@pytest.mark.parametrize(("config", "key"), ALL)
def test_each_key_is_in_one_table(config: str, key: str) -> None:
    """A new key belongs into `effects`: into FOR_ALL if it has its effect everywhere."""
    assert len(tables(key, config)) == 1


EXAMPLES: dict[str, Any] = {
    "bind_mounts": [{"host_path": "/data", "container_path": "data"}],
    "bind_mounts.propagation": [{"host_path": "/data", "container_path": "/data", "propagation": "rshared"}],
    "environment.image": "python:3.12",
    "environment.force_pull_image": True,
    "environment.registry_auth": {"username": "ada"},
    "environment.add_capabilities": ["SYS_PTRACE"],
    "environment.drop_capabilities": ["MKNOD"],
    "environment.pod_spec": {"spec": {}, "kind": "Pod"},
    "environment.ports": {"web": 80},
    "resources.devices": [{"host_path": "/dev/fuse", "container_path": "/dev/fuse"}],
    "resources.priority": 10,
    "resources.weight": 2.0,
    "resources.shm_size": 2**30,
    "resources.native_parallel": True,
    "checkpoint_storage.checkpoint_path": "x",
    "checkpoint_storage.tensorboard_path": "x",
    "checkpoint_storage.propagation": "rshared",
    "slurm": {"slots_per_node": 2},
    "slurm.gpu_type": "a100",
    "pbs": {"slots_per_node": 2},
}
WITHOUT_SHM = {("apptainer", kind) for kind in KINDS} | {("none", kind) for kind in KINDS}


def expected(key: str, kind: str, runtime: str) -> bool:
    """Whether a key is to have a sentence, said here a second time."""
    contained = kind == "docker" or runtime != "none"
    if key in effects.NOWHERE:
        return True
    if key in effects.IN_CONTAINERS:
        return not contained
    if key == "slurm":
        return kind not in ("slurm", "docker")
    if key == "slurm.gpu_type":
        return kind != "slurm"
    if key == "pbs":
        return kind != "pbs"
    if kind == "docker":
        return False
    if key in ("resources.shm_size", "resources.devices"):
        return runtime != "podman"
    return True


def nested(key: str) -> dict[str, Any]:
    parts = key.split(".")
    if key == "bind_mounts.propagation":
        return {"bind_mounts": EXAMPLES[key]}
    value = EXAMPLES[key]
    for part in reversed(parts):
        value = {part: value}
    return dict(value)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", EXAMPLES)
def test_key_without_effect_in_place_has_one_remark(key: str, kind: str, runtime: str) -> None:
    place = effects.JobPlace.of(cluster(kind, runtime), schedules=kind == "docker")
    found = [*effects.remarks(place, StoredConfig(nested(key))), *effects.unused(place, nested(key))]
    wanted = 1 if expected(key, kind, runtime) else 0
    assert len(found) == wanted, found
    section = key.partition(".")[0]
    assert all(line.startswith((key, section) if section in SECTIONS else key) for line in found)


def test_all_keys_of_the_tables_have_an_example() -> None:
    assert {*effects.IN_CONTAINERS, *effects.NOWHERE, *FEATURES, *SECTIONS, "slurm.gpu_type"} == EXAMPLES.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_of_a_whole_configuration_has_no_sentence(kind: str) -> None:
    """Forks send all keys, with the defaults among them."""
    whole = parse_unfinished("entrypoint: x").to_json()
    place = effects.JobPlace.of(cluster(kind), schedules=False)
    assert effects.unused(place, whole) == []
    assert effects.unused(place, TaskConfig().to_json(), "COMMAND") == []


def test_keys_of_other_kinds_of_tasks() -> None:
    place = effects.JobPlace.of(cluster("local"), schedules=True)
    asked = {"notebook_idle_type": "activity", "tensorboard_args": ["--x"], "debug": True}
    assert effects.unused(place, asked, "SHELL") == [
        "debug has no effect in a task.",
        "notebook_idle_type has no effect: it is for notebooks.",
        "tensorboard_args has no effect: it is for tensorboards.",
    ]
    assert effects.unused(place, {"tensorboard_args": ["--x"]}, "TENSORBOARD") == []


@pytest.mark.parametrize(
    ("searcher", "shared"),
    [
        ({"name": "single"}, False),
        ({"name": "random", "max_trials": 1}, False),
        ({"name": "random", "max_trials": 4, "max_concurrent_trials": 1}, False),
        ({"name": "random", "max_trials": 4, "max_concurrent_trials": 0}, True),
        ({"name": "grid"}, True),
    ],
)
def test_concurrent_trials_are_warned_of_shared_ports(searcher: dict[str, Any], shared: bool) -> None:
    ports = [{"proxy_port": 8265}, {"proxy_port": 9000}]
    config = {"searcher": searcher, "environment": {"proxy_ports": ports}}
    found = effects.remarks(effects.JobPlace.of(cluster("local"), schedules=False), StoredConfig(config))
    assert any(
        line.startswith("environment.proxy_ports (8265, 9000): trials that run on one node") for line in found
    ) is (shared)
    without_ports = StoredConfig({"searcher": searcher})
    assert effects.remarks(effects.JobPlace.of(cluster("local"), schedules=False), without_ports) == []
