"""The local dispatcher passes the conformance suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.dispatchers.base import Setup
from trainmaster.dispatchers.conformance import DispatcherConformance
from trainmaster.dispatchers.local import LocalDispatcher


class TestLocal(DispatcherConformance):
    @pytest.fixture
    def setup(self, tmp_path: Path) -> Setup:
        # Quotes, blanks and dollars in a path must survive every script on the way.
        root = tmp_path / "job root's $HOME"
        return Setup(name="here", prefix="conf-", job_root=root, options={"slots": 4, "cancel_grace": 1.0})

    @pytest.fixture
    def dispatcher(self, setup: Setup) -> Iterator[LocalDispatcher]:
        dispatcher = LocalDispatcher(setup)
        yield dispatcher
        dispatcher.close()
