"""The loop that removes what was asked to be removed or has had its time: experiments, checkpoints, logs, sessions,
notebooks that nobody uses."""

from __future__ import annotations

import logging
import math
import threading
import time

from trainmaster.master.db.presence import AWAY, in_short
from trainmaster.master.services import checkpoint_gc, checkpoints, idle, removal, retention, unmanaged
from trainmaster.master.services.store import Settings, Store, Wakeups

log = logging.getLogger(__name__)

PERIOD = 30.0  # seconds between two passes when nothing wakes us
LOGS_PERIOD = 3600.0  # seconds between two looks for logs whose days are over


class Janitor:
    def __init__(self, store: Store, settings: Settings, wakeups: Wakeups) -> None:
        self._store, self._settings, self._wakeups = store, settings, wakeups
        self._logs_cleaned = -math.inf
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)

    def start(self) -> None:
        self._wakeups.subscribe("janitor", self._wake)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self._wakeups.unsubscribe("janitor", self._wake)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                removal.remove_deleted_experiments(self._store)
                removal.remove_deleted_projects(self._store)
                removal.remove_expired_sessions(self._store)
                checkpoint_gc.collect(self._store)
                checkpoints.carry_out_removals(self._store)
                self._clean_up_logs()
                unmanaged.give_up_silent(self._store, self._settings)
                idle.end_unused(self._store, self._settings)
            except AWAY as error:
                log.info("the janitor waits for the database: %s", in_short(error))
            except Exception:  # the loop must outlive any bug or lost connection; the next pass compares anew
                log.exception("a pass of the janitor failed; it is tried again")
            self._wake.wait(PERIOD)

    def _clean_up_logs(self) -> None:
        if time.monotonic() - self._logs_cleaned >= LOGS_PERIOD:
            self._logs_cleaned = time.monotonic()
            retention.clean_up(self._store, self._settings)
