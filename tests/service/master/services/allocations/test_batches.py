"""What jobs say leaves the same rows whether it is taken in call by call or in batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from tests.support import batches
from tests.support.attempts import Attempts
from trainmaster.master.db.tables import Allocation, AllocationNode, ReportStream, Trial, metrics
from trainmaster.master.services.clock import now
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.exits import ExitReport
from trainmaster.master.services.ingest.streams import StreamBatch

Json = dict[str, Any]
TRIALS = 3

VALUES = st.sampled_from(
    [0.5, -2, 3.25, 1e300, "NaN", "Infinity", float("nan"), float("-inf"), "word", True, None, [1]]
)
MEASURED = st.fixed_dictionaries(
    {
        "t": st.just(1.5e9),
        "kind": st.just("metrics"),
        "group": st.sampled_from(["training", "training", "training", "validation", "other", "gpu"]),
        "steps_completed": st.integers(0, 6),
        "metrics": st.dictionaries(st.sampled_from(["loss", "lr"]), VALUES, max_size=2),
    }
)
RISING = st.builds(
    lambda first, values: [
        {"t": 1.5e9, "kind": "metrics", "group": "training", "steps_completed": first + n, "metrics": {"loss": value}}
        for n, value in enumerate(values)
    ],
    st.integers(1, 9),
    st.lists(st.floats(-9, 9), min_size=1, max_size=4),
)
OTHER = st.sampled_from(
    [
        {"t": 1.0, "kind": "progress", "progress": 0.5},
        {"t": 1.0, "kind": "status", "state": "busy"},
        {"t": 1.0, "kind": "metadata", "metadata": {"a": 1}},
        {"t": 1.0, "kind": "unreadable", "why": "?"},
        {"t": 1.0, "kind": "metrics", "group": "", "metrics": {}},
        {"t": 1.0, "kind": "metrics", "group": "training", "steps_completed": -1, "metrics": {"loss": 1}},
        {},
    ]
)
LINES = st.lists(st.sampled_from(["one", "two"]).map(lambda line: {"t": 1.5, "line": line}), max_size=2)


def report(which: int, stream: str, shift: int, records: Sequence[Json]) -> tuple[int, str, int, Sequence[Json]]:
    return which, stream, shift, records


REPORTS = st.lists(
    st.builds(
        report,
        st.integers(0, TRIALS - 1),
        st.just("core"),
        st.sampled_from([0, 0, 0, 0, -1, -2, 1]),  # the next ones, again some that were sent before, or after a gap
        RISING | RISING | st.lists(MEASURED, min_size=1, max_size=4) | st.lists(MEASURED | OTHER, max_size=3),
    )
    | st.builds(report, st.integers(0, TRIALS - 1), st.just("log-0"), st.sampled_from([0, 0, -1, 1]), LINES),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(sent=REPORTS, sizes=st.lists(st.integers(1, TRIALS), min_size=1, max_size=6))
def test_reports_count_the_same(
    attempts: Attempts, sent: Sequence[tuple[int, str, int, Sequence[Json]]], sizes: Sequence[int]
) -> None:
    """Duplicates, gaps, steps that go back, values that are no numbers, records that cannot be stored."""
    found = []
    for take in (alone(batches.reports), in_batches(batches.reports, sizes)):
        names = [batches.running(attempts) for _ in range(TRIALS)]
        written: dict[tuple[int, str], int] = {}
        calls = []
        for which, stream, shift, records in sent:
            first = max(1, written.get((which, stream), 0) + 1 + shift)
            written[which, stream] = max(written.get((which, stream), 0), first - 1 + len(records))
            calls.append(ReportCall(names[which], StreamBatch(stream, first, records)))
        answers = take(attempts, calls)
        found.append((said(answers, names), [what_is_kept(attempts, name) for name in names]))
    assert found[0] == found[1]


LEASES = st.lists(
    st.tuples(
        st.integers(0, TRIALS),
        st.sampled_from(["7", "7", "8"]),
        st.sampled_from(["a", "a", "b"]),
        st.integers(0, 1),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=40, deadline=None)
@given(asked=LEASES, sizes=st.lists(st.integers(1, TRIALS), min_size=1, max_size=6))
def test_leases_are_given_to_the_same(
    attempts: Attempts, asked: Sequence[tuple[int, str, str, int, int]], sizes: Sequence[int]
) -> None:
    """The first job's token wins, and the first run on each of its nodes; who comes after an end leaves."""
    found = []
    for take in (alone(batches.leases), in_batches(batches.leases, sizes)):
        names = [batches.waiting(attempts) for _ in range(TRIALS + 1)]
        attempts.change(names[0], slots=2)
        attempts.change(names[-1], kill_at=now())
        calls = [batches.request(names[which], job, run, rank, nodes) for which, job, run, rank, nodes in asked]
        answers = take(attempts, calls)
        found.append((said(answers, names), [lease_of(attempts, name) for name in names]))
    assert found[0] == found[1]


