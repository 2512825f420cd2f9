"""The searchers: which hyperparameters to try, for how long, and when the search is over.

Pure and deterministic. `Search` is what the services hold; `simulate` is its preview. A new searcher is a
`method.Method` and a `method.Searcher` in a file of its own, announced under the entry points `trainmaster.searchers`.
"""

from __future__ import annotations

from .actions import Action, Create, ExitReason, SearchError, Shutdown, StopTrial
from .search import Search
from .simulate import simulate

__all__ = ["Action", "Create", "ExitReason", "Search", "SearchError", "Shutdown", "StopTrial", "simulate"]
