"""Which keys of a configuration have an effect where its job runs, and the sentences on those that have none.

Each key of experiments and of tasks is in one of the tables here; a test walks over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.config.environment import DEFAULT_IMAGE, DEFAULT_ROCM_IMAGE, Resources
from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.searcher import IGNORED as SEARCHER_IGNORED
from trainmaster.config.shapes import Section
from trainmaster.config.task import TaskConfig, TaskResources
from trainmaster.config.user_options import OF_DETERMINED, sections_of_plugins
from trainmaster.containers import container_runtime
from trainmaster.dispatchers.base import JobFeature
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.values.configs import JobConfig, StoredConfig

IN_CONTAINERS = {
    "bind_mounts": "a job without a container sees the files of its node under their own paths",
    "environment.image": "a job without a container runs with the programs of its node",
    "environment.force_pull_image": "a job without a container needs no image",
}
"""Keys that a job without a container ignores, with what it does instead."""

NOWHERE = {
    "bind_mounts.propagation": "mounts are private",
    "checkpoint_storage.checkpoint_path": "storage_path names the folder of checkpoints",
    "checkpoint_storage.propagation": "mounts are private",
    "checkpoint_storage.tensorboard_path": "event files lie in the storage beside the checkpoints",
    "environment.pod_spec": "there is no Kubernetes here",
    "environment.ports": "environment.proxy_ports names the ports of a job",
    "resources.native_parallel": "entrypoint names the launcher of a job's processes",
}
"""Keys that are read and change nothing, each with the reason."""

OF_TASKS = {
    "notebook_idle_type": ("NOTEBOOK",),
    "tensorboard_args": ("TENSORBOARD",),
}
"""Keys of tasks for some kinds of them."""

FOR_ALL = frozenset(
    {
        "checkpoint_policy",  # this and the like are for the training, which reads its configuration
        "checkpoint_storage",
        "data",
        "debug",
        "description",
        "entrypoint",
        "environment.conda",
        "environment.environment_variables",
        "environment.modules",
        "environment.proxy_ports",
        "environment.setup",
        "environment.venv",
        "failure_fuse",
        "hyperparameters",
        "idle_timeout",
        "integrations",
        "labels",
        "log_policies",
        "max_restarts",
        "min_checkpoint_period",
        "min_validation_period",
        "name",
        "optimizations",
        "perform_initial_validation",
        "preemption_timeout",
        "profiling",
        "project",
        "records_per_epoch",
        "reproducibility",
        "resources.is_single_node",
        "resources.max_slots",
        "resources.resource_pool",
        "resources.slots",
        "resources.slots_per_trial",
        "retention_policy",
        "scheduling_unit",
        "searcher",
        "work_dir",
        "workspace",
    }
)
"""Keys that have their effect everywhere, those below them included."""


@dataclass(frozen=True)
class JobPlace:
    """Where a job runs: the dispatcher's name, the section that it reads with the keys in it (None: all), whether there
    is a container and by which runtime, and the settings that both support."""

    kind: str
    section: str
    section_keys: frozenset[str] | None
    contained: bool
    runtime: str
    features: frozenset[JobFeature]

    @classmethod
    def of(cls, cluster: Cluster, *, schedules: bool) -> JobPlace:
        """`schedules`: the dispatcher orders jobs itself."""
        traits, name = cluster.dispatcher.traits, cluster.container_runtime
        keys = container_runtime(name).supports
        features = set(traits.supports) | {feature for feature in JobFeature if _key(feature) in keys}
        features |= {JobFeature.PRIORITY, JobFeature.WEIGHT} if schedules else set()
        # A dispatcher that can log in to a registry starts containers whatever the runtime's name.
        contained = JobFeature.REGISTRY_LOGIN in features or name != "none"
        section = traits.user_section or cluster.kind
        return cls(cluster.kind, section, traits.section_keys, contained, name, frozenset(features))


def remarks(place: JobPlace, config: JobConfig) -> list[str]:
    """Return what a job requests and its place ignores, a sentence each, for its owner. `config`: all is merged into
    it."""
    asked = [feature for feature in JobFeature if feature not in place.features and _asks(config, feature)]
    sentences = []
    if names := [feature.value for feature in asked if feature is not JobFeature.SHM_SIZE]:
        sentences.append(f"{' and '.join(names)}: {place.kind} does not support this.")
    if JobFeature.SHM_SIZE in asked:
        who = "a job without a container" if not place.contained else f"with {place.runtime} a job"
        sentences.append(f"{JobFeature.SHM_SIZE}: {who} uses the node's own /dev/shm, as large as it is.")
    if not place.contained and (moved := _moved(config)):
        sentences.append(f"bind_mounts ({', '.join(moved)}) has no effect: {IN_CONTAINERS['bind_mounts']}.")
    if ports := _shared_ports(config):
        sentences.append(
            f"environment.proxy_ports ({ports}): trials that run on one node at the same time want the same ports, and "
            "only one of them gets each; set searcher.max_concurrent_trials to 1, or give each trial a whole node."
        )
    return sentences


def _shared_ports(config: JobConfig) -> str:
    """Return the ports that several trials of a search may want at the same time: jobs share the network of their
    node."""
    if not isinstance(config, StoredConfig):
        return ""
    searcher = config.searcher
    if searcher.name == "single" or 1 in (searcher.max_trials, searcher.max_concurrent_trials):
        return ""
    return ", ".join(str(port.proxy_port) for port in config.environment.proxy_ports)


def unused(place: JobPlace, given: Mapping[str, Any], task: str = "") -> list[str]:
    """Return the keys that somebody has written and that have no effect in this place, beside those of `remarks`; a
    sentence each. `given`: only what was written. `task`: the kind of a standalone task."""
    notes = [f"{path} has no effect in a task." for path in sorted(IGNORED["task"]) if task and _is_set(given, path)]
    notes += [f"{path} has no effect: {why}." for path, why in NOWHERE.items() if _is_set(given, path)]
    if not place.contained:
        notes += [
            f"{path} has no effect: {why}."
            for path, why in IN_CONTAINERS.items()
            if path != "bind_mounts" and _is_set(given, path)
        ]
    for name in sorted({*OF_DETERMINED, *sections_of_plugins()}):
        if name != place.section:
            if _is_set(given, name):
                notes.append(f"{name} has no effect: the job runs by {place.kind}, which does not read this section.")
        elif place.section_keys is not None:
            unread = [key for key in given.get(name) or () if key not in place.section_keys]
            notes += [
                f"{name}.{key} has no effect by {place.kind}." for key in unread if _is_set(given, f"{name}.{key}")
            ]
    for path, kinds in OF_TASKS.items() if task else ():
        if task not in kinds and _is_set(given, path):
            notes.append(f"{path} has no effect: it is for {' and '.join(kind.lower() + 's' for kind in kinds)}.")
    return notes


# In copies of whole configurations.
_DEFAULTS = (None, False, "", "rprivate", "kernels_or_terminals", DEFAULT_IMAGE, DEFAULT_ROCM_IMAGE)


IGNORED = {
    "experiment": frozenset(
        {
            *ExperimentConfig.ignored,
            *(f"resources.{key}" for key in Resources.ignored),
            *(f"searcher.{key}" for key in SEARCHER_IGNORED),
        }
    ),
    "task": frozenset({*TaskConfig.ignored, *(f"resources.{key}" for key in TaskResources.ignored)}),
}
"""Keys of Determined's files that are read and forgotten."""


def _key(feature: JobFeature) -> str:
    return feature.partition(".")[2]


def _asks(config: JobConfig, feature: JobFeature) -> bool:
    section: Section = getattr(config, feature.partition(".")[0])
    value = getattr(section, _key(feature))
    return bool(value) and not (feature is JobFeature.WEIGHT and value == 1.0)


def _moved(config: JobConfig) -> list[str]:
    """Return the targets of mounts that are not under their own path on the node."""
    return [mount.container_path for mount in config.bind_mounts if mount.container_path != mount.host_path]


def _is_set(given: Any, path: str) -> bool:
    """Whether a value other than the default is written under a path; lists are looked through."""
    return any(_says(value) for value in _at(given, path.split(".")))


def _says(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_says, value.values()))
    if isinstance(value, list):
        return any(map(_says, value))
    return value not in _DEFAULTS


def _at(given: Any, path: list[str]) -> Iterator[Any]:
    if isinstance(given, list):
        for one in given:
            yield from _at(one, path)
    elif not path:
        yield given
    elif isinstance(given, Mapping) and path[0] in given:
        yield from _at(given[path[0]], path[1:])
