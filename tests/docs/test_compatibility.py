from __future__ import annotations

import pytest

from tests.support.compatibility import MARK, PAGE, tables
from tests.support.reference import reference


def test_the_page_tells_of_every_endpoint_and_every_command() -> None:
    """After a change of what is served: `python -m tests.support.compatibility`."""
    try:
        environment = reference.environment()
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")
    assert PAGE.read_text().partition(MARK)[2] == tables(environment)
