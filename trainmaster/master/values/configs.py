"""Stored configurations of experiments and of standalone tasks. The defaults are those of the models in `config`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from trainmaster.config.environment import BindMount, Environment, Resources
from trainmaster.config.experiment import ExperimentConfig, Integrations, Reproducibility, Retention, Webhooks
from trainmaster.config.node_data import DataItem
from trainmaster.config.shapes import Section
from trainmaster.config.task import TaskConfig, TaskResources
from trainmaster.config.user_options import UserOptions
from trainmaster.master.values.search import SearchGoal
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.stored import Json, StoredJson, section_of


@dataclass(frozen=True)
class LogRule:
    """A log policy as it is stored; its pattern may be one that only an earlier release accepted."""

    pattern: str
    label: str
    action: str | None

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LogRule:
        pattern = str(stored.get("pattern") or "")
        return cls(pattern, str(stored.get("name") or pattern), stored.get("action"))


class JobConfig(StoredJson, ABC):
    """What the configurations of all jobs have, those of experiments and those of tasks."""

    RESOURCES = "resources"
    PRIORITY = "priority"
    MAX_SLOTS = "max_slots"
    ENVIRONMENT = "environment"
    PROXY_PORTS = "proxy_ports"

    model: ClassVar[type[Section]]

    def _value(self, key: str) -> Any:
        """Return the value of a key, or its default in the model."""
        value = self._stored.get(key)
        return self.model.model_fields[key].get_default(call_default_factory=True) if value is None else value

    def has(self, key: str) -> bool:
        """Whether a value of `key` is stored."""
        return self._stored.get(key) is not None

    @property
    @abstractmethod
    def resources(self) -> Resources | TaskResources: ...

    @property
    @abstractmethod
    def slots(self) -> int:
        """The slots of one job."""

    @property
    def weight(self) -> float:
        return self.resources.weight or 1.0  # a weight of 0 counts as none

    @cached_property
    def environment(self) -> Environment:
        return section_of(Environment, self._stored.get("environment"))

    @cached_property
    def bind_mounts(self) -> tuple[BindMount, ...]:
        return tuple(section_of(BindMount, mount) for mount in self._stored.get("bind_mounts") or ())

    @property
    def description(self) -> str | None:
        description: str | None = self._stored.get("description")
        return description

    @property
    def entrypoint(self) -> Any:
        """Text for `sh -c`, or a list of arguments."""
        return self._value("entrypoint")

    @property
    def workspace(self) -> str:
        return str(self._value("workspace"))

    @property
    def project(self) -> str:
        return str(self._value("project"))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self._stored.get("labels") or ())

    @property
    def work_dir(self) -> str | None:
        work_dir: str | None = self._stored.get("work_dir")
        return work_dir

    @property
    def preemption_timeout(self) -> int | None:
        """Seconds between the preemption request and the kill."""
        seconds: int | None = self._value("preemption_timeout")
        return seconds

    @property
    def checkpoint_storage(self) -> StorageRef | None:
        return None

    def options_of(self, section: str) -> Json:
        """Return the keys of a dispatcher's section."""
        return dict(self._stored.get(section) or {})

    def slots_per_node(self, section: str) -> int | None:
        keys = {key: value for key, value in self.options_of(section).items() if key in UserOptions.model_fields}
        return section_of(UserOptions, keys).slots_per_node

    def with_resources(self, **values: Any) -> Self:
        """Return a copy with other values in the section `resources`."""
        return self.updated(resources={**(self._stored.get("resources") or {}), **values})


class StoredConfig(JobConfig):
    """An experiment's configuration."""

    SLOTS_PER_TRIAL = "slots_per_trial"
    LOG_POLICIES = "log_policies"

    model = ExperimentConfig

    @classmethod
    def of(cls, config: ExperimentConfig) -> StoredConfig:
        return cls(config.to_json())

    @cached_property
    def resources(self) -> Resources:
        return section_of(Resources, self._stored.get("resources"))

    @property
    def slots(self) -> int:
        return self.resources.slots_per_trial

    @cached_property
    def searcher(self) -> SearchGoal:
        return SearchGoal.from_json(self._stored.get("searcher") or {})

    @property
    def hyperparameters(self) -> Json:
        hyperparameters: Json = self._value("hyperparameters")
        return hyperparameters

    @cached_property
    def checkpoint_storage(self) -> StorageRef | None:
        stored = self._stored.get("checkpoint_storage")
        return StorageRef.from_json(stored) if stored else None

    @cached_property
    def data_items(self) -> tuple[DataItem, ...]:
        """What is copied to nodes; Determined's own `data` is a mapping that only the training reads."""
        stored = self._stored.get("data")
        return tuple(DataItem.model_validate(item) for item in stored) if isinstance(stored, list) else ()

    @property
    def name(self) -> str | None:
        name: str | None = self._stored.get("name")
        return name

    @property
    def max_restarts(self) -> int:
        return int(self._value("max_restarts"))

    @property
    def failure_fuse(self) -> int:
        return int(self._value("failure_fuse"))

    @property
    def seed(self) -> int | None:
        return section_of(Reproducibility, self._stored.get("reproducibility")).experiment_seed

    @cached_property
    def log_retention_days(self) -> int | None:
        """Days, -1 for ever; None: as the site says."""
        return section_of(Retention, self._stored.get("retention_policy")).log_retention_days

    @property
    def webhooks(self) -> Webhooks:
        return section_of(Integrations, self._stored.get("integrations")).webhooks or Webhooks()

    def with_seed(self, seed: int) -> StoredConfig:
        """Return a copy with this seed of the search."""
        return self.updated(reproducibility={**(self._stored.get("reproducibility") or {}), "experiment_seed": seed})

    def with_retention(self, days: int | None) -> StoredConfig:
        """Return a copy whose logs are kept for `days`."""
        return self.updated(
            retention_policy={**(self._stored.get("retention_policy") or {}), "log_retention_days": days}
        )

    def with_storage(self, **values: Any) -> StoredConfig:
        """Return a copy with other values in the section `checkpoint_storage`."""
        return self.updated(checkpoint_storage={**(self._stored.get("checkpoint_storage") or {}), **values})


class StoredTask(JobConfig):
    """A standalone task's configuration."""

    model = TaskConfig

    @classmethod
    def of(cls, config: TaskConfig) -> StoredTask:
        return cls(config.to_json())

    @cached_property
    def resources(self) -> TaskResources:
        return section_of(TaskResources, self._stored.get("resources"))

    @property
    def slots(self) -> int:
        return self.resources.slots

    @property
    def idle_timeout(self) -> str | float | None:
        timeout: str | float | None = self._value("idle_timeout")
        return timeout

    @property
    def notebook_idle_type(self) -> str:
        return str(self._value("notebook_idle_type"))

    @property
    def tensorboard_args(self) -> tuple[str, ...]:
        return tuple(self._value("tensorboard_args"))
