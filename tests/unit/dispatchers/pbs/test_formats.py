"""Parsers of the three output formats, on the output of a real PBS."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.pbs.recorded import MARK, recorded
from trainmaster.dispatchers.pbs.parse import (
    Format,
    PrintedRecord,
    by_name,
    dsv_records,
    json_records,
    read_records,
    text_records,
)

FORMS = (Format.DSV, Format.JSON, Format.TEXT)


def live(form: Format) -> list[PrintedRecord]:
    records, _ = read_records(form, recorded(f"live-{form.value}.out"), MARK)
    return records


@pytest.mark.parametrize("form", [Format.DSV, Format.JSON])
def test_line_ends_in_a_users_values_forge_nothing(form: Format) -> None:
    jobs = by_name(live(form))
    assert "77.tmpbs0" not in jobs
    assert "78.tmpbs0" not in jobs
    first = jobs["58.tmpbs0"]
    assert first.get("Job_Name") == "det-two"
    assert first.get("job_state") == "R"
    assert first.get("exec_host") == "tmpbs1/0+tmpbs2/0"
    assert first.get("comment").endswith("(tmpbs2:ncpus=1:ngpus=1)")


def test_plain_text_listing_can_be_forged() -> None:
    jobs = by_name(live(Format.TEXT))
    assert "77.tmpbs0" in jobs


@pytest.mark.parametrize("form", FORMS)
def test_untampered_jobs_read_alike_in_all_formats(form: Format) -> None:
    reference = by_name(live(Format.JSON))
    jobs = by_name(live(form))
    for name in ("59.tmpbs0", "60.tmpbs0", "61.tmpbs0", "62.tmpbs0", "64.tmpbs0"):
        for key in ("Job_Name", "Job_Owner", "job_state", "queue", "comment", "Resource_List.select", "substate"):
            assert jobs[name].get(key) == reference[name].get(key), (name, key)


def test_long_values_of_plain_text_are_put_together_again() -> None:
    never = by_name(live(Format.TEXT))["59.tmpbs0"]
    assert never.get("comment") == "Can Never Run: Insufficient amount of resource: ncpus (R: 99 A: 8 T: 8)"


@pytest.mark.parametrize("name", ["nodes", "queues", "server"])
def test_nodes_queues_and_the_server_read_alike(name: str) -> None:
    split, odd = dsv_records(recorded(f"{name}-dsv.out"), MARK)
    plain, odd_too = text_records(recorded(f"{name}-text.out"))
    assert odd == odd_too == []
    assert [record.name for record in split] == [record.name for record in plain]
    # What changes from one moment to the next, and times, which pbsnodes prints differently.
    passing = ("jobs", "last_", "state_count", "resources_assigned", "state", "total_jobs")
    for one, other in zip(split, plain, strict=True):
        keys = {key for key in (*one.attributes, *other.attributes) if not key.startswith(passing)}
        assert {key: one.get(key).strip() for key in keys} == {key: other.get(key).strip() for key in keys}


def test_json_of_nodes_queues_and_server() -> None:
    (queue, *_), _ = json_records(recorded("qstat-Q-json.out"))
    assert (queue.name, queue.get("queue_type"), queue.get("enabled")) == ("workq", "Execution", "True")
    (server,), _ = json_records(recorded("qstat-B-json.out"))
    assert server.get("default_queue") == "workq"
    (node,), _ = json_records(recorded("pbsnodes-json.out"))
    assert node.get("resources_available.ngpus") == "2"


def test_invalid_json_of_release_23_06_06_is_read() -> None:
    printed = recorded("qstat-json-of-the-release.out")
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(printed)
    records, odd = json_records(printed)
    assert odd == []
    names = {record.name: record.get("Job_Name") for record in records}
    assert names == {
        "1.pbshost": "det-plain",
        "2.pbshost": "1e5",
        "3.pbshost": "nan",
        "4.pbshost": "true",
        "5.pbshost": "det-last",
    }
    accounts = [record.get("Account_Name") for record in records]
    assert accounts == ["acc", "007", "0x1f", 'a"b', "12 "]
    assert {record.get("Resource_List.walltime") for record in records} == {"01:00:00"}
    assert by_name(records)["3.pbshost"].get("Variable_List.Y") == "\\q \\w+"
    assert all(record.get("comment").startswith("Job run at") for record in records)


def test_numbers_keep_their_spelling() -> None:
    (record,), _ = json_records(
        '{"Jobs": {"1.s": {"Job_Name": 1e5, "project": 007e0, "x": true}}}'.replace("007e0", "70")
    )
    assert (record.get("Job_Name"), record.get("project"), record.get("x")) == ("1e5", "70", "true")


@pytest.mark.parametrize("form", FORMS)
def test_a_banner_is_odd_and_not_fatal(form: Format) -> None:
    banner = "*** Welcome to the cluster! ***\nmaintenance on monday = tuesday\n"
    printed = recorded(f"live-{form.value}.out")
    clean, _ = read_records(form, printed, MARK)
    records, odd = read_records(form, banner + printed, MARK)
    assert records == clean
    assert any("Welcome" in line for line in odd)


def test_an_empty_answer_is_no_jobs() -> None:
    for form in FORMS:
        assert read_records(form, "", MARK) == ([], [])
    assert json_records(recorded("qstat-server-down.out")) == ([], [])


@given(st.text(max_size=300))
def test_nothing_that_is_printed_is_an_error(printed: str) -> None:
    for form in FORMS:
        records, odd = read_records(form, printed, MARK)
        assert isinstance(records, list)
        assert all(isinstance(line, str) for line in odd)


@given(st.integers(0, 12_000))
def test_an_answer_that_was_cut_is_read_as_far_as_it_goes(length: int) -> None:
    for form in FORMS:
        printed = recorded(f"live-{form.value}.out")
        records, _ = read_records(form, printed[:length], MARK)
        assert len(records) <= len(live(form))
