"""Conditions that experiments are searched by: `(metric("loss") < 0.1) & (column("state") == "COMPLETED")`.

They are written as Determined's web page writes its filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Condition:
    """One comparison, or several joined by `&` and `|`."""

    tree: Json

    def __and__(self, other: Condition) -> Condition:
        return _joined("and", self, other)

    def __or__(self, other: Condition) -> Condition:
        return _joined("or", self, other)

    def __bool__(self) -> bool:
        raise TypeError("Join conditions by & and |, each in parentheses; `and`, `or` and a < b < c do not work.")


class Column:
    """A column to compare. `contains` is for texts and labels; `is_empty` holds where there is no value."""

    __hash__ = None  # type: ignore[assignment]  # == makes a condition

    def __init__(self, name: str) -> None:
        self._name = name

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._field("=", value)

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return self._field("!=", value)

    def __lt__(self, value: Any) -> Condition:
        return self._field("<", value)

    def __le__(self, value: Any) -> Condition:
        return self._field("<=", value)

    def __gt__(self, value: Any) -> Condition:
        return self._field(">", value)

    def __ge__(self, value: Any) -> Condition:
        return self._field(">=", value)

    def contains(self, value: str) -> Condition:
        return self._field("contains", value)

    def lacks(self, value: str) -> Condition:
        return self._field("notContains", value)

    def is_empty(self) -> Condition:
        return self._field("isEmpty", None)

    def is_there(self) -> Condition:
        return self._field("notEmpty", None)

    def _field(self, operator: str, value: object) -> Condition:
        if value is None and operator not in ("isEmpty", "notEmpty"):
            raise TypeError(f"{self._name} is compared with None; ask is_empty() or is_there().")
        return Condition({"kind": "field", "columnName": self._name, "operator": operator, "value": value})


def column(name: str) -> Column:
    """A column as the API names it: id, name, description, state, tags, user, numTrials, progress, startTime, endTime,
    duration, projectId, resourcePool, searcherType, searcherMetric, searcherMetricsVal, checkpointCount ..."""
    return Column(name)


def hparam(name: str) -> Column:
    """A hyperparameter; nested ones with dots."""
    return Column(f"hp.{name}")


def metric(name: str, *, group: str = "validation", of: str = "last") -> Column:
    """A metric of an experiment's best trial. `of`: min, max, mean or last."""
    return Column(f"{group}.{name}.{of}")


def written(where: Condition | None, *, archived: bool) -> Json:
    """The filter as the API takes it."""
    children = [] if where is None else [where.tree]
    return {"filterGroup": {"kind": "group", "conjunction": "and", "children": children}, "showArchived": archived}


def _joined(conjunction: str, *conditions: Condition) -> Condition:
    return Condition({"kind": "group", "conjunction": conjunction, "children": [one.tree for one in conditions]})
