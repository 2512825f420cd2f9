"""Points near another one, for methods that change what is good a little."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainmaster.master.search.hyperparameters import kind_of, reduced, sample, stepped, steps
from trainmaster.master.search.mersenne import RandomState


@dataclass(frozen=True)
class Perturbation:
    """Changes each hyperparameter: a number is multiplied or divided by `factor` and stays in its range, a category
    becomes its neighbour in the list; with the probability `resample`, it is drawn again from its whole range."""

    space: Mapping[str, Any]
    factor: float
    resample: float

    def of(self, point: Mapping[str, Any], stream: RandomState) -> dict[str, Any]:
        """Return a changed copy of `point`."""
        return reduced(self.space, self._group(self.space, point, stream))

    def _group(self, space: Mapping[str, Any], point: Mapping[str, Any], stream: RandomState) -> dict[str, Any]:
        return {name: self._one(space[name], name, point.get(name), stream) for name in sorted(space)}

    def _one(self, value: Any, name: str, now: Any, stream: RandomState) -> Any:
        kind = kind_of(value, name)
        if kind == "group":
            return self._group(value, now if isinstance(now, Mapping) else {}, stream)
        free = {key: each for key, each in value.items() if key != "when"} if isinstance(value, Mapping) else value
        drawn = sample({name: free}, stream)[name]
        resampled, up = stream.unit() < self.resample, stream.below(2) == 1
        if kind in ("literal", "const") or resampled or now is None:
            return drawn
        if kind == "categorical":
            values = [*value["vals"]]
            place = values.index(now) if now in values else 0
            return values[min(max(place + (1 if up else -1), 0), len(values) - 1)]
        return self._number(value, kind, now, up)

    def _number(self, value: Mapping[str, Any], kind: str, now: float, up: bool) -> float:
        changed = now * self.factor if up else now / self.factor
        if kind == "log":
            low, high = sorted(math.pow(value["base"], value[key]) for key in ("minval", "maxval"))
            return min(max(changed, low), high)
        if value.get("step"):
            at = round((now - value["minval"]) / value["step"]) + (1 if up else -1)
            return stepped(value, min(max(at, 0), steps(value) - 1))  # type: ignore[no-any-return]
        if kind == "double":
            return float(min(max(changed, value["minval"]), value["maxval"]))
        whole = round(changed)
        if whole == now:
            whole += 1 if up else -1
        return int(min(max(whole, value["minval"]), value["maxval"]))
