"""Fixtures: the attacks use the same masters as the tests of the API."""

from __future__ import annotations

from tests.process.api.conftest import (
    admin,
    admin_with_slots,
    anonymous,
    engine,
    experiment,
    job,
    keeping,
    master,
    rbac_admin,
    rbac_master,
    root,
    running,
    user,
    user_with_slots,
)

__all__ = [
    "admin",
    "admin_with_slots",
    "anonymous",
    "engine",
    "experiment",
    "job",
    "keeping",
    "master",
    "rbac_admin",
    "rbac_master",
    "root",
    "running",
    "user",
    "user_with_slots",
]
