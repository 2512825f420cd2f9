"""The searches that this process holds in memory, so that an event need not read the search from the database.

What is here is never trusted by itself: `stored_search` compares its version with the database under the lock of the
experiment's row.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from trainmaster.master.search import Search

MOST_TRIALS = 200_000  # of all searches together: about 60 MB
OF_EACH = 20  # how many trials take as much memory as a search without any


@dataclass
class LiveSearch:
    """A search after all events up to the one with the id `version`; None before it is stored. `events`: how many
    there are since its snapshot."""

    search: Search
    version: int | None = None
    events: int = 0


class LiveSearches:
    """The searches that were used last, by experiment. Thread-safe: the thread that takes one has it alone."""

    def __init__(self, most_trials: int = MOST_TRIALS) -> None:
        self._most_trials = most_trials
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[LiveSearch, int]] = OrderedDict()
        self._trials = 0

    def take(self, experiment_id: int) -> LiveSearch | None:
        """Remove a search and return it, for a change that `put` completes; one that fails leaves nothing here."""
        with self._lock:
            live, trials = self._held.pop(experiment_id, (None, 0))
            self._trials -= trials
            return live

    def put(self, experiment_id: int, live: LiveSearch) -> None:
        """Hold a search, at the expense of those that were used longest ago; the largest may be held alone."""
        self.take(experiment_id)
        with self._lock:
            trials = live.search.trials + OF_EACH
            self._held[experiment_id] = live, trials
            self._trials += trials
            while self._trials > self._most_trials and len(self._held) > 1:
                _, (_, left) = self._held.popitem(last=False)
                self._trials -= left


_of_engines: WeakKeyDictionary[Engine, LiveSearches] = WeakKeyDictionary()
_making = threading.Lock()


def live_searches(session: Session) -> LiveSearches:
    """Those of the database that a session speaks to."""
    engine = session.connection().engine
    with _making:
        return _of_engines.setdefault(engine, LiveSearches())
