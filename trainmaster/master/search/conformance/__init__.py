"""The tests that every searcher passes: subclass `SearcherConformance` and run pytest."""

from __future__ import annotations

from trainmaster.master.search.conformance.life import Life
from trainmaster.master.search.conformance.suite import SearcherConformance

__all__ = ["Life", "SearcherConformance"]
