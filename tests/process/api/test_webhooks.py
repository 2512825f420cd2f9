"""Webhooks: told of what they asked for, once, signed, and again when they did not answer."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import config, jobs_of
from tests.support.api.listener import Listener, listening
from tests.support.api.people import person, workspace_of
from tests.support.master import MasterProcess, free_port, wait_for
from trainmaster.master.services.access.identity import webhook_key
from trainmaster.master.services.events import slack

WEBHOOKS = "/api/v1/webhooks"


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as found:
        yield found


@pytest.fixture(autouse=True)
def quiet(admin: Api) -> None:
    """What earlier tests killed has ended, and is not told to this one's webhooks."""
    wait_for(
        lambda: not admin.get("/api/v1/experiments", states="STATE_STOPPING_CANCELED").json["experiments"],
        "the end of experiments of other tests",
    )


@pytest.fixture
def hook(admin: Api) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes webhooks; they are gone after the test."""
    made: list[int] = []

    def make(url: str, *triggers: dict[str, Any], **fields: Any) -> dict[str, Any]:
        body = {"name": uuid.uuid4().hex, "url": url, "triggers": list(triggers), **fields}
        answer = admin.post(WEBHOOKS, body)
        assert answer.status == 200, answer.content
        made.append(answer.json["webhook"]["id"])
        return dict(answer.json["webhook"])

    yield make
    for number in made:
        admin.call("DELETE", f"{WEBHOOKS}/{number}")


def ends(state: str) -> dict[str, Any]:
    return {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": state}}


CUSTOM = {"triggerType": "TRIGGER_TYPE_CUSTOM"}


def kill(user: Api, number: int) -> None:
    assert user.post(f"/api/v1/experiments/{number}/kill").status == 200


def shown(admin: Api, number: int) -> dict[str, Any]:
    return next(entry for entry in admin.get(WEBHOOKS).json["webhooks"] if entry["id"] == number)


# -- what is told -------------------------------------------------------------------------------------------------


def test_webhook_reports_experiment_end_once_and_signed(
    user: Api, engine: Engine, listener: Listener, hook: Callable[..., Any], experiment: Callable[..., int]
) -> None:
    hook(f"{listener.url}/ends?a=b", ends("CANCELED"), ends("COMPLETED"))
    number = experiment(config(name="to be killed"), activate=False)
    kill(user, number)
    (heard,) = listener.wait_of(number)
    assert heard.path == "/ends?a=b"
    event = heard.json
    assert (event["event_type"], event["condition"]) == ("EXPERIMENT_STATE_CHANGE", {"state": "CANCELED"})
    told = event["event_data"]["experiment"]
    assert (told["id"], told["name"], told["state"], told["project"]) == (
        number, "to be killed", "CANCELED", "Uncategorized",
    )  # fmt: skip
    with engine.connect() as connection:
        key = webhook_key(bytes(connection.execute(text("SELECT secret FROM cluster")).scalar_one()))
    stamp = heard.headers["x-determined-ai-signature-timestamp"]
    signed = hmac.new(key.encode(), f"{stamp},".encode() + heard.body, hashlib.sha256).hexdigest()
    assert heard.headers["x-determined-ai-signature"] == signed
    left = "SELECT count(*) FROM webhook_deliveries"

    def delivered() -> bool:
        with engine.connect() as connection:
            return bool(connection.execute(text(left)).scalar_one() == 0)

    wait_for(delivered, "an empty outbox")
    assert len(listener.of(number)) == 1


def test_only_matching_webhooks_are_called(
    user: Api, admin: Api, listener: Listener, hook: Callable[..., Any], experiment: Callable[..., int]
) -> None:
    """Another state, another workspace, an experiment that names it or wants none."""
    other = admin.post("/api/v1/workspaces", {"name": uuid.uuid4().hex}).json["workspace"]["id"]
    hook(f"{listener.url}/error", ends("ERROR"))
    hook(f"{listener.url}/elsewhere", ends("CANCELED"), workspaceId=other)
    named = hook(f"{listener.url}/named", ends("CANCELED"), mode="WEBHOOK_MODE_SPECIFIC", workspaceId=1)
    hook(f"{listener.url}/all", ends("CANCELED"))
    silent, told = (
        experiment(config(integrations={"webhooks": webhooks}), activate=False)
        for webhooks in ({"exclude": True}, {"webhook_name": [named["name"]]})
    )
    for number in (silent, told):
        kill(user, number)
    assert sorted(heard.path for heard in listener.wait_of(told, 2)) == ["/all", "/named"]
    assert listener.of(silent) == []


def test_slack_message_has_determineds_layout(
    user: Api, listener: Listener, hook: Callable[..., Any], experiment: Callable[..., int]
) -> None:
    """A line of text, and an attachment in the state's colour with Status and Duration first."""
    hook(listener.url, ends("CANCELED"), webhookType="WEBHOOK_TYPE_SLACK")
    number = experiment(config(name="a <b>"), activate=False)
    kill(user, number)
    (heard,) = [one for one in listener.wait() if f"(#{number})" in one.body.decode()]
    assert heard.json == {
        "blocks": [
            {"type": "section", "text": {"type": "plain_text", "text": "The status of your experiment is CANCELED"}}
        ],
        "attachments": [
            {
                "color": "#009bde",
                "blocks": [
                    {
                        "type": "section",
                        "text": {"type": "mrkdwn", "text": f"a &lt;b&gt; (#{number})"},
                        "fields": [
                            {"type": "mrkdwn", "text": "*Status*: CANCELED"},
                            {"type": "mrkdwn", "text": "*Duration*: 0h 0min"},
                            {"type": "mrkdwn", "text": "*Workspace*: Uncategorized"},
                            {"type": "mrkdwn", "text": "*Project*: Uncategorized"},
                        ],
                    }
                ],
            }
        ],
    }


