"""What jobs say to the master and may say: tokens, leases, the rendezvous, being asked to leave."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job, give_slots, jobs_of
from tests.support.master import MasterProcess, wait_for

AT_ONCE = 4.0  # seconds: before a long poll that nobody wakes looks again
LONGEST = 9.0  # seconds: before a long poll ends by itself


@pytest.fixture
def waiting(master: MasterProcess, user: Api, experiment: Callable[..., int]) -> Job:
    """A job without a lease yet."""
    return jobs_of(master, user, experiment())[0]


# -- tokens ---------------------------------------------------------------------------------------------------


def test_a_job_speaks_for_its_own_allocation_only(
    master: MasterProcess, user: Api, experiment: Callable[..., int], job: Job
) -> None:
    other = jobs_of(master, user, experiment())[0]
    stranger = Job(job.api, other.allocation_id, other.task_id, other.trial_id, other.experiment_id, other.folder)
    refused = [
        stranger.lease(),
        stranger.send([]),
        stranger.api.post(f"/api/x1/allocations/{other.allocation_id}/exit", {"exit_code": 0}),
        stranger.api.post(f"/api/v1/allocations/{other.allocation_id}/all_gather", {"requestUuid": "x"}),
        stranger.api.get(f"/api/v1/allocations/{other.allocation_id}/signals/preemption"),
        stranger.api.post(f"/api/v1/allocations/{other.allocation_id}/signals/ack_preemption"),
        stranger.api.post(f"/api/v1/allocations/{other.allocation_id}/signals/pending_preemption"),
        stranger.api.post(f"/api/v1/trials/{other.trial_id}/runner/metadata", {"state": "x"}),
        stranger.api.get(f"/api/v1/tasks/{other.task_id}/context_directory"),
        stranger.api.get(f"/api/v1/allocations/{other.allocation_id}"),
    ]
    assert [answer.status for answer in refused] == [403] * len(refused)
    assert all(answer.error["reason"] == "PermissionDenied" for answer in refused)


def test_a_users_token_is_none_of_a_job(user: Api, waiting: Job) -> None:
    as_user = Job(user, waiting.allocation_id, waiting.task_id, waiting.trial_id, waiting.experiment_id, waiting.folder)
    assert as_user.lease().status == 403
    assert as_user.send([]).status == 403
    assert as_user.api.get(f"/api/v1/allocations/{waiting.allocation_id}").status == 200, "looking is allowed"


def test_a_forged_token_is_refused(master: MasterProcess, waiting: Job) -> None:
    genuine = waiting.api.token
    for token in (genuine[:-1] + ("0" if genuine[-1] != "0" else "1"), genuine.rpartition(":")[0] + ":", genuine + "0"):
        forger = Api(master.url, token)
        assert forger.post(f"/api/x1/allocations/{waiting.allocation_id}/lease", {"job_id": "1"}).status == 401


def test_a_token_that_counts_no_more_is_refused_at_once(engine: Engine, job: Job) -> None:
    assert job.lease().status == 200
    assert job.send([job.training(1, loss=1.0)]).status == 200
    line = {"t": 1.0, "line": "late", "stdtype": "stdout", "level": "INFO", "rank": 0}
    with engine.begin() as connection:
        query = text("UPDATE allocations SET ended_at = now() - interval '11 minutes' WHERE id = :id")
        connection.execute(query, {"id": job.allocation_id})
    try:
        assert job.send([job.training(2, loss=1.0)]).status == 401
        assert job.send([line], stream="log-0", first=1).status == 401
        assert job.lease().status == 401
    finally:
        with engine.begin() as connection:
            query = text("UPDATE allocations SET ended_at = NULL WHERE id = :id")
            connection.execute(query, {"id": job.allocation_id})
    assert job.send([job.training(2, loss=1.0)]).json["acked"] == 2


def test_determineds_own_header_is_read(anonymous: Api, job: Job) -> None:
    headers = {"Grpc-Metadata-x-allocation-token": f"Bearer {job.api.token}"}
    assert anonymous.call("GET", f"/api/v1/trials/{job.trial_id}", headers=headers).status == 200


# -- the lease ------------------------------------------------------------------------------------------------


def test_the_first_job_gets_the_work_and_may_ask_again(waiting: Job) -> None:
    first, again = waiting.lease("4711"), waiting.lease("4711")
    assert first.status == again.status == 200
    assert first.json == again.json
    work = first.json
    assert work["trial"]["id"] == waiting.trial_id
    assert work["trial"]["run_id"] == 1
    assert work["trial"]["latest_checkpoint"] is None
    assert work["entrypoint"] == "sleep 600"
    assert work["owner"] == "determined"
    assert work["preempt"] is None


def test_second_job_is_refused_lease(waiting: Job) -> None:
    assert waiting.lease("4711").status == 200
    double = waiting.lease("4712")
    assert double.status == 409
    assert "4711" in double.sentence


def test_second_run_of_same_job_is_refused_and_logged_once(user: Api, waiting: Job) -> None:
    assert waiting.lease("4711", run_id="first").status == 200
    assert waiting.lease("4711", run_id="first").status == 200  # the answer was lost
    again = waiting.lease("4711", run_id="second")
    assert again.status == 409
    assert "was started again by its scheduler" in again.sentence
    assert waiting.lease("4711", run_id="third").status == 409
    path = f"/api/v1/trials/{waiting.trial_id}/logs"
    assert sum("started the job again" in entry["log"] for entry in user.lines(path)) == 1


def test_each_node_of_a_job_has_a_run_of_its_own(engine: Engine, waiting: Job) -> None:
    give_slots(engine, waiting, 2)
    first = waiting.lease("4711", run_id="one", num_nodes=2)
    second = waiting.lease("4711", run_id="other", num_nodes=2, node_rank=1, node_name="node-b")
    assert first.status == second.status == 200


def test_ended_attempt_is_not_leased(user: Api, job: Job) -> None:
    job.leave()
    assert job.lease().status == 409


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"job_id": None},
        {"job_id": "1", "node_rank": "first"},
        {"job_id": "1", "slot_ids": "all"},
        {"job_id": "1", "addresses": [{}]},
        {"job_id": "1", "num_nodes": 10**12},
        {"job_id": "1\u0000"},
        {"job_id": "1", "node_name": "\u0000"},
        {"job_id": "1", "node_rank": -1},
    ],
    ids=repr,
)
def test_a_malformed_lease_is_a_bad_request(waiting: Job, body: dict[str, Any]) -> None:
    answer = waiting.api.post(f"/api/x1/allocations/{waiting.allocation_id}/lease", body)
    assert answer.status == 400, answer.content
    assert answer.sentence


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"exit_code": "bad"},
        {"exit_code": 0, "node_rank": 10**12},
        {"job_id": "played-1", "exit_code": 0, "message": "\u0000"},
    ],
    ids=repr,
)
def test_a_malformed_exit_record_is_a_bad_request(job: Job, body: Any) -> None:
    answer = job.api.post(f"/api/x1/allocations/{job.allocation_id}/exit", body)
    assert answer.status == 400, answer.content


# -- being asked to leave -------------------------------------------------------------------------------------------


def signal(job: Job, timeout: float) -> tuple[bool, str, float]:
    started = time.monotonic()
    answer = job.api.get(f"/api/v1/allocations/{job.allocation_id}/signals/preemption", timeout_seconds=timeout)
    assert answer.status == 200, answer.content
    return answer.json["preempt"], answer.json["reason"], time.monotonic() - started


def test_the_long_poll_waits_as_long_as_it_was_asked_to(job: Job) -> None:
    asked, _, took = signal(job, 1.5)
    assert not asked
    assert 1.4 <= took < LONGEST
    assert signal(job, 0)[2] < LONGEST


def test_a_long_poll_for_no_number_of_seconds_is_a_bad_request(job: Job) -> None:
    path = f"/api/v1/allocations/{job.allocation_id}/signals/preemption"
    for timeout in ("nan", "inf"):
        answer = job.api.get(path, timeout_seconds=timeout)
        assert answer.status == 400, answer.content
        assert "timeout" in answer.sentence


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_the_long_poll_answers_at_once_when_the_job_must_leave(
    master: MasterProcess, user: Api, experiment: Callable[..., int], verb: str
) -> None:
    for _ in range(3):  # a machine may stand still for a moment
        job = jobs_of(master, user, experiment())[0]
        assert job.lease().status == 200
        if told_to_leave(user, job, verb) < AT_ONCE:
            return
    raise AssertionError("three times nobody was woken")


def told_to_leave(user: Api, job: Job, verb: str) -> float:
    """How many seconds it took until all that wait had heard of it."""
    with ThreadPoolExecutor(3) as pool:
        polls = [pool.submit(signal, job, 60) for _ in range(3)]
        wait_for(lambda: all(poll.running() for poll in polls), "the polls to begin")
        assert user.post(f"/api/v1/experiments/{job.experiment_id}/{verb}").status == 200
        asked = time.monotonic()
        answers = [poll.result(60) for poll in polls]
        took = time.monotonic() - asked
    assert all(preempt for preempt, _, _ in answers)
    assert len({reason for _, reason, _ in answers}) == 1
    assert answers[0][1]
    assert signal(job, 60)[0], "who asks later hears it too"
    assert job.send([]).json["preempt"] == {"reason": answers[0][1]}, "so does who only reports"
    return took


def test_the_jobs_own_warning_reaches_all_its_nodes(job: Job) -> None:
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(signal, job, 60)
        wait_for(poll.running, "the poll to begin")
        assert job.api.post(f"/api/v1/allocations/{job.allocation_id}/signals/pending_preemption").status == 200
        assert poll.result(60)[:2] == (True, "scheduler")


def test_a_paused_and_acknowledged_job_is_continued(master: MasterProcess, user: Api, job: Job) -> None:
    path = f"/api/v1/experiments/{job.experiment_id}"
    user.post(f"{path}/pause")
    assert job.api.post(f"/api/v1/allocations/{job.allocation_id}/signals/ack_preemption").status == 200
    # As with Determined's harness: only the master was told.
    job.leave(preempted={"reason": "pause"}, preempt_acked=False)
    assert user.get(path).json["experiment"]["state"] == "STATE_PAUSED"
    user.post(f"{path}/activate")
    second = jobs_of(master, user, job.experiment_id, attempt=2)[0]
    assert second.lease("played-2").json["trial"]["run_id"] == 2


# -- the rendezvous -----------------------------------------------------------------------------------------------


def gather(job: Job, request: str, peers: int, data: dict[str, Any]) -> Any:
    body = {"allocationId": job.allocation_id, "requestUuid": request, "numPeers": peers, "data": data}
    return job.api.post(f"/api/v1/allocations/{job.allocation_id}/all_gather", body)


def test_all_get_the_data_of_all_in_one_order(job: Job) -> None:
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(gather, job, f"node-{i}", 4, {"rank": i}) for i in range(4)]
        answers = [future.result(60) for future in asked]
    assert {answer.status for answer in answers} == {200}
    data = [answer.json["data"] for answer in answers]
    assert sorted(entry["rank"] for entry in data[0]) == [0, 1, 2, 3]
    assert data.count(data[0]) == 4, "every peer sees the same order"


def test_asking_again_gets_the_same_answer(job: Job) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = list(pool.map(lambda i: gather(job, f"node-{i}", 2, {"rank": i}).json, range(2)))
    assert gather(job, "node-1", 2, {"rank": "other"}).json == first[1] == first[0]


def test_a_second_round_is_a_round_of_its_own(job: Job) -> None:
    with ThreadPoolExecutor(2) as pool:
        rounds = [
            list(pool.map(lambda i, r=r: gather(job, f"{r}-{i}", 2, {"round": r}).json["data"], range(2)))
            for r in ("first", "second")
        ]
    assert rounds[0] == [[{"round": "first"}] * 2] * 2
    assert rounds[1] == [[{"round": "second"}] * 2] * 2


@pytest.mark.slow
def test_missing_peers_are_answered_with_408_and_may_come_later(job: Job) -> None:
    answer = gather(job, "early", 2, {"rank": 0})
    assert answer.status == 408
    assert "requestUuid; missing: node 1" in answer.sentence
    with ThreadPoolExecutor(2) as pool:
        again = pool.submit(gather, job, "early", 2, {"rank": 0})
        late = pool.submit(gather, job, "late", 2, {"rank": 1})
        assert again.result(60).json == late.result(60).json == {"data": [{"rank": 0}, {"rank": 1}]}


def test_a_job_that_has_ended_does_not_wait_for_peers(user: Api, job: Job) -> None:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(gather(job, "alone", 2, {})), daemon=True)
    thread.start()
    job.leave(exit_code=1)
    thread.join(60)
    assert answers, "the peer still waits although the attempt is over"
    assert answers[0].status == 409


@pytest.mark.parametrize(
    "body",
    [{}, {"requestUuid": 3}, {"requestUuid": "x", "data": []}, {"requestUuid": "x", "data": {"\u0000": 1}}],
    ids=repr,
)
def test_a_malformed_gathering_is_a_bad_request(job: Job, body: dict[str, Any]) -> None:
    answer = job.api.post(f"/api/v1/allocations/{job.allocation_id}/all_gather", body)
    assert answer.status == 400, answer.content


def test_the_files_of_an_experiment_reach_the_job(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    with_files = experiment(modelDefinition=[{"path": "a.txt", "type": 48, "content": "aGk="}])
    job = jobs_of(master, user, with_files)[0]
    sent = job.api.get(f"/api/v1/tasks/{job.task_id}/context_directory").json["b64Tgz"]  # Determined's own way
    assert sent == user.get(f"/api/v1/experiments/{with_files}/model_def").json["b64Tgz"] != ""
    found = job.context()
    assert (found.status, base64.b64encode(found.content).decode()) == (200, sent)
    work = job.lease(fetches_context=True).json
    assert work["context_size"] == len(found.content)
    assert [(entry["path"], entry["content"]) for entry in work["files"]] == [("a.txt", "aGk=")]
