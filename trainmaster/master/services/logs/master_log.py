"""Keeps the latest log lines of this master process in memory, for the API to show."""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections import deque
from dataclasses import dataclass, replace

from trainmaster.config.masks import MASK

KEPT = 5000


@dataclass(frozen=True)
class MasterLogLine:
    id: int  # from 0 on
    at: dt.datetime
    level: str
    text: str

    @property
    def masked(self) -> MasterLogLine:
        """The entry without its message, which may be about other users."""
        return replace(self, text=f"{self.text.partition(': ')[0]}: {MASK}")


class RecentLog(logging.Handler):
    """A logging handler that keeps the latest entries."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        self._guard = threading.Lock()
        self._entries: deque[MasterLogLine] = deque(maxlen=KEPT)
        self._next = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except (TypeError, ValueError):  # arguments that do not fit the message: stderr's handler complains of them
            text = str(record.msg)
        at = dt.datetime.fromtimestamp(record.created, dt.UTC)
        with self._guard:
            self._entries.append(MasterLogLine(self._next, at, record.levelname, text))
            self._next += 1

    def after(self, number: int) -> list[MasterLogLine]:
        """Entries from `number` on; a negative one counts from the end."""
        with self._guard:
            first = max(self._next + number, 0) if number < 0 else number
            return [entry for entry in self._entries if entry.id >= first]
