"""What a job brings at its end is taken in once, together with what its lines lead to."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from tests.master.services.attempts import Attempts
from trainmaster.master.db.tables import Node, Stream, Trial
from trainmaster.master.services.allocations import Piece, take_exit, take_reports
from trainmaster.master.services.store import Settings

SETTINGS = Settings("1", "c", "c", b"", "det-", "", b"")
POLICY = {"name": "broken", "pattern": "uncorrectable", "action": "exclude_node"}


def lines(*texts: str) -> list[dict[str, Any]]:
    return [{"t": 1.5, "line": text, "level": "INFO", "stdtype": "stdout"} for text in texts]


def exits(attempts: Attempts, name: str, *pieces: Piece) -> dict[str, int]:
    return take_exit(attempts.store, SETTINGS, name, {"job_id": "1", "exit_code": 1, "node_rank": 0}, pieces)


def leased(attempts: Attempts, config: dict[str, Any] | None = None) -> str:
    name = attempts.attempt(attempts.experiment(config), lease_job="1", exits={})
    with attempts.store.transaction() as session:
        session.add(Node(allocation_id=name, node_rank=0, run_id="r", name="n1", slot_ids=[], addresses=[]))
    return name


def acked(attempts: Attempts, name: str) -> dict[str, int]:
    with attempts.store.reading() as session:
        return {row.stream: row.acked for row in session.scalars(select(Stream).where(Stream.allocation_id == name))}


def test_an_exit_and_its_lines_count_once(attempts: Attempts) -> None:
    name = leased(attempts)
    last = Piece("log-0", 1, lines("one", "two"))
    for _ in range(2):
        assert exits(attempts, name, last) == {"log-0": 2}
    assert attempts.log(name) == ["one", "two"]
    assert attempts.row(name).exits["0"]["exit_code"] == 1
    assert acked(attempts, name) == {"log-0": 2}


def test_an_exit_brings_what_is_new_and_leaves_no_gap(attempts: Attempts) -> None:
    name = leased(attempts)
    answer = take_reports(attempts.store, SETTINGS, name, "log-0", 1, lines("one", "two"))
    assert answer.acked == 2
    assert exits(attempts, name, Piece("log-0", 4, lines("four"))) == {"log-0": 2}
    assert exits(attempts, name, Piece("log-1", 2, lines("two of another"))) == {"log-1": 0}
    assert exits(attempts, name, Piece("log-0", 2, lines("two", "three"))) == {"log-0": 3}
    assert attempts.log(name) == ["one", "two", "three"]


def test_the_last_lines_lead_to_what_lines_lead_to(attempts: Attempts) -> None:
    name = leased(attempts, {"log_policies": [POLICY]})
    quiet = take_reports(attempts.store, SETTINGS, name, "log-0", 1, lines("all is well"))
    assert quiet.acked == 1
    last = Piece("log-0", 2, lines("an uncorrectable error"))
    for _ in range(2):
        assert exits(attempts, name, last) == {"log-0": 2}
    with attempts.store.reading() as session:
        trial = session.scalars(select(Trial).where(Trial.task_id == name)).one()
    assert (trial.blocked_nodes, trial.log_policy) == (["n1"], "broken")
    said = "The log policy broken has matched: further attempts keep away from n1"
    assert attempts.log(name) == ["all is well", said, "an uncorrectable error"]
