"""The PBS dispatcher keeps the contract, on a real PBS."""

from __future__ import annotations

import pytest

from tests.pbs.site import PbsSite
from trainmaster.dispatchers.base import Setup
from trainmaster.dispatchers.conformance import DispatcherConformance


@pytest.mark.pbs
class TestPbs(DispatcherConformance):
    patience = 180.0  # a scheduler may look at its queue only every minute

    @pytest.fixture(autouse=True)
    def _in_the_sites_queue(self, pbs_site: PbsSite, setup: Setup) -> None:
        if not pbs_site.history:
            pytest.skip("this PBS forgets ended jobs (job_history_enable is off)")
        type(self).pool = pbs_site.pool.name
