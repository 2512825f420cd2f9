"""Converts what user code reports to JSON that the master can store."""

from __future__ import annotations

import logging
import math
from typing import Any, Dict, List, Mapping

logger = logging.getLogger("trainmaster.core")

_DEEPEST = 20  # levels of nesting; more is a mistake or a cycle
MOST_STEPS = 2**63 - 1  # what the master can keep
_LARGEST = 10**300  # an integer that still is a float

NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # numbers of which JSON has none, in Determined's encoding


class Unstorable(ValueError):
    """A value that JSON cannot carry."""


def storable(value: Any, depth: int = 0) -> Any:
    """`value` as JSON: NaN and infinities become the strings "NaN", "Infinity", "-Infinity" (Determined's
    encoding), scalars and arrays of numpy, torch and friends become numbers and lists. Raises Unstorable."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return _integer(int(value))
    if isinstance(value, float):
        return _number(float(value))
    if depth >= _DEEPEST:
        raise Unstorable("nested more than %d levels deep" % _DEEPEST)
    if isinstance(value, Mapping):
        return {str(key): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item, depth + 1) for item in value]
    # numpy's scalars and arrays, and the tensors of torch, tensorflow and jax, know these two.
    if hasattr(value, "item") and getattr(value, "shape", ()) == ():
        return storable(value.item(), depth + 1)
    if hasattr(value, "tolist"):
        return storable(value.tolist(), depth + 1)
    raise Unstorable("a %s is no JSON value" % type(value).__name__)


def storable_metrics(metrics: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the metrics that can be stored; drop the others with a warning that names them.

    Raises ValueError when `metrics` is no mapping or a name is empty.
    """
    if not isinstance(metrics, Mapping):
        raise ValueError("metrics must be a dict of names and values, not a %s" % type(metrics).__name__)
    kept: Dict[str, Any] = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or not name:
            raise ValueError("a metric's name must be a non-empty string, not %r" % (name,))
        try:
            kept[name] = storable(value)
        except Exception as error:
            # `item()` of foreign types raises what it likes; a report must not end the training.
            logger.warning("metric %r is not reported: %s", name, error)
    return kept


def counted_steps(steps_completed: Any) -> int:
    """Return the number of steps as an integer. Raises ValueError for one that the master cannot keep."""
    steps = int(steps_completed)
    if not 0 <= steps <= MOST_STEPS:
        raise ValueError("steps_completed must be from 0 to 2**63 - 1, it is %d" % steps)
    return steps


def check_names(metrics: Mapping[str, Any], group: str, limits: Mapping[str, int]) -> None:
    """Check what the master asks of the names of metrics. `limits`: those of the master, by their keys. Raises
    ValueError."""
    longest = limits.get("metric_name")
    for name in (group, *metrics):
        if longest is not None and len(name) > longest:
            raise ValueError(
                "the name %.60r of a metric or group has %d characters; at most %d are allowed (limits.metric_name)"
                % (name, len(name), longest)
            )
    for name in ("epoch", "epochs"):
        value = metrics.get(name, 0)
        if isinstance(value, bool) or not (isinstance(value, (int, float)) or value in NOT_FINITE):
            raise ValueError("the metric %r must be a number, not %r" % (name, value))


def check_amount(record: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    """Check that a record holds no more values than the master takes. Raises ValueError."""
    most = limits.get("report_values")
    if most is None:
        return
    amount = 0
    level: List[Any] = [record]
    while level:
        inner = [
            each
            for value in level
            if isinstance(value, (dict, list))
            for each in (value.values() if isinstance(value, dict) else value)
        ]
        amount += len(inner)
        level = inner
    if amount > most:
        raise ValueError("this report holds %d values; at most %d are allowed (limits.report_values)" % (amount, most))


def check_file_count(count: int, limits: Mapping[str, int]) -> None:
    """Check that a checkpoint has no more files than the master takes. Raises ValueError."""
    most = limits.get("checkpoint_files")
    if most is not None and count > most:
        raise ValueError(
            "the checkpoint has %d files; at most %d are allowed (limits.checkpoint_files)" % (count, most)
        )


def _integer(value: int) -> int:
    if abs(value) > _LARGEST:
        raise Unstorable("it is too large a number to calculate with")
    return value


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
