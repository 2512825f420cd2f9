"""Endpoints for webhooks, and for alerts that training code sends."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import Field

from trainmaster.config.secrets import without_path
from trainmaster.master.http.dependencies import AnyCaller, UserCaller, UsesMaster
from trainmaster.master.http.messages import Body, Shape, Time
from trainmaster.master.http.parameters import words
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.events import webhooks
from trainmaster.master.values.stored import Json
from trainmaster.master.values.webhooks import TriggerCondition

router = APIRouter(prefix="/api/v1", tags=["webhooks"])
TRIGGERS = {
    "EXPERIMENT_STATE_CHANGE": webhooks.STATE_CHANGE,
    "TASK_LOG": webhooks.TASK_LOG,
    "CUSTOM": webhooks.CUSTOM,
}


class Trigger(Shape):
    id: int
    webhook_id: int
    trigger_type: str
    condition: Json


class Webhook(Shape):
    id: int
    name: str
    url: str
    webhook_type: str
    mode: str
    workspace_id: int  # 0: it receives events of all workspaces
    triggers: list[Trigger]
    # Ours: when and why delivery failed, since it last succeeded.
    failed_at: Time | None
    failure: str

    @classmethod
    def of(cls, view: webhooks.WebhookView) -> Webhook:
        """Return a webhook's address often suffices to post there: only users who may edit it see all of it."""
        row = view.row
        return cls(
            id=row.id,
            name=row.name,
            url=row.url if view.editable else without_path(row.url),
            webhook_type=f"WEBHOOK_TYPE_{row.kind}",
            mode=f"WEBHOOK_MODE_{row.mode}",
            workspace_id=row.workspace_id or 0,
            triggers=[
                Trigger(
                    id=trigger.id,
                    webhook_id=row.id,
                    trigger_type=f"TRIGGER_TYPE_{trigger.kind}",
                    condition=trigger.condition.to_json(),
                )
                for trigger in view.triggers
            ],
            failed_at=row.failed_at,
            failure=row.failure,
        )


class WebhookAnswer(Shape):
    webhook: Webhook


class WebhooksAnswer(Shape):
    webhooks: list[Webhook]


class PostTrigger(Body):
    trigger_type: str
    condition: Json = {}  # noqa: RUF012
    id: int = 0
    webhook_id: int = 0


class PostWebhook(Body):
    name: str = ""
    url: str
    webhook_type: str = "WEBHOOK_TYPE_DEFAULT"
    mode: str = "WEBHOOK_MODE_WORKSPACE"
    triggers: list[PostTrigger] = []  # noqa: RUF012
    workspace_id: int = 0
    id: int = 0


class PatchWebhook(Body):
    url: str


class Alert(Body):
    title: str = ""
    description: str = ""
    level: str = "LOG_LEVEL_INFO"


class PostAlert(Body):
    experiment_id: int = Field(ge=1, lt=2**31)
    trial_id: int = Field(0, ge=0, lt=2**31)
    data: Alert = Alert()


@router.get("/webhooks")
def list_webhooks(master: UsesMaster, caller: UserCaller) -> WebhooksAnswer:
    return WebhooksAnswer(webhooks=[Webhook.of(view) for view in master.webhooks.list_all(caller)])


@router.post("/webhooks")
def create(body: PostWebhook, master: UsesMaster, caller: UserCaller) -> WebhookAnswer:
    request = webhooks.WebhookRequest(
        name=body.name,
        url=body.url,
        kind=_word(body.webhook_type, "WEBHOOK_TYPE_", webhooks.KINDS),
        mode=_word(body.mode, "WEBHOOK_MODE_", webhooks.MODES),
        triggers=[
            webhooks.Trigger(
                _word(trigger.trigger_type, "TRIGGER_TYPE_", TRIGGERS), TriggerCondition(trigger.condition)
            )
            for trigger in body.triggers
        ],
        workspace_id=body.workspace_id or None,
    )
    return WebhookAnswer(webhook=Webhook.of(master.webhooks.create(caller, request)))


@router.post("/webhooks/custom")
def alert(body: PostAlert, master: UsesMaster, caller: AnyCaller) -> Json:
    """Send an alert of training code to the experiment's webhooks."""
    data = body.data.model_dump()
    level = body.data.level.removeprefix("LOG_LEVEL_").upper()
    data["level"] = {"WARN": "WARNING", "UNSPECIFIED": "INFO"}.get(level, level)
    master.webhooks.alert(caller, body.experiment_id, body.trial_id or None, data)
    return {}


@router.patch("/webhooks/{webhook_id}")
def patch(webhook_id: int, body: PatchWebhook, master: UsesMaster, caller: UserCaller) -> Json:
    master.webhooks.set_url(caller, webhook_id, body.url)
    return {}


@router.delete("/webhooks/{webhook_id}")
def delete(webhook_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    master.webhooks.remove(caller, webhook_id)
    return {}


@router.post("/webhooks/{webhook_id}/test")
def test(webhook_id: int, master: UsesMaster, caller: UserCaller) -> Json:
    """Send a test event now. 400 with the reason when it is not delivered."""
    master.webhook_deliveries.test(caller, webhook_id)
    return {"completed": True}


def _word(value: str, prefix: str, known: Any) -> str:
    names = words([value], prefix, known)
    if not names:
        raise Invalid(f"{value!r} says nothing; there are {', '.join(prefix + name for name in known)}.")
    return names[0]
