"""What a job brings at its end is taken in once, together with what its lines lead to."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from tests.support.attempts import Attempts
from trainmaster.master.db.tables import Allocation, AllocationNode, ReportStream, Trial
from trainmaster.master.services.batches import CannotBatch, single
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.ingest.calls import ReportCall
from trainmaster.master.services.ingest.exits import ExitReport
from trainmaster.master.services.ingest.records import ReportAnswer
from trainmaster.master.services.ingest.streams import StreamBatch
from trainmaster.master.values.exits import ExitRecords

POLICY = {"name": "broken", "pattern": "uncorrectable", "action": "exclude_node"}


def lines(*texts: str) -> list[dict[str, Any]]:
    return [{"t": 1.5, "line": text, "level": "INFO", "stdtype": "stdout"} for text in texts]


def exits(attempts: Attempts, name: str, *pieces: StreamBatch) -> dict[str, int]:
    return single(attempts.master.exits.take_exits([word(name, *pieces)]))


def leased(attempts: Attempts, config: dict[str, Any] | None = None) -> str:
    name = attempts.attempt(attempts.experiment(config), lease_job="1", exits={})
    with attempts.store.transaction() as session:
        session.add(AllocationNode(allocation_id=name, node_rank=0, run_id="r", name="n1", slot_ids=[], addresses=[]))
    return name


def word(name: str, *pieces: StreamBatch, **record: Any) -> ExitReport:
    return ExitReport(name, {"job_id": "1", "exit_code": 1, "node_rank": 0, **record}, pieces)


def report(attempts: Attempts, name: str, records: list[dict[str, Any]]) -> ReportAnswer:
    return single(attempts.master.report_calls.take_reports([ReportCall(name, StreamBatch("log-0", 1, records))]))


def acked(attempts: Attempts, name: str) -> dict[str, int]:
    with attempts.store.autocommit() as session:
        return {
            row.stream: row.acked
            for row in session.scalars(select(ReportStream).where(ReportStream.allocation_id == name))
        }


def test_an_exit_and_its_lines_count_once(attempts: Attempts) -> None:
    name = leased(attempts)
    last = StreamBatch("log-0", 1, lines("one", "two"))
    for _ in range(2):
        assert exits(attempts, name, last) == {"log-0": 2}
    assert attempts.log(name) == ["one", "two"]
    assert attempts.row(name).exits.by_rank[0].exit_code == 1
    assert acked(attempts, name) == {"log-0": 2}


def test_exit_adds_only_new_lines_and_leaves_no_gap(attempts: Attempts) -> None:
    name = leased(attempts)
    answer = report(attempts, name, lines("one", "two"))
    assert answer.acked == 2
    assert exits(attempts, name, StreamBatch("log-0", 4, lines("four"))) == {"log-0": 2}
    assert exits(attempts, name, StreamBatch("log-1", 2, lines("two of another"))) == {"log-1": 0}
    assert exits(attempts, name, StreamBatch("log-0", 2, lines("two", "three"))) == {"log-0": 3}
    assert attempts.log(name) == ["one", "two", "three"]


def test_last_lines_trigger_log_policies(attempts: Attempts) -> None:
    name = leased(attempts, {"log_policies": [POLICY]})
    quiet = report(attempts, name, lines("all is well"))
    assert quiet.acked == 1
    last = StreamBatch("log-0", 2, lines("an uncorrectable error"))
    for _ in range(2):
        assert exits(attempts, name, last) == {"log-0": 2}
    with attempts.store.autocommit() as session:
        trial = session.scalars(select(Trial).where(Trial.task_id == name)).one()
    assert (trial.blocked_nodes, trial.log_policy) == (["n1"], "broken")
    said = "The log policy broken has matched: therefore will not schedule on n1"
    assert attempts.log(name) == ["all is well", said, "an uncorrectable error"]


def test_last_words_of_several_are_taken_in_together(attempts: Attempts) -> None:
    first, second, third = sorted(leased(attempts) for _ in range(3))
    assert report(attempts, second, lines("one")).acked == 1
    words = [
        word(third),
        word(first, StreamBatch("log-0", 1, lines("a", "b")), StreamBatch("log-1", 1, lines("of another node"))),
        word(second, StreamBatch("log-0", 1, lines("one", "two")), StreamBatch("log-1", 2, lines("after a gap"))),
    ]
    for _ in range(2):
        assert attempts.master.exits.take_exits(words) == [
            {},
            {"log-0": 2, "log-1": 1},
            {"log-0": 2, "log-1": 0},
        ]
    assert attempts.log(first) == ["a", "b", "of another node"]
    assert attempts.log(second) == ["one", "two"]
    assert [attempts.row(name).exits.by_rank[0].exit_code for name in (first, second, third)] == [1, 1, 1]
    assert (acked(attempts, second), acked(attempts, third)) == ({"log-0": 2}, {})


def test_a_warning_among_the_last_lines_is_noted(attempts: Attempts) -> None:
    name = leased(attempts)
    warned = [{"t": 1.5, "kind": "preempt_pending", "reason": "walltime"}]
    assert attempts.master.exits.take_exits([word(name, StreamBatch("log-0", 1, warned))]) == [{"log-0": 1}]
    assert attempts.row(name).preempt_reason == "walltime"


def test_exits_unfit_for_batch_are_refused_and_nothing_is_stored(attempts: Attempts) -> None:
    watched = leased(attempts, {"log_policies": [POLICY]})
    measured, twice, odd, busy, plain = (leased(attempts) for _ in range(5))
    words = [
        word(watched, StreamBatch("log-0", 1, lines("an uncorrectable error"))),
        word(measured, StreamBatch("core", 1, [{"kind": "progress", "progress": 1.0}])),
        word(twice, StreamBatch("log-0", 1, lines("a")), StreamBatch("log-0", 1, lines("a"))),
        word(odd, exit_code="broken"),
        word(busy),
        word("nobody"),
        word(plain, StreamBatch("log-0", 1, lines("all is well"))),
    ]
    with attempts.store.transaction() as session:
        session.get_one(Allocation, busy, with_for_update=True)
        outcomes = attempts.master.exits.take_exits(words, wait=False)
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [CannotBatch, CannotBatch, dict, Invalid, CannotBatch, CannotBatch, dict]
    for name in (watched, measured, odd, busy):
        assert (attempts.row(name).exits, attempts.log(name), acked(attempts, name)) == (ExitRecords({}), [], {})
    assert (attempts.log(twice), acked(attempts, twice)) == (["a"], {"log-0": 1})
    assert attempts.master.exits.take_exits(words[-3:-2]) == [{}]


def test_unstorable_exit_rolls_back_batch_but_not_later_exits(attempts: Attempts) -> None:
    good, bad = leased(attempts), leased(attempts)
    words = [word(good, StreamBatch("log-0", 1, lines("fine"))), word(bad, StreamBatch("log-0", 0, lines("zeroth")))]
    with pytest.raises(Invalid):
        attempts.master.exits.take_exits(words)
    assert (attempts.row(good).exits, attempts.log(good)) == (ExitRecords({}), [])
    assert attempts.master.exits.take_exits(words[:1]) == [{"log-0": 1}]
