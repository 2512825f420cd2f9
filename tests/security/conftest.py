"""Fixtures: the attacks use the same masters as the tests of the API."""

from __future__ import annotations

from tests.api.conftest import (
    admin,
    chief,
    engine,
    experiment,
    job,
    keeper,
    keeping,
    master,
    nobody,
    root,
    ruled,
    runner,
    running,
    user,
)

__all__ = [
    "admin",
    "chief",
    "engine",
    "experiment",
    "job",
    "keeper",
    "keeping",
    "master",
    "nobody",
    "root",
    "ruled",
    "runner",
    "running",
    "user",
]
