"""The searchers: which hyperparameters to try, for how long, and when the search is over.

Pure and deterministic. `Search` is the interface for the services; `simulate` is its preview. A new searcher is a
`method.Method` and a `method.Searcher` in a file of its own, registered under the entry points `trainmaster.searchers`.
"""

from __future__ import annotations

from trainmaster.master.search.actions import (
    Action,
    Create,
    ExitReason,
    PauseTrial,
    ResumeTrial,
    SearchError,
    Shutdown,
    StopTrial,
    Warn,
)
from trainmaster.master.search.events import SearchEvent
from trainmaster.master.search.method import Arrival, BracketRanking, RungRanking
from trainmaster.master.search.search import Search
from trainmaster.master.search.simulate import simulate

__all__ = [
    "Action",
    "Arrival",
    "BracketRanking",
    "Create",
    "ExitReason",
    "PauseTrial",
    "ResumeTrial",
    "RungRanking",
    "Search",
    "SearchError",
    "SearchEvent",
    "Shutdown",
    "StopTrial",
    "Warn",
    "simulate",
]
