"""Converts what user code reports to JSON that the master can store."""

from __future__ import annotations

import logging
import math
from typing import Any, Dict, Mapping

logger = logging.getLogger("trainmaster.core")

_DEEPEST = 20  # levels of nesting; more is a mistake or a cycle


class Unstorable(ValueError):
    """A value that JSON cannot carry."""


def storable(value: Any, depth: int = 0) -> Any:
    """`value` as JSON: NaN and infinities become the strings "NaN", "Infinity", "-Infinity" (Determined's
    encoding), scalars and arrays of numpy, torch and friends become numbers and lists. Raises Unstorable."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
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
    """The metrics that can be stored; the others are dropped with a warning that names them.

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


def _number(value: float) -> Any:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value
