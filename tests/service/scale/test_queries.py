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
from trainmaster.master.services.clock import now
from trainmaster.master.services.experiments import experiments, trials
from trainmaster.master.services.logs.log_store import LogFilter
from trainmaster.master.services.master import Master
from trainmaster.master.services.removal.removal import ExperimentRemoval
from trainmaster.master.services.retries import Retries

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
def test_experiments_by_every_column(full: Engine, master: Master, size: Size, sort: str, descending: bool) -> None:
    query = experiments.ListQuery(sort_by=sort, descending=descending)
    page = ask(
        full,
        lambda: master.experiments.list_page(CALLER, query, 100, PAGE),
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
def test_experiments_by_every_filter(full: Engine, master: Master, size: Size, query: dict[str, Any]) -> None:
    wanted = experiments.ListQuery(**query)
    rows = 2 * size.experiments + 2 * size.live + 50
    assert ask(
        full,
        lambda: master.experiments.list_page(CALLER, wanted, 0, PAGE),
        statements=8,
        rows=rows,
        whole={"experiments"},
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", trials.SORTS)
def test_trials_by_every_column(full: Engine, master: Master, size: Size, sort: str, descending: bool) -> None:
    def question(experiment_id: int, offset: int) -> Callable[[], Any]:
        return lambda: master.trials.list_page(experiment_id, (), sort, descending, offset, PAGE)

    small = (size.trials - size.largest) // (size.experiments - 1) + 1
    found = ask(full, question(7, 0), statements=4, rows=2 * small)
    assert 0 < len(found.items) <= small
    page = ask(full, question(1, 2000), statements=4, rows=size.largest + 50, whole={"trials"})
    assert len(page.items) == PAGE


def test_trials_by_id_and_metric_read_a_page_of_them(full: Engine, master: Master) -> None:
    for sort in ("id", "best_validation_metric"):
        with listening(full) as asked:
            master.trials.list_page(1, (), sort, False, 0, PAGE)
        for statement in asked.reading[-2:]:
            read = explain(full, *statement)
            assert read.rows <= 2 * PAGE, read.plan


@pytest.mark.parametrize("sort", trials.CHECKPOINT_SORTS)
def test_checkpoints_by_every_column(full: Engine, master: Master, size: Size, sort: str) -> None:
    def question(**where: Any) -> Callable[[], Any]:
        return lambda: master.trials.list_checkpoints(sort_by=sort, limit=PAGE, **where)

    ask(full, question(experiment_id=7), statements=5, rows=4 * (size.trials // size.experiments) + 50)
    ask(full, question(trial_id=8), statements=5, rows=20)
    page = ask(full, question(experiment_id=1), statements=5, rows=2 * size.largest + 50, whole={"checkpoints"})
    assert len(page.items) == PAGE


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("offset", [0, 300])
def test_a_page_of_a_long_history(full: Engine, master: Master, size: Size, offset: int, descending: bool) -> None:
    with listening(full) as asked:
        page = master.trials.workloads(1, offset, 100, descending=descending)
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


def test_the_pages_of_a_history_are_the_history(full: Engine, master: Master) -> None:
    whole = master.trials.workloads(1, 0, 0)
    assert whole.window.total == len(whole.items) > 1000
    paged = [load for offset in range(0, 1000, 90) for load in master.trials.workloads(1, offset, 90).items]
    assert [_key(load) for load in paged[:1000]] == [_key(load) for load in whole.items[:1000]]
    last = master.trials.workloads(1, -5, 0).items
    assert [_key(load) for load in last] == [_key(load) for load in whole.items[-5:]]


def _key(load: trials.Workload) -> Any:
    return load.checkpoint.uuid if load.checkpoint is not None else (load.training or load.validation)


# -- streams ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 100_000])
@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_of_a_log(full: Engine, master: Master, after: int, newest_first: bool) -> None:
    def question() -> Any:
        return master.log_store.read("task-1", LogFilter(), after_id=after, limit=100, newest_first=newest_first)

    # Half of all lines are this task's, so walking all lines reads twice as many as it gives.
    assert len(ask(full, question, statements=1, rows=300)) == 100


def test_a_filter_of_a_log_reads_that_task_only(full: Engine, master: Master, size: Size) -> None:
    where = LogFilter(levels=["ERROR"], search_text="epoch")
    rows = size.lines // size.trials * 2
    assert ask(full, lambda: master.log_store.read("task-5", where, limit=100), statements=2, rows=rows) == []


@pytest.mark.parametrize("group", [None, "training", "validation"])
def test_a_page_of_metrics(full: Engine, master: Master, group: str | None) -> None:
    def first_page() -> Any:
        return list(islice(master.metric_reports.stream([1], group, page=500), 500))

    assert len(ask(full, first_page, statements=1, rows=1010)) == 500
    assert ask(full, lambda: list(master.metric_reports.stream([9], group)), statements=1, rows=100)


# -- single things ----------------------------------------------------------------------------------------------


def test_one_experiment_one_trial_one_checkpoint(full: Engine, master: Master, size: Size) -> None:
    ask(full, lambda: master.experiments.get(7), statements=6, rows=100)
    ask(full, lambda: master.experiments.get(1), statements=6, rows=size.largest + 1, whole={"trials"})
    ask(full, lambda: master.trials.get(1234), statements=4, rows=10)
    ask(full, lambda: master.trials.task_with_allocations("task-77"), statements=2, rows=10)
    ask(full, lambda: master.experiments.story(1234), statements=2, rows=10)
    with full.connect() as connection:
        key = connection.execute(text("SELECT uuid FROM checkpoints WHERE trial_id = 77 LIMIT 1")).scalar_one()
    ask(full, lambda: master.trials.get_checkpoint(str(key)), statements=3, rows=3)


# -- what the controller asks, over and over -------------------------------------------------------------------------


def test_the_queue(full: Engine, master: Master, size: Size) -> None:
    jobs = ask(
        full,
        lambda: master.job_queue.page(None, 0, 100),
        statements=2,  # of experiments, and of tasks of none
        rows=size.experiments + 4 * size.live,
        whole={"experiments"},
    )
    assert jobs.window.total >= 1


@pytest.mark.parametrize(
    "question",
    [
        lambda master: master.submissions.due("default", 64),
        lambda master: master.submissions.due("default", 64, rooms={1: 2}),
        lambda master: master.submissions.next_due("default", now()),
        lambda master: master.observations.any_live("default"),
        lambda master: master.endings.to_kill("default"),
        lambda master: master.endings.enforce_deadlines(),
        lambda master: master.work_steps.pending("default"),
        lambda master: master.endings.ending("default"),
        lambda master: master.endings.uncollected("default", 20),
        lambda master: ExperimentRemoval(master, Retries()).go_on(),
        lambda master: master.removal.remove_expired_sessions(),
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
def test_loop_pass_reads_only_live_rows(
    full: Engine, master: Master, size: Size, question: Callable[[Master], Any]
) -> None:
    ask(
        full,
        lambda: question(master),
        statements=2,
        rows=size.live + size.experiments,
        whole={"experiments", "user_sessions"},
    )
