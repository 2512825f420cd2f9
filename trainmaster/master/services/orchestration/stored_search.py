"""Loads and stores the search of an experiment, under the lock of the experiment's row.

An event is a row of `search_events`; now and then a snapshot replaces them. A process holds searches in memory and
compares their versions with the row: one that is behind catches up by the events that it has not seen. Correctness
comes from the row's lock and from versions, which are never given twice; what is in memory may be anything that was.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from trainmaster.master.db.searches import search_events, search_versions
from trainmaster.master.db.tables import Experiment
from trainmaster.master.search import Search, SearchEvent
from trainmaster.master.services.orchestration.live_searches import LiveSearch, live_searches

FEWEST_EVENTS = 500  # between two snapshots, beside one for every second trial


def load(session: Session, row: Experiment) -> LiveSearch:
    """Return the search as it is in the database, for this transaction alone. Raises SearchError."""
    live = live_searches(session).take(row.id)
    if live is None or not _caught_up(session, row, live):
        live = _rebuilt(session, row)
    return live


def read(session: Session, row: Experiment) -> Search:
    """Return the search as it was at one moment, for readers: nothing is locked or taken from those who change it. The
    transaction must see one snapshot of the database. Raises SearchError."""
    return _rebuilt(session, row).search


def store(session: Session, row: Experiment, live: LiveSearch) -> None:
    """Store what has changed a search, or all of one that is new, and hold it for the next transaction."""
    fresh = live.search.take_events()
    live.events += len(fresh)
    if live.version is None or (fresh and live.events > FEWEST_EVENTS + live.search.trials // 2):
        session.connection().execute(delete(search_events).where(_e.experiment_id == row.id))
        row.search, live.events = live.search.snapshot(), 0
        live.version = row.search_version = row.snapshot_version = session.scalar(search_versions.next_value())
    elif fresh:
        live.version = row.search_version = _append(session, row.id, fresh)
    # Before the commit, because the next transaction may begin right after it. After a rollback this is of a version
    # that no row ever has, and is dropped by the next thread that takes it.
    live_searches(session).put(row.id, live)


# -- inside -------------------------------------------------------------------------------------------------------

_e = search_events.c
_FIELDS = tuple(_e[name] for name in SearchEvent._fields)


def _append(session: Session, experiment_id: int, fresh: Sequence[SearchEvent]) -> int:
    """Return the id of the last one."""
    rows = [{"experiment_id": experiment_id, **event._asdict()} for event in fresh]
    ids = session.connection().execute(insert(search_events).returning(_e.id, sort_by_parameter_order=True), rows)
    return max(int(number) for number in ids.scalars())


def _caught_up(session: Session, row: Experiment, live: LiveSearch) -> bool:
    """Whether the search is that of the row now; not when its version is none of the stored ones."""
    if live.version == row.search_version:
        return True
    if live.version is None:
        return False
    behind = _events(session, row.id, live.version)
    if live.version != row.snapshot_version and (not behind or behind.pop(0)[0] != live.version):
        return False
    _replay(live, behind)
    live.version = row.search_version
    return True


def _rebuilt(session: Session, row: Experiment) -> LiveSearch:
    snapshot = session.scalar(select(Experiment.search).where(Experiment.id == row.id))
    live = LiveSearch(
        Search.restore(row.config.searcher.section, row.config.hyperparameters, snapshot or {}), row.search_version
    )
    _replay(live, _events(session, row.id, row.snapshot_version))
    return live


def _events(session: Session, experiment_id: int, version: int) -> list[tuple[int, SearchEvent]]:
    """Return the stored events from a version on, with their ids; a snapshot's version is that of no event."""
    query = select(_e.id, *_FIELDS).where(_e.experiment_id == experiment_id, _e.id >= version).order_by(_e.id)
    return [(row[0], SearchEvent._make(row[1:])) for row in session.connection().execute(query)]


def _replay(live: LiveSearch, events: Sequence[tuple[int, SearchEvent]]) -> None:
    live.search.replay(event for _, event in events)
    live.events += len(events)
