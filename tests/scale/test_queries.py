"""No question to a large database reads more of it than it must, and none is asked once an entry."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.scale.filling import Size
from tests.support.scale.plans import explain, listening
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.allocations import endings, pending_work
from trainmaster.master.services.clock import now
from trainmaster.master.services.clusters.clusters import Clusters
from trainmaster.master.services.experiments import experiments, trials
from trainmaster.master.services.files.user_files import UserFiles
from trainmaster.master.services.logs import log_store
from trainmaster.master.services.logs.log_store import LogFilter
from trainmaster.master.services.metrics import metric_reports
from trainmaster.master.services.removal import removal
from trainmaster.master.services.resources import job_queue
from trainmaster.master.services.retries import Retries
from trainmaster.master.services.scheduling import observations, submission
from trainmaster.master.services.store import Settings, Store

SETTINGS = Settings("1", "id", "x", b"secret", "det-", "http://master", b"")

pytestmark = pytest.mark.slow

SMALL = {"users", "projects", "workspaces", "cluster", "report_streams"}  # a handful of rows
PAGE = 50
CALLER = Caller(1, "admin", admin=True)


def ask(
    engine: Engine, question: Callable[[], Any], *, statements: int, rows: int, whole: AbstractSet[str] = frozenset()
) -> Any:
    """The answer; it may take that many statements, each of which may read that many rows. Of tables that grow, only
    those in `whole` may be read from end to end."""
    with listening(engine) as asked:
        answer = question()
    assert len(asked.reading) <= statements, [sql for sql, _ in asked.reading]
    for sql, parameters in asked.reading:
        read = explain(engine, sql, parameters)
        assert read.rows <= rows, f"{read.rows} rows read\n{read.plan}\n{sql}"
        assert not set(read.scanned) - whole - SMALL, f"{read.scanned}\n{read.plan}\n{sql}"
    return answer


# -- lists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", experiments.SORTS)
def test_experiments_by_every_column(full: Engine, store: Store, size: Size, sort: str, descending: bool) -> None:
    query = experiments.ListQuery(sort_by=sort, descending=descending)
    page = ask(
        full,
        lambda: experiments.list_page(store, CALLER, query, 100, PAGE),
        statements=6,
        rows=2 * size.experiments + 2 * size.live + 50,
        whole={"experiments"},
    )
    assert len(page.items) == PAGE


@pytest.mark.parametrize(
    "query",
    [{"archived": False}, {"users": ["determined"]}, {"labels": ["label1"]}, {"states": ["RUNNING"]}, {"name": "3"}],
    ids=str,
)
def test_experiments_by_every_filter(full: Engine, store: Store, size: Size, query: dict[str, Any]) -> None:
    wanted = experiments.ListQuery(**query)
    rows = 2 * size.experiments + 2 * size.live + 50
    assert ask(
        full,
        lambda: experiments.list_page(store, CALLER, wanted, 0, PAGE),
        statements=8,
        rows=rows,
        whole={"experiments"},
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", trials.SORTS)
def test_trials_by_every_column(full: Engine, store: Store, size: Size, sort: str, descending: bool) -> None:
    def question(experiment_id: int, offset: int) -> Callable[[], Any]:
        return lambda: trials.list_page(store, experiment_id, (), sort, descending, offset, PAGE)

    small = (size.trials - size.largest) // (size.experiments - 1) + 1
    found = ask(full, question(7, 0), statements=4, rows=2 * small)
    assert 0 < len(found.items) <= small
    page = ask(full, question(1, 2000), statements=4, rows=size.largest + 50, whole={"trials"})
    assert len(page.items) == PAGE


def test_trials_by_id_and_metric_read_a_page_of_them(full: Engine, store: Store) -> None:
    for sort in ("id", "best_validation_metric"):
        with listening(full) as asked:
            trials.list_page(store, 1, (), sort, False, 0, PAGE)
        for statement in asked.reading[-2:]:
            read = explain(full, *statement)
            assert read.rows <= 2 * PAGE, read.plan


@pytest.mark.parametrize("sort", trials.CHECKPOINT_SORTS)
def test_checkpoints_by_every_column(full: Engine, store: Store, size: Size, sort: str) -> None:
    def question(**where: Any) -> Callable[[], Any]:
        return lambda: trials.list_checkpoints(store, sort_by=sort, limit=PAGE, **where)

    ask(full, question(experiment_id=7), statements=5, rows=4 * (size.trials // size.experiments) + 50)
    ask(full, question(trial_id=8), statements=5, rows=20)
    page = ask(full, question(experiment_id=1), statements=5, rows=2 * size.largest + 50, whole={"checkpoints"})
    assert len(page.items) == PAGE


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("offset", [0, 300])
def test_a_page_of_a_long_history(full: Engine, store: Store, size: Size, offset: int, descending: bool) -> None:
    with listening(full) as asked:
        page = trials.workloads(store, 1, offset, 100, descending=descending)
    assert len(page.items) == 100
    steps = [_steps(load) for load in page.items]
    assert steps == sorted(steps, reverse=descending)
    assert len(asked.reading) <= 7
    for sql, parameters in asked.reading:
        counts = sql.lstrip().upper().startswith("SELECT COUNT(")
        read = explain(full, sql, parameters)
        assert read.rows <= (size.reports // 5 if counts else 2 * (offset + 100) + 50), f"{read.plan}\n{sql}"
        assert not read.scanned, read.plan
        if counts:
            assert "Index Only Scan" in read.plan, f"counting reads the rows\n{read.plan}"


def _steps(load: trials.Workload) -> int:
    if load.checkpoint is not None:
        return load.checkpoint.steps_completed
    report = load.training or load.validation
    assert report is not None
    return report.steps


def test_the_pages_of_a_history_are_the_history(full: Engine, store: Store) -> None:
    whole = trials.workloads(store, 1, 0, 0)
    assert whole.window.total == len(whole.items) > 1000
    paged = [load for offset in range(0, 1000, 90) for load in trials.workloads(store, 1, offset, 90).items]
    assert [_key(load) for load in paged[:1000]] == [_key(load) for load in whole.items[:1000]]
    last = trials.workloads(store, 1, -5, 0).items
    assert [_key(load) for load in last] == [_key(load) for load in whole.items[-5:]]


def _key(load: trials.Workload) -> Any:
    return load.checkpoint.uuid if load.checkpoint is not None else (load.training or load.validation)


# -- streams ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 100_000])
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_of_a_log(full: Engine, store: Store, after: int, newest_first: bool) -> None:
    def question() -> Any:
        return log_store.read(store, "task-1", LogFilter(), after_id=after, limit=100, newest_first=newest_first)

    # Half of all lines are this task's, so walking all lines reads twice as many as it gives.
    assert len(ask(full, question, statements=1, rows=300)) == 100


def test_a_filter_of_a_log_reads_that_task_only(full: Engine, store: Store, size: Size) -> None:
    where = LogFilter(levels=["ERROR"], search_text="epoch")
    rows = size.lines // size.trials * 2
    assert ask(full, lambda: log_store.read(store, "task-5", where, limit=100), statements=2, rows=rows) == []


@pytest.mark.parametrize("group", [None, "training", "validation"])
def test_a_page_of_metrics(full: Engine, store: Store, group: str | None) -> None:
    def first_page() -> Any:
        return list(islice(metric_reports.stream(store, [1], group, page=500), 500))

    assert len(ask(full, first_page, statements=1, rows=1010)) == 500
    assert ask(full, lambda: list(metric_reports.stream(store, [9], group)), statements=1, rows=100)


# -- single things ----------------------------------------------------------------------------------------------


def test_one_experiment_one_trial_one_checkpoint(full: Engine, store: Store, size: Size) -> None:
    ask(full, lambda: experiments.get(store, 7), statements=6, rows=100)
    ask(full, lambda: experiments.get(store, 1), statements=6, rows=size.largest + 1, whole={"trials"})
    ask(full, lambda: trials.get(store, 1234), statements=4, rows=10)
    ask(full, lambda: trials.task_with_allocations(store, "task-77"), statements=2, rows=10)
    ask(full, lambda: experiments.story(store, 1234), statements=2, rows=10)
    with full.connect() as connection:
        key = connection.execute(text("SELECT uuid FROM checkpoints WHERE trial_id = 77 LIMIT 1")).scalar_one()
    ask(full, lambda: trials.get_checkpoint(store, str(key)), statements=3, rows=3)


# -- what the controller asks, over and over -------------------------------------------------------------------------


def test_the_queue(full: Engine, store: Store, size: Size) -> None:
    jobs = ask(
        full,
        lambda: job_queue.page(store, None, 0, 100),
        statements=2,  # of experiments, and of tasks of none
        rows=size.experiments + 4 * size.live,
        whole={"experiments"},
    )
    assert jobs.window.total >= 1


@pytest.mark.parametrize(
    "question",
    [
        lambda store: submission.due(store, "default", 64),
        lambda store: submission.due(store, "default", 64, rooms={1: 2}),
        lambda store: submission.next_due(store, "default", now()),
        lambda store: observations.any_live(store, "default"),
        lambda store: endings.to_kill(store, "default"),
        lambda store: endings.enforce_deadlines(store),
        lambda store: pending_work.pending_work(store, "default"),
        lambda store: endings.ending(store, "default"),
        lambda store: endings.uncollected(store, "default", 20),
        lambda store: removal.ExperimentRemoval(store, SETTINGS, UserFiles(SETTINGS, Clusters([])), Retries()).go_on(),
        lambda store: removal.remove_expired_sessions(store),
    ],
    ids=(
        "due",
        "limited",
        "next_due",
        "live",
        "to_kill",
        "deadlines",
        "agenda",
        "ending",
        "uncollected",
        "deleted",
        "sessions",
    ),
)
def test_a_pass_of_the_loops_reads_what_lives(
    full: Engine, store: Store, size: Size, question: Callable[[Store], Any]
) -> None:
    ask(
        full,
        lambda: question(store),
        statements=2,
        rows=size.live + size.experiments,
        whole={"experiments", "user_sessions"},
    )
