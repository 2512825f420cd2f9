"""The loop that compacts the records that are read most: metric series into columns, log lines into blocks.

It uses at most a fifth of one processor, however much there is to do: after each step it sleeps four times as long as
the step took. Records that it has not reached yet are read in their original form.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, in_short
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.master import Master
from trainmaster.master.services.metrics import series_columns
from trainmaster.master.services.retries import Retries

log = logging.getLogger(__name__)

PERIOD = 15.0  # seconds between two passes when all is done; and the minimum age of rows that are compacted
REST = 4.0  # rests so many times as long as it works
SOURCES = (series_columns.SOURCE, log_blocks.SOURCE)


class Compactor:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._newest: dict[str, int] = {}  # the newest ids at the last pass
        self._retries = Retries()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                settled = self._newest
                self._newest = {source.name: self._master.compaction.newest(source) for source in SOURCES}
                if settled:
                    self._pass(settled)
            except DATABASE_UNAVAILABLE as error:
                log.info("the compactor waits for the database: %s", in_short(error))
            except Exception:  # the loop must outlive any bug or lost connection; the next pass compares again
                log.exception("compaction failed; it will be retried")
            self._stop.wait(PERIOD)

    def _pass(self, settled: Mapping[str, int]) -> None:
        """Run one pass. A trial or task that cannot be counted or compacted delays no other."""
        more = True
        sources = {source.name: source for source in SOURCES}

        def count(name: str) -> None:
            nonlocal more
            more |= self._rested(partial(self._master.compaction.count, sources[name], settled[name]))

        def series(trial_id: int) -> None:
            while self._rested(partial(self._master.series_columns.compact, trial_id)):
                pass

        def lines(task_id: str) -> None:
            while self._rested(partial(self._master.log_blocks.compact, task_id)):
                pass

        while more and not self._stop.is_set():
            more = False
            self._retries.each("counting", sources, count)
            self._retries.each("compacting the series of trial", self._master.series_columns.due(), series)
            self._retries.each("compacting the log of task", self._master.log_blocks.due(), lines)

    def _rested(self, step: Callable[[], bool]) -> bool:
        """Take a step and sleep after it. False when that was the last one, or the loop must end."""
        if self._stop.is_set():
            return False
        began = time.monotonic()
        more = step()
        return not self._stop.wait(REST * (time.monotonic() - began)) and more
