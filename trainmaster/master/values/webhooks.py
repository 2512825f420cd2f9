"""The column `webhook_triggers.condition`."""

from __future__ import annotations

from typing import Any

from trainmaster.master.values.stored import StoredJson


class TriggerCondition(StoredJson):
    """When a trigger sends an event: at a state of experiments, or at lines of logs that match."""

    STATE, REGEX = "state", "regex"

    @property
    def state(self) -> Any:
        return self._stored.get(self.STATE)

    @property
    def regex(self) -> Any:
        return self._stored.get(self.REGEX)