@pytest.mark.parametrize(
    ("state", "line", "mark", "colour", "word"),
    [
        ("COMPLETED", "Your experiment completed successfully 🎉", "✅ x (#7)", "#13B670", "Completed"),
        ("ERROR", "Your experiment has stopped with errors", "❌ x (#7)", "#DD5040", "Errored"),
    ],
)
def test_slack_sees_how_it_ended(state: str, line: str, mark: str, colour: str, word: str) -> None:
    facts = {"id": 7, "name": "x", "state": state, "duration": 7380, "workspace": "w", "project": "p"}
    told = slack.of_experiment(facts)
    (shown,) = told["attachments"]
    (about,) = shown["blocks"]
    assert told["blocks"][0]["text"] == {"type": "plain_text", "text": line}
    assert (shown["color"], about["text"]["text"]) == (colour, mark)
    assert [field["text"] for field in about["fields"]][:2] == [f"*Status*: {word}", "*Duration*: 2h 3min"]


def test_an_alert_of_the_training_code(
    master: MasterProcess, user: Api, listener: Listener, hook: Callable[..., Any], experiment: Callable[..., int]
) -> None:
    """It goes to the webhooks that the experiment names, and to no other."""
    specific = {"mode": "WEBHOOK_MODE_SPECIFIC"}
    names = [
        hook(listener.url, CUSTOM, webhookType="WEBHOOK_TYPE_SLACK", **specific)["name"],
        hook(listener.url, CUSTOM, **specific)["name"],
    ]
    hook(f"{listener.url}/unnamed", CUSTOM, **specific)
    number = experiment(config(integrations={"webhooks": {"webhook_name": names}}))
    job = jobs_of(master, user, number)[0]
    assert job.lease().status == 200
    said = {"title": "loss <exploded>", "description": "at step 7", "level": "warn"}
    body = {"experimentId": job.experiment_id, "trialId": job.trial_id, "data": said}
    answer = job.api.post(f"{WEBHOOKS}/custom", body)
    assert answer.status == 200, answer.content
    told, default = sorted((heard.json for heard in listener.wait(2)), key=lambda body: "event_id" in body)
    assert [field["text"] for field in told["blocks"][0]["fields"]] == [
        "*Level*: WARNING", "*Title*: loss &lt;exploded&gt;", "*Description*: at step 7",
    ]  # fmt: skip
    assert f"*Trial ID*: {job.trial_id}" in str(told["attachments"])
    assert default["event_data"]["custom_data"] == {
        "title": "loss <exploded>", "description": "at step 7", "level": "WARNING",
    }  # fmt: skip
    assert default["event_data"]["experiment"]["trial_id"] == job.trial_id
    other = experiment(activate=False)
    assert job.api.post(f"{WEBHOOKS}/custom", {"experimentId": other, "data": said}).status == 403
    assert user.post(f"{WEBHOOKS}/custom", {"experimentId": 99999999, "data": said}).status == 404
    assert {heard.path for heard in listener.heard} == {"/"}


