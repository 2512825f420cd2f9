"""The generated types of the client match the master's OpenAPI document, and its import is light."""

from __future__ import annotations

import subprocess
import sys

from tests.support import client_views
from tests.support.client_wire import PATH, document, source


def test_client_types_match_masters_description() -> None:
    """After a change of the API's shapes: `scripts/generate`."""
    assert PATH.read_text() == source(document())


def test_client_views_match_masters_description() -> None:
    """After a change of the API's shapes: `scripts/generate`."""
    assert client_views.PATH.read_text() == client_views.source(document())


def test_the_client_is_light_until_it_is_used() -> None:
    code = (
        "import sys; import trainmaster.client as c; before = len(sys.modules);"
        "assert set(dir(c)) == {n for n in dir(c) if getattr(c, n)};"
        "assert not {'yaml', 'pydantic', 'fastapi', 'sqlalchemy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
