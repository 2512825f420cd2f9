"""Masters for end-to-end tests. `local` is one for all modules: most tests only need their own experiments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.master import MasterProcess, make_folder, remove_folder, serving

LOCAL = "resource_manager: {type: local, slots: 4, poll_interval: 0.3}\n"


@pytest.fixture(scope="package")
def local() -> Iterator[MasterProcess]:
    with serving(LOCAL) as process:
        yield process


@pytest.fixture
def own_master() -> Iterator[MasterProcess]:
    """One that a test may kill; not started yet."""
    folder = make_folder()
    process = MasterProcess(folder, LOCAL)
    yield process
    process.clean_up()
    remove_folder(folder)
