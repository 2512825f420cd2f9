"""The loops that remove what was deleted or has expired: experiments, checkpoints, logs, sessions, idle notebooks; and
the one that passes a pause or an end of a large experiment on to its trials.

Rows and files have a loop each: a file system that does not answer must not delay a log-out. Each step and each item
is independent, and an item that fails repeatedly is retried with increasing delays (`services.retries`).
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping

from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, in_short
from trainmaster.master.services.master import Master
from trainmaster.master.services.orchestration.experiment_orchestrator import PROPAGATION
from trainmaster.master.services.removal.removal import ExperimentRemoval
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.store import Wakeups

log = logging.getLogger(__name__)

PERIOD = 30.0  # seconds between two passes without a wake-up
PROPAGATION_REST = 0.5  # of the time that a pass takes: ten thousand trials must hear of a kill within ten seconds
LOGS_PERIOD = 3600.0  # seconds between two searches for expired logs
Steps = Mapping[str, Callable[[], object]]


class Janitor:
    """Runs the loops for rows and for files, between `start` and `stop`."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._logs_cleaned = -math.inf
        wakeups, retries = master.wakeups, Retries()
        self._experiments = experiments = ExperimentRemoval(master, retries)
        self._loops = (
            _Loop(
                "janitor",
                wakeups,
                retries,
                {
                    "ending tasks of workspaces": lambda: master.removal.end_tasks(retries),
                    "removing projects": lambda: master.removal.remove_deleted_projects(),
                    "removing sessions": lambda: master.removal.remove_expired_sessions(),
                    "applying checkpoint policies": lambda: master.checkpoint_policies.collect(retries),
                    "cleaning up logs": self._clean_up_logs,
                    "giving up silent trials": lambda: master.unmanaged.give_up_silent(retries),
                    "removing entries of barriers": lambda: master.barriers.remove_of_ended(),
                    "ending idle tasks": lambda: master.idle_tasks.end_unused(retries),
                },
            ),
            _Loop(
                "file-janitor",
                wakeups,
                retries,
                {
                    "removing experiments": experiments.go_on,
                    "removing files of checkpoints": lambda: master.checkpoints.carry_out_removals(retries),
                    "removing unfinished checkpoints": lambda: master.uploads.sweep(retries),
                },
            ),
            _Loop(
                "experiment-loop",
                wakeups,
                retries,
                {"propagating states to trials": lambda: master.propagation.propagate(retries)},
                subject=PROPAGATION,
                rest=PROPAGATION_REST,
            ),
        )

    def start(self) -> None:
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        self._experiments.stop()
        for loop in self._loops:
            loop.ask_to_stop()
        for loop in self._loops:
            loop.stop()

    def _clean_up_logs(self) -> None:
        if time.monotonic() - self._logs_cleaned >= LOGS_PERIOD:
            self._logs_cleaned = time.monotonic()
            self._master.retention.clean_up()


class _Loop:
    """One thread that takes its steps in turn. `rest`: how long it rests after a pass, as a multiple of the time that
    the pass took."""

    def __init__(
        self,
        name: str,
        wakeups: Wakeups,
        retries: Retries,
        steps: Steps,
        *,
        subject: str = "janitor",
        rest: float = 0.0,
    ) -> None:
        self._name, self._wakeups, self._retries, self._steps = name, wakeups, retries, steps
        self._subject, self._rest = subject, rest
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._wakeups.subscribe(self._subject, self._wake)
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def stop(self) -> None:
        self.ask_to_stop()
        self._thread.join()
        self._wakeups.unsubscribe(self._subject, self._wake)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            began = time.monotonic()
            try:
                self._retries.each(f"a step of the {self._name}:", self._steps, self._take)
            except DATABASE_UNAVAILABLE as error:
                log.info("the %s waits for the database: %s", self._name, in_short(error))
            self._stop.wait(self._rest * (time.monotonic() - began))
            self._wake.wait(PERIOD)

    def _take(self, step: str) -> None:
        if not self._stop.is_set():
            self._steps[step]()
