"""Leader election: of all master processes on one database, the one that holds the advisory lock runs the loops."""

from __future__ import annotations

import logging
import threading

from trainmaster.master.controller.cluster_loop import ClusterLoop
from trainmaster.master.controller.compactor import Compactor
from trainmaster.master.controller.janitor import Janitor
from trainmaster.master.controller.webhook_sender import WebhookSender
from trainmaster.master.db.engine import Leadership
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.master import Master

log = logging.getLogger(__name__)

CHECK = 2.0  # seconds between two checks of the leader lock


class Controller:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._leadership = Leadership(master.store.engine)
        self._loops: list[ClusterLoop] = []
        self._beside: list[Janitor | WebhookSender | Compactor] = []
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
            if not leading and self._beside:
                log.warning("another master leads now, or the database is unavailable: this one stops its loops")
            self._match(list(self._master.clusters) if leading else [])
            self._stop.wait(CHECK)
        self._match([])
        self._leadership.release()

    def _match(self, wanted: list[Cluster]) -> None:
        """Run one loop for each configured cluster, with its present configuration, and no other; beside them the
        janitor, the webhook sender and the compactor."""
        for loop in [loop for loop in self._loops if not any(loop.cluster is cluster for cluster in wanted)]:
            loop.stop()
            self._loops.remove(loop)
        self._master.clusters.close_retired()
        served = {loop.cluster.name for loop in self._loops}
        for cluster in wanted:
            if cluster.name not in served:
                loop = ClusterLoop(self._master, cluster)
                self._loops.append(loop)
                loop.start()
        if wanted and not self._beside:
            self._beside = [Janitor(self._master), WebhookSender(self._master), Compactor(self._master)]
            for loop_beside in self._beside:
                loop_beside.start()
        elif not wanted:
            while self._beside:
                self._beside.pop(0).stop()
