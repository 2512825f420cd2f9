"""Trials with logs of any length, for tests of the page of a log."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, text

from tests.support.bound import bind
from tests.support.master import MasterProcess, files
from tests.support.webui.filled_search import fill_search
from tests.support.webui.searches import MEMORY, SINGLE
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine
from trainmaster.master.services.logs import log_blocks
from trainmaster.master.services.store import Store

RANKS, NODES = 8, 4
WARNING_EVERY, ERROR_EVERY = 1009, 50_021
FIRST_ERROR = 777  # the number, from 1, of the line with it
# As a training on eight ranks writes: 10 ms from line to line, a warning in a thousand lines, few errors.
_LINES = f"""
    INSERT INTO task_logs (task_id, allocation_id, at, level, rank_id, agent_id, stdtype, source, log)
    SELECT :task, :task || '.' || (1 + 2 * n / (:lines + 1)), now() - (:lines - n) * interval '10 ms',
           CASE WHEN n % {ERROR_EVERY} = {FIRST_ERROR} THEN 5 WHEN n % {WARNING_EVERY} = 5 THEN 4 ELSE 3 END,
           n % {RANKS}, 'node' || n % {NODES}, CASE WHEN n % 7 = 0 THEN 'stderr' ELSE 'stdout' END, 'task',
           CASE WHEN n % {ERROR_EVERY} = {FIRST_ERROR} THEN 'line ' || n || ' needle: CUDA error: out of memory'
                WHEN n % {WARNING_EVERY} = 5 THEN 'line ' || n || ' \x1b[33mthe loader is slow\x1b[0m'
                ELSE 'line ' || n || ' epoch ' || n / 1000 || ' loss=' || n % 997 / 997.0 || ' throughput 1234 img/s'
           END
    FROM generate_series(1, :lines) AS t(n)"""


@dataclass(frozen=True)
class FilledLog:
    experiment: int
    trial: int
    task: str
    lines: int


def make_log(master: MasterProcess, lines: int, *, failed: bool = True) -> FilledLog:
    """Makes an experiment of one trial with a log. What runs belongs to a cluster that the master does not have."""
    code = files(train__py="print('training')\n")
    number = master.client().create_experiment(SINGLE.format(name="a long log"), code, activate=False).id
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        fill_search(connection, number, until=2000)
        query = text("SELECT id, task_id FROM trials WHERE experiment_id = :experiment")
        trial, task = connection.execute(query, {"experiment": number}).one()
        connection.execute(text("DELETE FROM task_logs WHERE task_id = :task"), {"task": task})
        connection.execute(text(_LINES), {"task": task, "lines": lines})
        if failed:
            _fail(connection, number)
    services = bind(Store(engine))
    while services.compaction.count(log_blocks.SOURCE, services.compaction.newest(log_blocks.SOURCE)):
        pass
    while services.log_blocks.compact(task):
        pass
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE task_logs"))
    engine.dispose()
    return FilledLog(number, trial, task, lines)


def end_log(master: MasterProcess, found: FilledLog) -> None:
    """Ends a trial that still runs: no job is behind it."""
    engine = make_engine(EmbeddedServer(master.data).url, pool_size=1)
    with engine.begin() as connection:
        _fail(connection, found.experiment)
    engine.dispose()


def _fail(connection: Connection, experiment: int) -> None:
    given = {"why": MEMORY, "experiment": experiment}
    for statement in (
        """UPDATE allocations SET state = 'TERMINATED', ended_at = now()
           WHERE ended_at IS NULL AND trial_id IN (SELECT id FROM trials WHERE experiment_id = :experiment)""",
        "UPDATE trials SET state = 'ERROR', reason = :why, end_time = now() WHERE experiment_id = :experiment",
        """UPDATE experiments SET state = 'ERROR', reason = 'the trial failed: ' || :why, end_time = now(),
           live_trials = 0 WHERE id = :experiment""",
    ):
        connection.execute(text(statement), given)
