"""Experiments for tests of the page of one: a large search at work, a small one that has ended, one that pauses its
trials, one that copies them, a single trial, one that failed, and one that nobody has begun."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from tests.support.master import MasterProcess, files
from tests.support.webui.filled_search import BREEDING, PAUSING, config, fill_search
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

SINGLE = """
name: {name}
entrypoint: python3 train.py
records_per_epoch: 100
resources: {{slots_per_trial: 1}}
searcher: {{name: single, metric: val_loss, max_length: {{epochs: 81}}, smaller_is_better: true}}
hyperparameters: {{lr: 0.001, dropout: 0.2, layers: 8, optimizer: {{name: adamw}}}}
"""
HOSTILE = "<img src=x onerror=alert(1)> invoice\u202egpj.exe"
MEMORY = "CUDA out of memory on node n17: 79.2 of 79.3 GiB were in use"


@dataclass(frozen=True)
class Searches:
    """Numbers of experiments. `trials`: how many the large one has."""

    large: int
    small: int
    pausing: int
    breeding: int
    single: int
    failed: int
    empty: int
    trials: int = 1000


def make_searches(master: MasterProcess, trials: int = 1000) -> Searches:
    """`end_searches` ends what still runs: no job is behind it."""
    client = master.client()
    code = files(train__py="print('training')\n")

    def made(written: str) -> int:
        return client.create_experiment(written, code, activate=False).id

    found = Searches(
        large=made(config(trials=trials, concurrent=200)),
        small=made(config(name=HOSTILE, trials=40)),
        pausing=made(config(name="asha with pauses", searcher=PAUSING)),
        breeding=made(config(name="a population", searcher=BREEDING)),
        single=made(SINGLE.format(name="one long training")),
        failed=made(SINGLE.format(name="one that failed")),
        empty=made(SINGLE.format(name="not begun")),
        trials=trials,
    )
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        fill_search(connection, found.large, until=9_000)
        fill_search(connection, found.small, seed=2)
        fill_search(connection, found.pausing, until=3_000, seed=3)
        fill_search(connection, found.breeding, seed=3)
        fill_search(connection, found.single, until=3000)
        fill_search(connection, found.failed, until=2000)
        connection.execute(
            text("""
            UPDATE trials SET state = 'ERROR', reason = :why, end_time = now() WHERE experiment_id = :experiment"""),
            {"why": MEMORY, "experiment": found.failed},
        )
        connection.execute(
            text("""
            UPDATE experiments SET state = 'ERROR', reason = :why, end_time = now(), live_trials = 0
            WHERE id = :experiment"""),
            {"why": f"the trial failed: {MEMORY}", "experiment": found.failed},
        )
        connection.execute(
            text("""
            UPDATE allocations SET state = 'TERMINATED', ended_at = now()
            WHERE ended_at IS NULL AND trial_id IN (SELECT id FROM trials WHERE experiment_id = :experiment)"""),
            {"experiment": found.failed},
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))
    engine.dispose()
    return found


def end_searches(master: MasterProcess, found: Searches) -> None:
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        mine = {"mine": [found.large, found.small, found.pausing, found.single, found.failed, found.empty]}
        for table in ("trials WHERE experiment_id", "experiments WHERE id"):
            name, _, key = table.partition(" WHERE ")
            connection.execute(
                text(
                    f"UPDATE {name} SET state = 'CANCELED', end_time = now() "
                    f"WHERE {key} = ANY(:mine) AND end_time IS NULL"
                ),
                mine,
            )
    engine.dispose()
