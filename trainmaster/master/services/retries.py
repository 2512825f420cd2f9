"""Retries of independent work items: a failed item delays no other, is logged once, and is retried with increasing
delays."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from trainmaster.dispatchers.base import DispatcherError
from trainmaster.dispatchers.cluster.jobfolder.trees import Unfinished
from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE
from trainmaster.storage.contract import StorageFault

log = logging.getLogger(__name__)

FIRST_PAUSE = 15.0  # seconds after the first failure; each further one doubles it
LONGEST_PAUSE = 6 * 3600.0
TRIES = 10  # for work that may succeed later; two hours after the first failure
ORDINARY = (OSError, DispatcherError, Unfinished, StorageFault)
Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class _Trouble:
    times: int
    due: float
    text: str


class Retries:
    """The failed items, in this process's memory. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._trouble: dict[tuple[str, Hashable], _Trouble] = {}

    def each(
        self,
        what: str,
        items: Iterable[Item],
        work: Callable[[Item], object],
        give_up: Callable[[Item, Exception], object] | None = None,
    ) -> None:
        """Do `work` for each item that is due. A failing one delays no other. `what` names the work in the log, as
        in "the removal of experiment": items are added to it. `give_up` is called for one whose `ORDINARY` failure has
        occurred `TRIES` times. Raises only errors that show that the database does not answer."""
        wanted = list(items)
        with self._lock:
            for key in [key for key in self._trouble if key[0] == what and key[1] not in wanted]:
                del self._trouble[key]
        for item in wanted:
            known = self._trouble.get((what, item))
            if known is not None and known.due > self._clock():
                continue
            try:
                work(item)
            except DATABASE_UNAVAILABLE:
                raise
            except Exception as error:  # a bug or an unforeseen failure: the others do not wait for its fix
                times = self._failed(what, item, error)
                if give_up is not None and times >= TRIES and isinstance(error, ORDINARY):
                    give_up(item, error)
            else:
                with self._lock:
                    self._trouble.pop((what, item), None)

    def resting(self, what: str) -> list[Any]:
        """Items that have failed and are not due yet."""
        with self._lock:
            now = self._clock()
            return [item for (work, item), known in self._trouble.items() if work == what and known.due > now]

    def _failed(self, what: str, item: Hashable, error: Exception) -> int:
        """Note a failure; return the number of failures so far."""
        text = f"{type(error).__name__}: {error}"
        key = (what, item)
        known = self._trouble.get(key)
        times = known.times + 1 if known else 1
        pause = min(FIRST_PAUSE * 2 ** min(times - 1, 20), LONGEST_PAUSE)
        if known is None or known.text != text:
            where = f"{what} {item}".strip()
            if isinstance(error, ORDINARY):
                log.warning("%s is not done yet (%s); it is retried with increasing delays", where, error)
            else:
                log.error("%s failed; it will be retried with increasing delays", where, exc_info=error)
        with self._lock:
            self._trouble[key] = _Trouble(times, self._clock() + pause, text)
        return times
