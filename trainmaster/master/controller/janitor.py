"""The loop that removes what was asked to be removed: deleted experiments, expired sessions."""

from __future__ import annotations

import logging
import threading

from trainmaster.master.db.presence import AWAY, in_short
from trainmaster.master.services import removal
from trainmaster.master.services.store import Store, Wakeups

log = logging.getLogger(__name__)

PERIOD = 30.0  # seconds between two passes when nothing wakes us


class Janitor:
    def __init__(self, store: Store, wakeups: Wakeups) -> None:
        self._store, self._wakeups = store, wakeups
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)

    def start(self) -> None:
        self._wakeups.subscribe("controller", self._wake)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self._wakeups.unsubscribe("controller", self._wake)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                removal.remove_deleted_experiments(self._store)
                removal.remove_deleted_projects(self._store)
                removal.remove_expired_sessions(self._store)
            except AWAY as error:
                log.info("the janitor waits for the database: %s", in_short(error))
            except Exception:  # the loop must outlive any bug or lost connection; the next pass compares anew
                log.exception("a pass of the janitor failed; it is tried again")
            self._wake.wait(PERIOD)
