"""Attacks are made on the same masters that the tests of the API use."""

from __future__ import annotations

from tests.api.conftest import (
    admin,
    chief,
    engine,
    experiment,
    job,
    keeper,
    master,
    nobody,
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
    "master",
    "nobody",
    "ruled",
    "runner",
    "running",
    "user",
]
