"""What a line in a log leads to: policies of the experiment, webhooks; and by what lines can be told apart."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.process.api.conftest import log_in
from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.listener import listening
from tests.support.master import MasterProcess, serving, wait_for
from trainmaster.master.db.embedded import EmbeddedServer
from trainmaster.master.db.engine import make_engine

NO_MORE = {"name": "hopeless", "pattern": "disk .* is full$", "action": "cancel_retries"}
KEEP_AWAY = {"name": "broken GPU", "pattern": "ECC", "action": "exclude_node"}
LABEL = {"name": "noise", "pattern": "(?i)loss is nan"}


@pytest.fixture
def watched(master: MasterProcess, user: Api, experiment: Callable[..., int]) -> Callable[..., Job]:
    """A job with its lease, of an experiment with these policies."""

    def make(*policies: dict[str, Any], **keys: Any) -> Job:
        text = config(log_policies=list(policies), max_restarts=3, **keys)
        found = jobs_of(master, user, experiment(text))[0]
        assert found.lease().status == 200
        return found

    return make


def says(job: Job, *lines: str, node: int = 0) -> None:
    records = [{"t": time.time(), "stdtype": "stderr", "level": "ERROR", "rank": 0, "line": line} for line in lines]
    answer = job.send(records, stream=f"log-{node}")
    assert answer.status == 200, answer.content


def said(user: Api, job: Job) -> str:
    return "".join(line["log"] for line in user.lines(f"/api/v1/trials/{job.trial_id}/logs"))


def trial(user: Api, job: Job) -> dict[str, Any]:
    return dict(user.get(f"/api/v1/trials/{job.trial_id}").json["trial"])


def test_matched_label_is_shown_and_logged_once(user: Api, watched: Callable[..., Job]) -> None:
    job = watched(LABEL)
    says(job, "step 1", "Loss is NaN at step 2")
    says(job, "Loss is NaN at step 3")
    assert trial(user, job)["logPolicyMatched"] == "noise"
    lines = [line["log"] for line in user.lines(f"/api/v1/trials/{job.trial_id}/logs")]
    assert sum("log policy noise has matched" in line for line in lines) == 1
    assert "Loss is NaN at step 3" in lines
    story = user.get(f"/api/x1/trials/{job.trial_id}/story").content.decode()
    assert "Loss is NaN at step 2" in story


def test_after_some_lines_there_is_no_other_attempt(user: Api, watched: Callable[..., Job]) -> None:
    job = watched(NO_MORE)
    says(job, "disk /scratch is full")
    job.leave(exit_code=1)
    ended = wait_for(
        lambda: found if (found := trial(user, job))["state"] == "STATE_ERROR" else None, "the end of the trial"
    )
    assert (ended["attempts"], ended["restarts"]) == (1, 0)
    assert "hopeless allows no restart" in ended["stateReason"]
    assert "trial failed and matched logs to a don't retry policy" in said(user, job)


def test_where_nothing_matches_it_is_tried_again(user: Api, watched: Callable[..., Job]) -> None:
    job = watched(NO_MORE)
    says(job, "disk /scratch is full, almost")
    job.leave(exit_code=1)
    wait_for(lambda: trial(user, job)["attempts"] == 2, "the next attempt")


def test_trial_without_allowed_node_ends_with_reason(user: Api, watched: Callable[..., Job], engine: Engine) -> None:
    job = watched(KEEP_AWAY)
    says(job, "GPU 3: uncorrectable ECC error", "ECC again")
    with engine.connect() as connection:
        query = f"SELECT blocked_nodes FROM trials WHERE id = {job.trial_id}"
        assert connection.execute(text(query)).scalar_one() == ["node-a"]
    assert "therefore will not schedule on node-a" in said(user, job)
    job.leave(exit_code=1)
    wait_for(lambda: trial(user, job)["state"] == "STATE_ERROR", "the end of the trial")
    ended = trial(user, job)
    reason = (
        f"Log policies keep trial {job.trial_id} away from node-a, and the pool default has no other node in service"
    )
    assert reason in ended["stateReason"]
    assert (ended["attempts"], ended["restarts"]) == (2, 1)


@pytest.fixture(scope="module")
def patient() -> Iterator[MasterProcess]:
    """A master whose jobs wait for nodes."""
    with serving("launch_error: false\nresource_manager: {type: local, slots: 1, poll_interval: 0.2}\n") as process:
        yield process


def test_trial_waits_for_another_node_where_site_allows_it(patient: MasterProcess) -> None:
    waiter = Api(patient.url, log_in(patient, "determined"))
    entrypoint = "echo ECC; sleep 0.5; exit 1"
    number = create(waiter, config(entrypoint=entrypoint, log_policies=[KEEP_AWAY], max_restarts=3))
    (one,) = waiter.get(f"/api/v1/experiments/{number}/trials").json["trials"]
    logs = f"/api/v1/trials/{one['id']}/logs"
    why = "no other node in service. Another pool may have one that works. The trial waits for more nodes"
    wait_for(lambda: any(why in line["log"] for line in waiter.lines(logs)), "a word about why it waits")
    assert waiter.get(f"/api/v1/trials/{one['id']}").json["trial"]["state"] in ("STATE_ACTIVE", "STATE_QUEUED")
    engine = make_engine(EmbeddedServer(patient.data).url, pool_size=1)
    with engine.begin() as connection:  # as when a node comes into service: it goes on by itself
        connection.execute(text(f"UPDATE trials SET blocked_nodes = '[]' WHERE id = {one['id']}"))
        query = "UPDATE allocations SET not_before = now() WHERE trial_id = {} AND submission = 'NEW'"
        connection.execute(text(query.format(one["id"])))
    engine.dispose()
    wait_for(
        lambda: sum("ECC" in line["log"] for line in waiter.lines(logs) if "log policy" not in line["log"]) >= 2,
        "the next attempt",
    )
    waiter.post(f"/api/v1/experiments/{number}/kill")


def test_a_webhook_hears_of_a_line_once_for_each_task(admin: Api, watched: Callable[..., Job]) -> None:
    with listening() as listener:
        trigger = {"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "spike [0-9]+"}}
        body = {"name": uuid.uuid4().hex, "url": listener.url, "triggers": [trigger]}
        number = admin.post("/api/v1/webhooks", body).json["webhook"]["id"]
        slack = {**body, "url": f"{listener.url}/slack", "webhookType": "WEBHOOK_TYPE_SLACK"}
        for_slack = admin.post("/api/v1/webhooks", slack).json["webhook"]["id"]
        try:
            job = watched()
            says(job, "spike x", "spike 7 seen")
            says(job, "spike 8 seen")
            heard, by_slack = sorted(listener.wait(2), key=lambda one: one.path)
            told = heard.json["event_data"]["task_log"]
            assert told == {"task_id": job.task_id, "node_name": "node-a", "triggering_log": "spike 7 seen"}
            (block,) = by_slack.json["blocks"]
            assert block["text"]["text"].startswith(
                f"Experiment ID `{job.experiment_id}`, Trial ID `{job.trial_id}`, running on node `node-a`, reported a "
                "log\n```spike 7 seen```\nThis log matched the regex\n```spike [0-9]+```\n"
            )
            other = watched()
            says(other, "spike 9 seen")
            (again,) = [one for one in listener.wait(4)[2:] if one.path == "/"]
            assert again.json["event_data"]["task_log"]["task_id"] == other.task_id
        finally:
            for each in (number, for_slack):
                admin.call("DELETE", f"/api/v1/webhooks/{each}")


def test_a_job_reads_mappings_in_alphabetical_order(
    master: MasterProcess, user: Api, experiment: Callable[..., int]
) -> None:
    """A pattern that waits for printed hyperparameters fits, however the database keeps them."""
    space = {"zeta": 1, "b": {"long": 2, "c": [{"yy": 1, "x": 2}], "a": 3}, "alpha": {"type": "const", "val": 4}}
    job = jobs_of(master, user, experiment(config(hyperparameters=space, data={"bb": 1, "a": 2})))[0]
    work = job.lease().json
    assert json.dumps(work["trial"]["hparams"]) == (
        '{"alpha": 4, "b": {"a": 3, "c": [{"x": 2, "yy": 1}], "long": 2}, "zeta": 1}'
    )
    assert list(work["config"]["hyperparameters"]) == ["alpha", "b", "zeta"]
    assert list(work["config"]["data"]) == ["a", "bb"]


def test_catastrophic_pattern_is_matched_in_short_time(user: Api, watched: Callable[..., Job]) -> None:
    job = watched({"name": "slow", "pattern": "(a+)+b$"})
    began = time.monotonic()
    says(job, *["a" * 5000] * 20)
    assert time.monotonic() - began < 30


# -- finding lines --------------------------------------------------------------------------------------------------


def test_log_lines_are_filtered_by_text_level_and_rank(user: Api, watched: Callable[..., Job]) -> None:
    job = watched()
    says(job, "alpha 1", "beta 2", "alpha 3")
    address = f"/api/v1/tasks/{job.task_id}/logs"

    def found(**query: Any) -> list[str]:
        return [line["log"] for line in user.lines(address, sources=["task"], **query)]

    assert found(searchText="ALPHA") == ["alpha 1", "alpha 3"]
    assert found(searchText="^alpha [12]", enableRegex=True) == ["alpha 1"]
    assert found(searchText="alpha", limit=1, orderBy="ORDER_BY_DESC") == ["alpha 3"]
    assert found(levels=["LOG_LEVEL_ERROR"], rankIds=[0], stdtypes=["stderr"], agentIds=["node-a"]) == found()
    assert found(rankIds=[1]) == found(levels=["LOG_LEVEL_INFO"]) == []
    assert found(timestampBefore="2020-01-01T00:00:00Z") == []
    assert user.get(address, searchText="(", enableRegex=True).status == 400


def test_log_fields_list_distinct_values(user: Api, watched: Callable[..., Job]) -> None:
    job = watched()
    says(job, "one")
    for address in (f"/api/v1/tasks/{job.task_id}/logs/fields", f"/api/v1/trials/{job.trial_id}/logs/fields"):
        (fields,) = wait_for(
            lambda address=address: [one for one in user.lines(address) if {"task", "master"} <= set(one["sources"])],  # type: ignore[misc]
            "a line of the master's own",
        )
        assert fields["allocationIds"] == [job.allocation_id]
        assert fields["agentIds"] == ["node-a"]
        assert fields["rankIds"] == [0]
        assert fields["stdtypes"] == ["stderr"]
    following = user.lines(f"/api/v1/trials/{job.trial_id}/logs/fields", follow=True)
    assert next(following)["rankIds"] == [0]
    job.send([{"t": time.time(), "line": "x", "rank": 3, "stdtype": "stdout"}], stream="log-0")
    assert any(fields["rankIds"] == [0, 3] for fields in following)
