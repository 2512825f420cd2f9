"""As root: the modules that need a real PBS, each run once under the account of an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dispatchers.pbs.conftest import ON_PBS
from tests.pbs.site import PbsSite, run_suite_as


@pytest.mark.pbs
@pytest.mark.slow
@pytest.mark.parametrize("module", ON_PBS)
def test_for_an_ordinary_user(pbs_site: PbsSite, module: str) -> None:
    done = run_suite_as(pbs_site.user, Path("tests/dispatchers/pbs") / module)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-1000:]}"
    assert " passed" in done.stdout
