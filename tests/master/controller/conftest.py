"""A database for the tests of the loops, with attempts as those of the services make them."""

from __future__ import annotations

from tests.master.conftest import server
from tests.master.services.conftest import attempts

__all__ = ["attempts", "server"]
