"""Typed values from PBS's output."""

from __future__ import annotations

import pytest

from tests.support.pbs.recorded import MARK, recorded
from trainmaster.dispatchers.pbs.parse import (
    PbsJob,
    PrintedRecord,
    dsv_records,
    duration,
    hosts,
    job,
    moment,
    short_id,
    size,
    submitted_id,
)


def jobs() -> dict[str, PbsJob]:
    records, _ = dsv_records(recorded("live-dsv.out"), MARK)
    found = (job(record, "ngpus") for record in records)
    return {one.name: one for one in found if one is not None}


def test_a_job_on_two_hosts() -> None:
    two = jobs()["det-two"]
    assert (two.job_id, two.owner, two.state, two.queue) == ("58.tmpbs0", "alice", "R", "workq")
    assert two.nodes == ("tmpbs1", "tmpbs2")
    assert (two.node_count, two.cpus, two.slots) == (2, 2, 2)
    assert two.started_at == 1795251224.0
    assert two.walltime == 300
    assert two.ends_at == 1795251524.0
    assert two.run_count == 1


def test_a_job_that_waits_has_no_times_of_its_own() -> None:
    never = jobs()["det-never"]
    assert (never.started_at, never.ends_at, never.nodes, never.exit_status) == (None, None, (), None)
    assert never.comment.startswith("Can Never Run")


@pytest.mark.parametrize("written", ["Sat Nov 21 08:13:44 2026", "1795248824"])
def test_the_start_that_pbs_expects_is_an_estimate(written: str) -> None:
    record = PrintedRecord("7.s", {"Job_Name": "det-x", "job_state": "Q", "estimated.start_time": written})
    found = job(record, "ngpus")
    assert found is not None
    assert (found.expected_start, found.started_at) == (1795248824.0, None)


def test_an_array_is_known_as_one() -> None:
    assert jobs()["arr"].is_array
    assert not jobs()["det-two"].is_array


def test_how_often_pbs_took_a_job_back() -> None:
    def restarts(state: str, runs: int, *, rerunable: bool = True) -> int:
        return PbsJob("1.s", "det-x", "alice", state, "workq", run_count=runs, rerunable=rerunable).restarts

    assert [restarts("Q", 0), restarts("R", 1), restarts("F", 1)] == [0, 0, 0]
    assert [restarts("Q", 1), restarts("H", 21), restarts("R", 3)] == [1, 21, 2]
    # Ours are submitted with -r n: these runs were no more than attempts to start it.
    assert [restarts(state, 3, rerunable=False) for state in "QHRF"] == [0, 0, 0, 0]


def test_failed_starts_do_not_count_as_restarts() -> None:
    records, _ = dsv_records(recorded("held-dsv.out"), MARK)
    tried = next(one for record in records if (one := job(record, "ngpus")) and one.name == "det-prologue")
    assert (tried.run_count, tried.rerunable, tried.restarts) == (21, False, 0)


def test_a_record_that_is_no_job_is_none() -> None:
    assert job(PrintedRecord("workq", {"job_state": "R"}), "ngpus") is None
    assert job(PrintedRecord("1.server", {"Job_Name": "x"}), "ngpus") is None


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("123.server\n", "123.server"),
        ("Welcome.\nqsub: waiting\n123.server.site.org\n", "123.server.site.org"),
        ("7[].server\n", "7[].server"),
        ("123.server\nhook says: fine\n", "123.server"),
        ("", None),
        ("12\n", None),
        ("Version 23.06\n", None),
    ],
)
def test_the_submitted_id(printed: str, expected: str | None) -> None:
    assert submitted_id(printed) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("01:02:03", 3723),
        ("48:00:00", 172800),
        ("90", 90),
        ("10:30", 630),
        ("00:00:10.5", 10),
        ("", None),
        ("abc", None),
        ("-1", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sat Nov 21 03:29:08 2026", 1795231748.0),
        ("Sun Nov  1 00:00:00 2026", 1793491200.0),
        ("1795231748", 1795231748.0),
        ("Sam Nov. 21", None),
        ("", None),
    ],
)
def test_moments_are_utc(text: str, expected: float | None) -> None:
    assert moment(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("24684084kb", 24684084 * 1024),
        ("4gb", 4 * 2**30),
        ("100", 100),
        ("2mw", 2 * 2**20 * 8),
        ("12", 12),
        ("x", None),
    ],
)
def test_sizes(text: str, expected: int | None) -> None:
    assert size(text) == expected


def test_hosts_are_listed_once() -> None:
    assert hosts("n1/0*4+n1/1*4+n2/0") == ("n1", "n2")
    assert hosts("") == ()


def test_the_number_of_an_id() -> None:
    assert short_id("123.server.site") == "123"


def test_an_owner_of_a_federated_directory_keeps_its_own_part() -> None:
    for written, account in (("ada@login1.site.org", "ada"), ("ada@site.org@login1.site.org", "ada@site.org")):
        found = job(PrintedRecord("7.s", {"Job_Name": "x", "job_state": "Q", "Job_Owner": written}), "ngpus")
        assert found is not None
        assert found.owner == account