# -- when it does not arrive ----------------------------------------------------------------------------------------


def test_webhook_is_sent_again_after_error_answer(
    user: Api, admin: Api, engine: Engine, listener: Listener, hook: Callable[..., Any], experiment: Callable[..., int]
) -> None:
    workspace, project = workspace_of(admin)
    listener.answers += [503, 302]
    made = hook(listener.url, ends("CANCELED"), workspaceId=workspace)
    kill(user, experiment(activate=False, projectId=project))
    wait_for(lambda: "tried again" in shown(admin, made["id"])["failure"], "the failure to show")

    def later() -> bool:
        with engine.begin() as connection:  # time passes
            connection.execute(text("UPDATE webhook_deliveries SET due_at = now()"))
            connection.execute(text("SELECT pg_notify('trainmaster', 'webhooks')"))
        return len(listener.heard) > 2

    wait_for(later, "the further attempts")
    assert len({heard.body for heard in listener.heard}) == 1
    wait_for(lambda: shown(admin, made["id"])["failure"] == "", "the failure to go")


def test_a_refusal_is_final_and_shows(
    user: Api, admin: Api, engine: Engine, listener: Listener, hook: Callable[..., Any], experiment: Callable[..., int]
) -> None:
    listener.answers += [410]
    workspace, project = workspace_of(admin)
    made = hook(listener.url, ends("CANCELED"), workspaceId=workspace)
    kill(user, experiment(activate=False, projectId=project))
    wait_for(lambda: "given up" in shown(admin, made["id"])["failure"], "the failure to show")


def test_the_test_says_how_it_went(admin: Api, listener: Listener, hook: Callable[..., Any]) -> None:
    made = hook(listener.url, ends("ERROR"))
    assert admin.post(f"{WEBHOOKS}/{made['id']}/test").json == {"completed": True}
    told = listener.heard[-1].json
    assert (told["event_type"], told["condition"]) == ("EXPERIMENT_STATE_CHANGE", {"state": "COMPLETED"})
    assert told["event_data"] == {"data": "test"}
    for_slack = hook(listener.url, ends("ERROR"), webhookType="WEBHOOK_TYPE_SLACK")
    assert admin.post(f"{WEBHOOKS}/{for_slack['id']}/test").status == 200
    assert listener.heard[-1].json["blocks"][0]["text"] == {"type": "plain_text", "text": "test"}
    nobody = f"http://127.0.0.1:{free_port()}/x"
    assert admin.call("PATCH", f"{WEBHOOKS}/{made['id']}", {"url": nobody}).status == 200
    answer = admin.post(f"{WEBHOOKS}/{made['id']}/test")
    assert answer.status == 400
    assert "did not accept the message" in answer.sentence
    assert nobody.removesuffix("/x") in answer.sentence
    assert admin.post(f"{WEBHOOKS}/99999999/test").status == 404


# -- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "ftp://x/"},
        {"url": "http://"},
        {"url": "http://a:b/"},
        {"url": "http://a/\n"},
        {"triggers": []},
        {"triggers": [CUSTOM], "mode": "WEBHOOK_MODE_WORKSPACE"},
        {"triggers": [ends("RUNNING")]},
        {"triggers": [{"triggerType": "TRIGGER_TYPE_TASK_LOG", "condition": {"regex": "("}}]},
        {"triggers": [{"triggerType": "TRIGGER_TYPE_TASK_LOG"}]},
        {"triggers": [{"triggerType": "TRIGGER_TYPE_UNSPECIFIED"}]},
        {"webhookType": "WEBHOOK_TYPE_PIGEON"},
        {"mode": "WEBHOOK_MODE_UNSPECIFIED"},
        {"workspaceId": 2147483647},
    ],
)
def test_invalid_webhook_is_rejected(admin: Api, wrong: dict[str, Any]) -> None:
    good = {"name": uuid.uuid4().hex, "url": "http://127.0.0.1/", "triggers": [ends("ERROR")]}
    answer = admin.post(WEBHOOKS, {**good, **wrong})
    assert answer.status in (400, 404), answer.content
    assert good["name"] not in admin.get(WEBHOOKS).content.decode()  # type: ignore[operator]


