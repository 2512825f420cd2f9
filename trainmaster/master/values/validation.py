"""A validation of a trial: the columns `trials.latest_validation` and `best_validation`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from trainmaster.master.values.stored import StoredJson


class Validation(StoredJson):
    """The metrics after a number of steps, stored in Determined's form, in which the API shows them."""

    STEPS = "totalBatches"

    @classmethod
    def of(cls, steps: int, at: dt.datetime, metrics: Mapping[str, Any]) -> Validation:
        time = at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return cls({cls.STEPS: steps, "endTime": time, "metrics": {"avgMetrics": dict(metrics)}})

    @property
    def steps(self) -> int:
        return int(self._stored.get(self.STEPS) or 0)

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The values by name; NaN and infinite values are texts."""
        return (self._stored.get("metrics") or {}).get("avgMetrics") or {}