EXITS = st.lists(
    st.tuples(
        st.integers(0, TRIALS),
        st.sampled_from(["1", "1", "2"]),
        st.integers(0, 1),
        st.sampled_from([0, 1, "broken"]),
        st.sampled_from([0, 0, -1, 1]),
        LINES,
        st.just([]) | RISING,
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=40, deadline=None)
@given(sent=EXITS, sizes=st.lists(st.integers(1, TRIALS), min_size=1, max_size=6))
def test_exits_are_noted_the_same(
    attempts: Attempts, sent: Sequence[tuple[int, str, int, Any, int, Sequence[Json], Sequence[Json]]], sizes: list[int]
) -> None:
    """Twice, of another job, of an attempt that has ended, with lines and with reports that come again or too early."""
    found = []
    for take in (alone(batches.exits), in_batches(batches.exits, sizes)):
        names = [batches.running(attempts) for _ in range(TRIALS + 1)]
        attempts.change(names[-1], ended_at=now())
        written: dict[tuple[int, str], int] = {}
        calls = []
        for which, job, rank, code, shift, lines, reports in sent:
            pieces = []
            for stream, records in ((f"log-{rank}", lines), ("core", reports)):
                first = max(1, written.get((which, stream), 0) + 1 + shift)
                written[which, stream] = max(written.get((which, stream), 0), first - 1 + len(records))
                pieces += [StreamBatch(stream, first, records)] if records else []
            calls.append(ExitReport(names[which], {"job_id": job, "node_rank": rank, "exit_code": code}, pieces))
        answers = take(attempts, calls)
        found.append((said(answers, names), [exit_of(attempts, name) for name in names]))
    assert found[0] == found[1]


def test_masters_take_batches_of_same_trials_without_deadlock(attempts: Attempts) -> None:
    names = [batches.running(attempts) for _ in range(12)]
    chance = random.Random(7)

    def work(master: int) -> None:
        for number in range(30):
            some = chance.sample(names, 8)
            step = 1 + number
            calls = [ReportCall(name, StreamBatch("core", step, [training(step)])) for name in some]
            for answer in batches.reports(attempts, calls):
                assert not isinstance(answer, Exception), answer
            if number % 10 == 9:
                lines = StreamBatch(f"log-{master}", 1, [{"t": 1.5, "line": "the end"}])
                ends = [
                    ExitReport(name, {"job_id": "1", "node_rank": master, "exit_code": 0}, [lines]) for name in some
                ]
                for answer in batches.exits(attempts, ends):
                    assert not isinstance(answer, Exception), answer

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work, master) for master in range(4)]:
            done.result()
    for name in names:
        kept = what_is_kept(attempts, name)
        count = len(kept["rows"])
        assert kept["streams"].get("core", 0) == count
        assert [row[2] for row in kept["rows"]] == list(range(1, count + 1))
        if count:
            loss = kept["summary"]["avg_metrics"]["loss"]
            assert (loss["count"], loss["sum"]) == (count, sum(range(1, count + 1)))


def training(step: int) -> Json:
    return {"t": 1.5e9, "kind": "metrics", "group": "training", "steps_completed": step, "metrics": {"loss": step}}


# -- how calls are taken in --

Take = Callable[[Attempts, Sequence[Any]], list[Any]]


def alone(take: Take) -> Take:
    return lambda attempts, calls: [take(attempts, [call])[0] for call in calls]


def in_batches(take: Take, sizes: Sequence[int]) -> Take:
    """Batches of these sizes, over and over; of one attempt there is one call in each."""

    def run(attempts: Attempts, calls: Sequence[Any]) -> list[Any]:
        answers: list[Any] = []
        batch: list[Any] = []
        left = list(calls)
        while left:
            size = sizes[len(answers) % len(sizes)]
            batch = []
            while left and len(batch) < size and left[0].allocation_id not in {call.allocation_id for call in batch}:
                batch.append(left.pop(0))
            answers += take(attempts, batch)
        return answers

    return run


def said(answers: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Answers and errors as texts, with the attempts' names and whatever else is its own taken out."""
    texts = []
    for answer in answers:
        if isinstance(answer, dict) and "trial" in answer:
            texts.append("a lease")
            continue
        text = repr(answer)
        for number, name in enumerate(names):
            text = text.replace(name, f"attempt {number}")
        texts.append(text)
    return texts


# -- what is kept --


def what_is_kept(attempts: Attempts, name: str) -> Json:
    m = metrics.c
    with attempts.store.autocommit() as session:
        trial = session.scalars(select(Trial).where(Trial.task_id == name)).one()
        rows = session.execute(
            select(m.kind, m.group, m.steps, m.run_id, m.archived, m.metrics)
            .where(m.trial_id == trial.id)
            .order_by(m.id)
        )
        return {
            "rows": [tuple(row) for row in rows],
            "summary": trial.summary_metrics,
            "batches": trial.total_batches,
            "latest": trial.latest_validation,
            "best": trial.best_validation,
            "metric": trial.searcher_metric,
            "progress": trial.progress,
            "status": trial.runner_state,
            "metadata": trial.run_metadata,
            "streams": {
                row.stream: row.acked
                for row in session.scalars(select(ReportStream).where(ReportStream.allocation_id == name))
            },
            "log": attempts.log(name),
            "alive": session.get_one(Allocation, name).heartbeat_at is not None,
        }


def lease_of(attempts: Attempts, name: str) -> Any:
    row = attempts.row(name)
    with attempts.store.autocommit() as session:
        query = select(AllocationNode).where(AllocationNode.allocation_id == name).order_by(AllocationNode.node_rank)
        nodes = [(node.node_rank, node.run_id, node.name) for node in session.scalars(query)]
    facts = (row.lease_job, row.native_id, row.state, row.submission, row.num_nodes, row.observed_state)
    return facts, nodes, attempts.log(name)


def exit_of(attempts: Attempts, name: str) -> Any:
    exits = {
        rank: {key: value for key, value in record.items() if key != "received_at"}
        for rank, record in attempts.row(name).exits.to_json().items()
    }
    return exits, what_is_kept(attempts, name)
