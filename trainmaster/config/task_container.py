"""Models `task_container_defaults`: the administrator's settings for all jobs, or those of a partition or pool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from trainmaster.config.environment import (
    BindMount,
    Devices,
    Images,
    LogPolicy,
    RegistryAuth,
    Variables,
    images,
    variables,
)
from trainmaster.config.shapes import Bytes, Line, Natural, Section, Text
from trainmaster.config.user_options import Pbs, Slurm, WithUserOptions

SHM_SIZE = 4 * 2**30
PREEMPTION_TIMEOUT = 3600
"""Seconds between the preemption request and the kill (the grace), unless set otherwise."""

BUILT_IN: dict[str, Any] = {
    "preemption_timeout": PREEMPTION_TIMEOUT,
    "log_policies": [
        {"name": "CUDA OOM", "pattern": ".*CUDA out of memory.*"},
        {"name": "ECC Error", "pattern": ".*uncorrectable ECC error encountered.*"},
    ],
}
"""Defaults of experiments where the administrator has set none."""


class TaskContainerDefaults(WithUserOptions):
    """One section. No field has a default, so that an inner section overrides only what it sets."""

    ignored: ClassVar[frozenset[str]] = frozenset(
        {"cpu_pod_spec", "gpu_pod_spec", "checkpoint_gc_pod_spec", "kubernetes"}
    )

    dtrain_network_interface: Line | None = None
    nccl_port_range: Line | None = None
    gloo_port_range: Line | None = None
    shm_size_bytes: Bytes | None = None
    network_mode: Line | None = None
    image: Annotated[Images, BeforeValidator(images)] | None = None
    registry_auth: RegistryAuth | None = None
    force_pull_image: bool | None = None
    environment_variables: Annotated[Variables, BeforeValidator(variables)] | None = None
    add_capabilities: list[Line] | None = None
    drop_capabilities: list[Line] | None = None
    devices: Devices | None = None
    bind_mounts: list[BindMount] | None = None
    work_dir: Line | None = None
    slurm: Slurm | None = None
    pbs: Pbs | None = None
    startup_hook: Text | None = None
    log_policies: list[LogPolicy] | None = None
    preemption_timeout: Natural | None = None

    def fragment(self) -> dict[str, Any]:
        """Return the part that belongs to an experiment's configuration, in that configuration's shape."""
        given = self.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        top_level = (*_TOP_LEVEL, *self.sections_of_plugins())
        fragment = {key: given[key] for key in top_level if key in given}
        if environment := {key: given[key] for key in _ENVIRONMENT if key in given}:
            fragment["environment"] = environment
        resources = {key: given[old] for old, key in _RESOURCES.items() if old in given}
        if resources:
            fragment["resources"] = resources
        return fragment


_TOP_LEVEL = ("bind_mounts", "slurm", "pbs", "log_policies", "preemption_timeout")
_ENVIRONMENT = (
    "image",
    "registry_auth",
    "force_pull_image",
    "environment_variables",
    "add_capabilities",
    "drop_capabilities",
)
_RESOURCES = {"devices": "devices", "shm_size_bytes": "shm_size"}


class ContainerSettings(Section):
    """The administrator's settings for a job's container that are not part of an experiment's configuration."""

    dtrain_network_interface: Line = ""
    nccl_port_range: Line = ""
    gloo_port_range: Line = ""
    shm_size_bytes: Bytes = SHM_SIZE
    network_mode: Line = ""
    """Empty: the resource manager's setting."""
    work_dir: Line = ""
    startup_hooks: list[Text] = Field(default_factory=list)
    """Shell scripts that run before the user's own, the master's first."""

    @classmethod
    def of(cls, sections: Iterable[TaskContainerDefaults]) -> ContainerSettings:
        """Return the settings under `sections`, the most important first."""
        container_settings: dict[str, Any] = {}
        hooks: list[str] = []
        for section in sections:
            given = section.model_dump(exclude_unset=True, exclude_none=True)
            container_settings = {
                **{key: value for key, value in given.items() if key in cls.model_fields},
                **container_settings,
            }
            if hook := given.get("startup_hook"):
                hooks.insert(0, hook)
        return cls(**container_settings, startup_hooks=hooks)

    def variables(self) -> dict[str, str]:
        """Environment variables for jobs, with the names that Determined's harness, NCCL and Gloo read."""
        named = {
            "DET_INTER_NODE_NETWORK_INTERFACE": self.dtrain_network_interface,
            "NCCL_SOCKET_IFNAME": self.dtrain_network_interface,
            "GLOO_SOCKET_IFNAME": self.dtrain_network_interface,
            "NCCL_PORT_RANGE": self.nccl_port_range,
            "GLOO_PORT_RANGE": self.gloo_port_range,
        }
        return {name: value for name, value in named.items() if value}