def test_a_name_stands_for_one_webhook_of_a_workspace(admin: Api, hook: Callable[..., Any]) -> None:
    """Webhooks of all workspaces may share theirs, and any number has none."""
    workspace, _ = workspace_of(admin)
    made = hook("http://127.0.0.1/", ends("ERROR"), workspaceId=workspace)
    again = {"name": made["name"], "url": "http://127.0.0.1/", "triggers": [ends("ERROR")]}
    assert admin.post(WEBHOOKS, {**again, "workspaceId": workspace}).status == 409
    for everywhere in ({}, {}, {"name": ""}, {"name": ""}, {"name": "", "workspaceId": workspace}):
        hook("http://127.0.0.1/", ends("ERROR"), **{"name": made["name"], **everywhere})
    assert shown(admin, hook("http://127.0.0.1/", ends("ERROR"), name="", workspaceId=workspace)["id"])["name"] == ""


def test_the_owner_of_a_workspace_has_webhooks_there(admin: Api, user: Api, hook: Callable[..., Any]) -> None:
    """Without roles: others see the ones for all workspaces, without the part of the address that opens them."""
    owner, other = person(admin), person(admin)
    body = {"name": "", "url": "https://hooks.example/secret", "triggers": [ends("ERROR")]}
    made = owner.api.post("/api/v1/workspaces", {"name": uuid.uuid4().hex})
    workspace = made.json["workspace"]["id"]
    everywhere = hook(body["url"], ends("ERROR"))["id"]
    assert owner.api.post(WEBHOOKS, body).status == 403
    assert other.api.post(WEBHOOKS, {**body, "workspaceId": workspace}).status == 403
    own = owner.api.post(WEBHOOKS, {**body, "workspaceId": workspace}).json["webhook"]
    assert own["url"] == body["url"]
    ids = {each: {row["id"] for row in api.get(WEBHOOKS).json["webhooks"]} for each, api in (
        ("owner", owner.api), ("other", other.api), ("admin", admin)
    )}  # fmt: skip
    assert {everywhere, own["id"]} <= ids["owner"] & ids["admin"]
    assert everywhere in ids["other"]
    assert own["id"] not in ids["other"]
    assert "secret" not in shown(other.api, everywhere)["url"]
    for who, number in ((other, own["id"]), (other, everywhere), (owner, everywhere)):
        assert who.api.call("PATCH", f"{WEBHOOKS}/{number}", {"url": "https://mallory.example/"}).status == 403
        assert who.api.post(f"{WEBHOOKS}/{number}/test").status == 403
        assert who.api.call("DELETE", f"{WEBHOOKS}/{number}").status == 403
    assert owner.api.call("PATCH", f"{WEBHOOKS}/{own['id']}", {"url": "https://other.example/"}).status == 200
    assert owner.api.call("DELETE", f"{WEBHOOKS}/{own['id']}").status == 200
    assert admin.call("DELETE", f"/api/v1/workspaces/{workspace}").status == 200


def test_an_event_outlives_the_master(
    master: MasterProcess, user: Api, admin: Api, engine: Engine, listener: Listener, hook: Callable[..., Any],
    experiment: Callable[..., int],
) -> None:  # fmt: skip
    """What stands in the outbox when a master ends is delivered by the next one; an attempt that was counted and not
    made counts."""
    workspace, project = workspace_of(admin)
    listener.answers += [503]
    hook(listener.url, ends("CANCELED"), workspaceId=workspace)
    number = experiment(activate=False, projectId=project)
    kill(user, number)
    listener.wait_of(number)
    with engine.begin() as connection:
        row = wait_for(
            lambda: connection.execute(
                text("UPDATE webhook_deliveries SET due_at = now() + interval '2 seconds' RETURNING attempts")
            ).first(),
            "the delivery that waits",
        )
        assert row.attempts == 1
    master.kill()
    engine.dispose()  # its database ended with the master
    master.start()
    first, second = listener.wait_of(number, 2)
    assert second.body == first.body
