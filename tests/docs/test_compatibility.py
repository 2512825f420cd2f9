from __future__ import annotations

import pytest

from tests.contract import reference
from tests.docs.compatibility import MARK, PAGE, tables


def test_the_page_tells_of_every_endpoint_and_every_command() -> None:
    """After a change of what is served: `python -m tests.docs.compatibility`."""
    try:
        environment = reference.environment()
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")
    assert PAGE.read_text().partition(MARK)[2] == tables(environment)
