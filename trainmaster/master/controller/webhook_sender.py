"""The loop that delivers events from the outbox of webhooks. It has a few threads, so that one receiver that answers
slowly does not delay the others."""

from __future__ import annotations

import logging
import threading

from trainmaster.master.db.watchdog import DATABASE_UNAVAILABLE, in_short
from trainmaster.master.services.events import webhook_deliveries
from trainmaster.master.services.events.webhooks import OUTBOX
from trainmaster.master.services.master import Master

log = logging.getLogger(__name__)

WORKERS = 3
PERIOD = 30.0  # seconds between two checks without a wake-up
LEAST = 0.5  # seconds: a clock that differs from the database's must not cause a busy loop


class WebhookSender:
    def __init__(self, master: Master) -> None:
        self._master = master
        self._stop = threading.Event()
        self._wakes = [threading.Event() for _ in range(WORKERS)]
        self._threads = [
            threading.Thread(target=self._run, args=(wake,), name=f"webhook_sender-{number}", daemon=True)
            for number, wake in enumerate(self._wakes)
        ]

    def start(self) -> None:
        for wake, thread in zip(self._wakes, self._threads, strict=True):
            self._master.wakeups.subscribe(OUTBOX, wake)
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for wake, thread in zip(self._wakes, self._threads, strict=True):
            wake.set()
            thread.join()
            self._master.wakeups.unsubscribe(OUTBOX, wake)

    def _run(self, wake: threading.Event) -> None:
        while not self._stop.is_set():
            wake.clear()
            pause = PERIOD
            try:
                while not self._stop.is_set() and (letter := self._master.webhook_deliveries.claim()):
                    self._deliver(letter)
                due = self._master.webhook_deliveries.next_due()
                pause = PERIOD if due is None else min(max(due, LEAST), PERIOD)
            except DATABASE_UNAVAILABLE as error:
                log.info("webhooks wait for the database: %s", in_short(error))
            except Exception:  # the loop must outlive any bug or lost connection; the next pass starts again
                log.exception("webhooks could not be delivered; they will be retried")
            wake.wait(pause)

    def _deliver(self, letter: webhook_deliveries.DeliveryAttempt) -> None:
        """Deliver one event. One that cannot be delivered delays no other; its next attempt is due after its pause."""
        try:
            self._master.webhook_deliveries.deliver(letter)
        except DATABASE_UNAVAILABLE:
            raise
        except Exception:  # a bug: logged, and the others do not wait for its fix
            log.exception("event %s for webhook %r could not be delivered", letter.event_id, letter.name)
