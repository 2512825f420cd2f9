"""The types by which tables hold values as JSONB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

from sqlalchemy import type_coerce
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.types import TypeDecorator, TypeEngine

from trainmaster.config.git_state import GitState
from trainmaster.master.values.configs import StoredConfig, StoredTask
from trainmaster.master.values.exits import ExitRecords
from trainmaster.master.values.observed import ObservedJob
from trainmaster.master.values.search import SearchResult
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.tasks import ServiceAddress, ShellKeys, ShownEvents
from trainmaster.master.values.validation import StoredValidation
from trainmaster.master.values.webhooks import TriggerCondition


class Value(Protocol):
    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self: ...

    def to_json(self) -> dict[str, Any]: ...


V = TypeVar("V", bound=Value)


class _Paths(TypeDecorator.Comparator[Any], JSONB.Comparator[Any]):
    """Paths below the column are plain JSON."""

    def __getitem__(self, index: Any) -> Any:
        return type_coerce(self.expr, JSONB())[index]


class ValueColumn(TypeDecorator[V]):
    """A column of one kind of values."""

    impl = JSONB
    cache_ok = True
    should_evaluate_none = True  # as of JSONB
    comparator_factory = _Paths

    def __init__(self, kind: type[V]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: V | Any, dialect: Dialect) -> Any:  # noqa: ARG002
        return value.to_json() if isinstance(value, self.kind) else value

    def process_result_value(self, value: Any, dialect: Dialect) -> V | None:  # noqa: ARG002
        return self.kind.from_json(value) if isinstance(value, Mapping) else None

    def coerce_compared_value(self, op: OperatorType | None, value: Any) -> TypeEngine[Any]:
        return self if isinstance(value, self.kind) else self.impl_instance.coerce_compared_value(op, value)


_KINDS: tuple[type[Any], ...] = (
    StoredConfig,
    StoredTask,
    ObservedJob,
    ExitRecords,
    StorageRef,
    SearchResult,
    ServiceAddress,
    ShellKeys,
    ShownEvents,
    TriggerCondition,
    StoredValidation,
    GitState,
)
COLUMNS: dict[Any, TypeEngine[Any]] = {kind: ValueColumn(kind) for kind in _KINDS}
