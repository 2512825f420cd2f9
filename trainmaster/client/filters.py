"""Conditions for searching experiments: `(metric("loss") < 0.1) & (column("state") == "COMPLETED")`.

They are sent in the form that Determined's web page uses for its filters.
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
    """A column to compare with `==`, `!=`, `<`, `<=`, `>`, `>=` and the methods below; each comparison returns a
    Condition."""

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
        """Match texts that contain a part, and lists of labels that contain a label.

        Args:
            value: The part or the label.

        Returns:
            The condition.

        Raises:
            TypeError: The value is None.
        """
        return self._field("contains", value)

    def lacks(self, value: str) -> Condition:
        """Match what `contains` does not match.

        Args:
            value: The part or the label.

        Returns:
            The condition.

        Raises:
            TypeError: The value is None.
        """
        return self._field("notContains", value)

    def is_empty(self) -> Condition:
        """Match experiments without a value in this column."""
        return self._field("isEmpty", None)

    def is_there(self) -> Condition:
        """Match experiments with a value in this column."""
        return self._field("notEmpty", None)

    def _field(self, operator: str, value: object) -> Condition:
        if value is None and operator not in ("isEmpty", "notEmpty"):
            raise TypeError(f"{self._name} is compared with None; use is_empty() or is_there().")
        return Condition({"kind": "field", "columnName": self._name, "operator": operator, "value": value})


def column(name: str) -> Column:
    """Return a column, named as in the API.

    Args:
        name: id, name, description, state, tags, user, numTrials, progress, startTime, endTime, duration (seconds),
            projectId, resourcePool, searcherType, searcherMetric, searcherMetricsVal, checkpointCount ...

    Returns:
        The column, to be compared.
    """
    return Column(name)


def hparam(name: str) -> Column:
    """Return a hyperparameter.

    Args:
        name: Its name; nested ones with dots.

    Returns:
        The column, to be compared.
    """
    return Column(f"hp.{name}")


def metric(name: str, *, group: str = "validation", of: str = "last") -> Column:
    """Return a metric of an experiment's best trial.

    Args:
        name: Name of the metric.
        group: training, validation, or a name of the training code's own.
        of: Which summary of it: min, max, mean or last.

    Returns:
        The column, to be compared.
    """
    return Column(f"{group}.{name}.{of}")


def written(where: Condition | None, *, archived: bool) -> Json:
    """Return the filter in the form of the API."""
    children = [] if where is None else [where.tree]
    return {"filterGroup": {"kind": "group", "conjunction": "and", "children": children}, "showArchived": archived}


def _joined(conjunction: str, *conditions: Condition) -> Condition:
    children = [condition.tree for condition in conditions]
    return Condition({"kind": "group", "conjunction": conjunction, "children": children})
