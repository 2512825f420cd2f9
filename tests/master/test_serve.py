"""What keeps a master from starting is told in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.config.master import parse_master
from trainmaster.master import serve
from trainmaster.master.db.engine import make_engine
from trainmaster.master.db.watchdog import Watchdog


def test_a_database_that_goes_away_while_the_master_starts(tmp_path: Path) -> None:
    url = f"postgresql+psycopg2:///nothing?host={tmp_path}"  # its socket has gone
    presence = Watchdog(url)
    engine = make_engine(url, pool_size=1, presence=presence)
    with pytest.raises(serve.CannotServe, match=r"went away while the master started: .*\. Start it again\."):
        serve.make_services(parse_master(""), tmp_path, engine, presence, "http://127.0.0.1:1", None)
    engine.dispose()
