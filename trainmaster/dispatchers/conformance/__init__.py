"""Public conformance test suite for dispatchers: tests any plugin through the contract alone.

A plugin's author subclasses `DispatcherConformance` in a test module and supplies two fixtures:

    from trainmaster.dispatchers.conformance import DispatcherConformance

    class TestMine(DispatcherConformance):
        pool = "batch"

        @pytest.fixture
        def setup(self, tmp_path):
            return Setup(name="mine", prefix="conf-", job_root=tmp_path / "job root", options={...})

        @pytest.fixture
        def dispatcher(self, setup):
            dispatcher = MyDispatcher(setup)
            yield dispatcher
            dispatcher.close()

It needs pytest, and a cluster that starts jobs of a few seconds quickly. A third fixture, `faults`, can take the
cluster away, lose an answer, make it forget a job or print unknown words; tests without their fault are skipped.
"""

import pytest

pytest.register_assert_rewrite("trainmaster.dispatchers.conformance.suite")

from trainmaster.dispatchers.conformance.faults import WORD, Faults  # noqa: E402
from trainmaster.dispatchers.conformance.suite import DispatcherConformance  # noqa: E402

__all__ = ["WORD", "DispatcherConformance", "Faults"]
