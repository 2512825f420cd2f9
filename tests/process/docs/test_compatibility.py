from __future__ import annotations

import pytest

from tests.support.compatibility import FOLDER, pages
from tests.support.reference import reference


def test_the_pages_list_every_endpoint_and_every_command() -> None:
    """After a change of what is served: `scripts/generate`."""
    try:
        environment = reference.environment()
    except reference.NoReference as reason:
        pytest.skip(f"no reference client: {reason}")
    assert {page: page.read_text() for page in FOLDER.glob("*.md")} == pages(environment)
