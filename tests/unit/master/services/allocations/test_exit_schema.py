"""An exit record is believed only as far as its shape is right: a user can write the file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.ingest.exits import LONGEST_TEXT, checked

GOOD: dict[str, Any] = {
    "version": 1,
    "allocation_id": "1.1.1",
    "job_id": "7",
    "node_rank": 0,
    "node_name": "n1",
    "exit_code": 137,
    "signal": 9,
    "oom": False,
    "preempted": {"reason": "walltime"},
    "preempt_acked": True,
    "began": True,
    "message": "",
    "started_at": 1795242767.5,
    "ended_at": 1795242768.0,
    "evidence": "ValueError: no data",
    "failed_rank": 3,
    "failed_at": 1795242767.75,
    "fault": "port 7001 of this job was taken by account mallory, which listens there",
    "spool": {"core": 12, "log-0": 3},
}


def test_valid_exit_record_is_kept() -> None:
    assert {**checked(GOOD), "version": 1} == GOOD


def test_little_is_enough() -> None:
    record = checked({"exit_code": 0})
    assert (record["node_rank"], record["began"], record["spool"]) == (0, True, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"exit_code": "three"}, "exit_code"),
        ({"exit_code": 10**400}, "exit_code"),
        ({"node_rank": -1}, "node_rank"),
        ({"signal": 4096}, "signal"),
        ({"spool": ["core"]}, "spool"),
        ({"spool": {"core": 10**40}}, "spool.core"),
        ({"preempted": "walltime"}, "preempted"),
        ({"message": {"a": 1}}, "message"),
    ],
)
def test_invalid_exit_record_error_names_key(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        checked({**GOOD, **change})


@pytest.mark.parametrize("record", [None, [], "text", 7, {}])
def test_invalid_exit_record_is_rejected(record: object) -> None:
    with pytest.raises(Invalid):
        checked(record)


def test_texts_are_such_as_a_database_takes() -> None:
    record = checked({**GOOD, "message": "a\0b\ud800" + "x" * 10_000, "spool": {"co\0re": 1}})
    assert record["message"].startswith("a\ufffdb\ufffdx")
    assert len(record["message"]) == LONGEST_TEXT
    assert record["spool"] == {"co\ufffdre": 1}


def test_texts_leave_a_terminal_alone() -> None:
    assert checked({**GOOD, "evidence": "a\x1b[2Jb\nc\u202ed"})["evidence"] == "a\ufffd[2Jb\ufffdc\ufffdd"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(GOOD)) | st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_anything_else_is_refused_and_never_a_surprise(record: object) -> None:
    try:
        found = checked(record)
    except Invalid:
        return
    assert -255 <= found["exit_code"] <= 255
