"""Fixtures for tests of the PBS dispatcher on a real PBS.

Jobs must not run as root: under root's account, test_on_pbs.py runs the modules that need a PBS as an ordinary user."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dispatcher_site import Bench
from tests.support.pbs.site import PbsSite, pbs_folder, pbs_site
from trainmaster.dispatchers.base import Setup
from trainmaster.dispatchers.pbs import PbsDispatcher

__all__ = ["pbs_folder", "pbs_site"]

ON_PBS = ["test_conformance.py", "test_jobs.py", "test_faults.py"]
collect_ignore = ON_PBS if os.geteuid() == 0 else ["test_on_pbs.py"]


@pytest.fixture
def setup(pbs_site: PbsSite, pbs_folder: Path) -> Setup:
    # Quotes, blanks, dollars and a per cent in a path must survive every script on the way.
    made = pbs_site.setup(pbs_folder / "job root's $HOME %j")
    return replace(made, prefix=f"t{secrets.token_hex(3)}-")


@pytest.fixture
def dispatcher(setup: Setup) -> Iterator[PbsDispatcher]:
    dispatcher = PbsDispatcher(setup)
    yield dispatcher
    dispatcher.close()


@pytest.fixture
def bench(dispatcher: PbsDispatcher, setup: Setup, pbs_site: PbsSite) -> Iterator[Bench]:
    bench = Bench(dispatcher, setup, pbs_site.pool.name, pbs_site.pool.slot_type)
    yield bench
    bench.clean()
