"""Lists: pages by Determined's rules, orders and filters, numbers and times as its clients read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, jobs_of
from tests.support.master import MasterProcess

EXPERIMENTS = "/api/v1/experiments"
RFC3339_MS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module")
def five(user: Api) -> Iterator[list[int]]:
    """Five paused experiments under one label, by ascending id."""
    numbers = []
    for index, name in enumerate(("delta", "alpha", "echo", "bravo", "charlie")):
        labels = ["five", "odd" if index % 2 else "even"]
        text = config(name=name, description=f"number {index}", labels=labels)
        answer = user.post(EXPERIMENTS, {"config": text, "activate": False})
        assert answer.status == 200, answer.content
        numbers.append(answer.json["experiment"]["id"])
    yield numbers
    for number in numbers:
        user.post(f"{EXPERIMENTS}/{number}/kill")


def ids(user: Api, **query: Any) -> list[int]:
    answer = user.get(EXPERIMENTS, **{"labels": "five", **query})
    assert answer.status == 200, answer.content
    return [entry["id"] for entry in answer.json["experiments"]]


# -- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "limit", "shown", "start", "end"),
    [
        (0, 0, [0, 1, 2, 3, 4], 0, 5),
        (0, 2, [0, 1], 0, 2),
        (2, 2, [2, 3], 2, 4),
        (4, 2, [4], 4, 5),
        (5, 2, [], 5, 5),
        (-2, 0, [3, 4], 3, 5),
        (-2, 1, [3], 3, 4),
        (-99, 2, [0, 1], 0, 2),
        (1, 99, [1, 2, 3, 4], 1, 5),
    ],
)
def test_pages(user: Api, five: list[int], offset: int, limit: int, shown: list[int], start: int, end: int) -> None:
    answer = user.get(EXPERIMENTS, labels="five", offset=offset, limit=limit).json
    assert [entry["id"] for entry in answer["experiments"]] == [five[i] for i in shown]
    wanted = {"offset": offset, "limit": limit, "startIndex": start, "endIndex": end, "total": 5}
    assert answer["pagination"] == wanted


@pytest.mark.parametrize("path", ["experiments?labels=five", "users", "resource-pools", "job-queues-v2"])
def test_an_offset_beyond_the_end_is_refused(user: Api, five: list[int], path: str) -> None:
    mark = "&" if "?" in path else "?"
    answer = user.call("GET", f"/api/v1/{path}{mark}offset=1000")
    assert answer.status == 400
    assert "1000" in answer.sentence
    for page in ("offset=0", "limit=1", "offset=-1"):
        pagination = user.call("GET", f"/api/v1/{path}{mark}{page}").json["pagination"]
        assert 0 <= pagination["startIndex"] <= pagination["endIndex"] <= pagination["total"]


# -- orders, filters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("SORT_BY_ID", [0, 1, 2, 3, 4]),
        ("SORT_BY_UNSPECIFIED", [0, 1, 2, 3, 4]),
        ("SORT_BY_NAME", [1, 3, 4, 0, 2]),
        ("SORT_BY_DESCRIPTION", [0, 1, 2, 3, 4]),
        ("SORT_BY_START_TIME", [0, 1, 2, 3, 4]),
    ],
)
def test_orders(user: Api, five: list[int], sort: str, order: list[int]) -> None:
    assert ids(user, sortBy=sort) == [five[i] for i in order]
    assert ids(user, sortBy=sort, orderBy="ORDER_BY_ASC") == [five[i] for i in order]
    assert ids(user, sortBy=sort, orderBy="ORDER_BY_DESC") == [five[i] for i in reversed(order)]


SORTS = (
    *("ID", "DESCRIPTION", "START_TIME", "END_TIME", "STATE", "NUM_TRIALS", "PROGRESS", "USER", "NAME", "FORKED_FROM"),
    *("RESOURCE_POOL", "PROJECT_ID", "CHECKPOINT_SIZE", "CHECKPOINT_COUNT", "SEARCHER_METRIC_VAL"),
)


@pytest.mark.parametrize("sort", SORTS)
def test_every_order_of_determined_gives_everything_once(user: Api, five: list[int], sort: str) -> None:
    for direction in ("ASC", "DESC"):
        order = {"sortBy": f"SORT_BY_{sort}", "orderBy": f"ORDER_BY_{direction}"}
        paged = [ids(user, limit=1, offset=i, **order) for i in range(5)]
        assert sorted(number for page in paged for number in page) == five


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({"name": "ALPH"}, [1]),
        ({"name": "%"}, []),
        ({"description": "number 3"}, [3]),
        ({"labels": ["five", "odd"]}, [1, 3]),
        ({"states": "STATE_PAUSED"}, [0, 1, 2, 3, 4]),
        ({"states": "PAUSED"}, [0, 1, 2, 3, 4]),
        ({"states": ["STATE_ACTIVE", "STATE_COMPLETED"]}, []),
        ({"states": "STATE_UNSPECIFIED"}, [0, 1, 2, 3, 4]),
        ({"users": "determined"}, [0, 1, 2, 3, 4]),
        ({"users": "admin"}, []),
        ({"archived": "true"}, []),
        ({"archived": "false"}, [0, 1, 2, 3, 4]),
        ({"projectId": 1}, [0, 1, 2, 3, 4]),
        ({"projectId": 2}, []),
    ],
    ids=repr,
)
def test_filters(user: Api, five: list[int], query: dict[str, Any], shown: list[int]) -> None:
    assert ids(user, **query) == [five[i] for i in shown]


def test_a_list_of_ids(user: Api, five: list[int]) -> None:
    assert ids(user, **{"experimentIdFilter.incl": [five[1], five[4]]}) == [five[1], five[4]]


def test_lists_filter_by_queued_and_running_states(user: Api, admin: Api, experiment: Callable[..., int]) -> None:
    queued = experiment()

    def found(state: str) -> set[str]:
        answer = user.get(EXPERIMENTS, states=state).json["experiments"]
        assert {entry["state"] for entry in answer} <= {state}
        return {entry["name"] if entry["id"] != queued else "mine" for entry in answer}

    assert "mine" in found("STATE_QUEUED")
    assert "holds the only slot" in found("STATE_RUNNING")
    assert "mine" not in found("STATE_RUNNING")


# -- trials and checkpoints ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(master: MasterProcess, user: Api) -> Iterator[list[Job]]:
    """Three trials of one experiment with losses 3, 1, 2 at steps 10, 20, 30; each reported a checkpoint."""
    searcher = {"name": "random", "metric": "loss", "max_trials": 3, "max_concurrent_trials": 3}
    answer = user.post(EXPERIMENTS, {"config": config(name="three", searcher=searcher), "activate": True})
    number = answer.json["experiment"]["id"]
    jobs = jobs_of(master, user, number)
    for index, (job, loss) in enumerate(zip(jobs, (3.0, 1.0, 2.0), strict=True)):
        steps = (index + 1) * 10
        job.lease()
        checkpoint = {
            "t": 1.7e9 + 100 - index,
            "kind": "checkpoint",
            "uuid": f"00000000-0000-4000-8000-00000000000{index}",
            "steps_completed": steps,
            "resources": {"model.pt": 2**40 + index},
            "metadata": {"framework": "none"},
        }
        score = {} if index == 1 else {"score": 5 + index}
        assert job.send([job.validation(steps, loss=loss, **score), checkpoint]).status == 200
    yield jobs
    user.post(f"{EXPERIMENTS}/{number}/kill")


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("SORT_BY_ID", [0, 1, 2]),
        ("SORT_BY_BEST_VALIDATION_METRIC", [1, 2, 0]),
        ("SORT_BY_LATEST_VALIDATION_METRIC", [1, 2, 0]),
        ("SORT_BY_BATCHES_PROCESSED", [0, 1, 2]),
        ("SORT_BY_CHECKPOINT_SIZE", [0, 1, 2]),
        ("SORT_BY_START_TIME", [0, 1, 2]),
        ("SORT_BY_END_TIME", None),
        ("SORT_BY_STATE", None),
        ("SORT_BY_DURATION", None),
        ("SORT_BY_RESTARTS", None),
        ("SORT_BY_LOG_RETENTION_DAYS", None),
    ],
)
def test_orders_of_trials(user: Api, three: list[Job], sort: str, order: list[int] | None) -> None:
    path = f"{EXPERIMENTS}/{three[0].experiment_id}/trials"
    expected = [job.trial_id for job in three]
    for direction in ("ASC", "DESC"):
        answer = user.get(path, sortBy=sort, orderBy=f"ORDER_BY_{direction}")
        assert answer.status == 200, answer.content
        found = [trial["id"] for trial in answer.json["trials"]]
        assert sorted(found) == expected
        if order is not None:
            wanted = [expected[i] for i in order]
            assert found == (wanted if direction == "ASC" else wanted[::-1])


def test_trials_by_state_and_page(user: Api, three: list[Job]) -> None:
    path = f"{EXPERIMENTS}/{three[0].experiment_id}/trials"
    assert len(user.get(path, states="STATE_ACTIVE").json["trials"]) == 3
    assert user.get(path, states="STATE_COMPLETED").json["trials"] == []
    assert user.get(path, states="STATE_HAPPY").status == 400
    page = user.get(path, offset=-1).json
    assert [trial["id"] for trial in page["trials"]] == [three[2].trial_id]
    assert page["pagination"]["endIndex"] == page["pagination"]["total"] == 3
    assert user.get(path, offset=4).status == 400


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ({}, [2, 1, 0]),
        ({"sortByAttr": "SORT_BY_END_TIME"}, [2, 1, 0]),
        ({"sortByAttr": "SORT_BY_END_TIME", "orderBy": "ORDER_BY_DESC"}, [0, 1, 2]),
        ({"sortByAttr": "SORT_BY_UUID"}, [0, 1, 2]),
        ({"sortByAttr": "SORT_BY_TRIAL_ID"}, [0, 1, 2]),
        ({"sortByAttr": "SORT_BY_BATCH_NUMBER", "orderBy": "ORDER_BY_DESC"}, [2, 1, 0]),
        ({"sortByAttr": "SORT_BY_SEARCHER_METRIC"}, [1, 2, 0]),
        ({"sortByAttr": "SORT_BY_SEARCHER_METRIC", "limit": 1}, [1]),
        ({"sortByMetric": "loss"}, [1, 2, 0]),
        ({"sortByMetric": "score", "orderBy": "ORDER_BY_DESC"}, [2, 0, 1]),
        ({"sortByMetric": "it's nowhere"}, [0, 1, 2]),
        ({"states": "STATE_COMPLETED", "sortByAttr": "SORT_BY_UUID"}, [0, 1, 2]),
        ({"states": "STATE_DELETED"}, []),
    ],
    ids=repr,
)
def test_checkpoints(user: Api, three: list[Job], query: dict[str, Any], order: list[int]) -> None:
    answer = user.get(f"{EXPERIMENTS}/{three[0].experiment_id}/checkpoints", **query)
    assert answer.status == 200, answer.content
    assert [int(entry["uuid"][-1]) for entry in answer.json["checkpoints"]] == order


def test_checkpoints_sorted_by_invalid_metric_are_rejected(user: Api, three: list[Job]) -> None:
    path = f"{EXPERIMENTS}/{three[0].experiment_id}/checkpoints"
    assert user.get(path, sortByMetric="\0").status == 400


def test_checkpoints_of_one_trial(user: Api, three: list[Job]) -> None:
    found = user.get(f"/api/v1/trials/{three[1].trial_id}/checkpoints").json["checkpoints"]
    assert [(c["training"]["trialId"], c["training"]["searcherMetric"]) for c in found] == [(three[1].trial_id, 1.0)]


# -- encodings -------------------------------------------------------------------------------------------------------


def test_64_bit_integers_travel_as_strings(user: Api, three: list[Job]) -> None:
    trial = user.get(f"/api/v1/trials/{three[0].trial_id}").json["trial"]
    assert trial["totalCheckpointSize"] == str(2**40)
    assert trial["bestCheckpoint"]["resources"] == {"model.pt": str(2**40)}
    found = user.get("/api/v1/checkpoints/00000000-0000-4000-8000-000000000000").json["checkpoint"]
    assert found["resources"] == {"model.pt": str(2**40)}
    assert found["metadata"] == {"steps_completed": 10, "framework": "none"}
    whole = user.get(f"{EXPERIMENTS}/{three[0].experiment_id}").json["experiment"]
    assert whole["checkpointSize"] == str(3 * 2**40 + 3)
    assert isinstance(trial["id"], int)


def test_times_are_rfc_3339_with_milliseconds_in_utc(user: Api, three: list[Job]) -> None:
    times = [
        user.get(f"{EXPERIMENTS}/{three[0].experiment_id}").json["experiment"]["startTime"],
        user.get(f"/api/v1/trials/{three[0].trial_id}").json["trial"]["startTime"],
        user.get(f"/api/v1/trials/{three[0].trial_id}").json["trial"]["bestValidation"]["endTime"],
        user.get("/api/v1/checkpoints/00000000-0000-4000-8000-000000000001").json["checkpoint"]["reportTime"],
        user.get("/api/v1/job-queues-v2").json["jobs"][0]["full"]["submissionTime"],
        user.get("/api/v1/me").json["user"]["modifiedAt"],
    ]
    for time in times:
        assert RFC3339_MS.fullmatch(time), time
    assert times[3] == "2023-11-14T22:14:59.000Z"
