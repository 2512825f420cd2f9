"""Leads or waits: of all master processes on one database, the one that holds the advisory lock runs the loops."""

from __future__ import annotations

import logging
import threading

from sqlalchemy import Engine

from trainmaster.master.controller.cluster import ClusterLoop
from trainmaster.master.controller.janitor import Janitor
from trainmaster.master.db.engine import Leadership
from trainmaster.master.services.clusters import Clusters
from trainmaster.master.services.store import Settings, Store, Wakeups

log = logging.getLogger(__name__)

CHECK = 2.0  # seconds between two looks at who leads


class Controller:
    def __init__(self, engine: Engine, store: Store, settings: Settings, clusters: Clusters, wakeups: Wakeups) -> None:
        self._leadership = Leadership(engine)
        self._parts = (store, settings, clusters)
        self._wakeups = wakeups
        self._loops: list[ClusterLoop | Janitor] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            leading = self._leadership.try_acquire()
            if leading and not self._loops:
                self._start_loops()
            elif not leading and self._loops:
                log.warning("another master leads now, or the database is away: this one stops steering")
                self._stop_loops()
            self._stop.wait(CHECK)
        self._stop_loops()
        self._leadership.release()

    def _start_loops(self) -> None:
        store, settings, clusters = self._parts
        self._loops = [ClusterLoop(store, settings, clusters, cluster, self._wakeups) for cluster in clusters]
        self._loops.append(Janitor(store, self._wakeups))
        for loop in self._loops:
            loop.start()

    def _stop_loops(self) -> None:
        for loop in self._loops:
            loop.stop()
        self._loops = []
