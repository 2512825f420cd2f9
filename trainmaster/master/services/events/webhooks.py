"""Webhooks: which events go to which address. An event is written to the outbox in the transaction that caused it;
`webhook_deliveries` sends what is in the outbox."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from trainmaster.config.patterns import BadPattern, compiled
from trainmaster.master.db.tables import Experiment, Project, Trial, User, Workspace
from trainmaster.master.db.webhooks import Webhook, WebhookDelivery, WebhookTrigger
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services import bounds
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.clock import epoch, now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import AlreadyExists, Forbidden, Invalid, NotFound
from trainmaster.master.services.events import slack
from trainmaster.master.services.store import wake
from trainmaster.master.values.configs import StoredConfig
from trainmaster.master.values.stored import Json
from trainmaster.master.values.webhooks import TriggerCondition

KINDS = ("DEFAULT", "SLACK")
MODES = ("WORKSPACE", "SPECIFIC")
STATE_CHANGE, TASK_LOG, CUSTOM = "EXPERIMENT_STATE_CHANGE", "TASK_LOG", "CUSTOM"
STATES = ("COMPLETED", "CANCELED", "ERROR")  # that can trigger a webhook
LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
OUTBOX = "webhooks"  # the wake-up subject of deliveries


@dataclass(frozen=True)
class Trigger:
    kind: str
    condition: TriggerCondition


@dataclass(frozen=True)
class WebhookRequest:
    """A requested webhook; without `workspace_id` it receives events of all workspaces."""

    name: str
    url: str
    kind: str
    mode: str
    triggers: Sequence[Trigger]
    workspace_id: int | None = None


@dataclass(frozen=True)
class WebhookView:
    """`editable`: whether the caller may change it."""

    row: Webhook
    triggers: Sequence[WebhookTrigger]
    editable: bool


@dataclass(frozen=True)
class MatchedLine:
    """A line in the log of a task, and the node that wrote it."""

    task_id: str
    node: str
    text: str


@dataclass(frozen=True)
class WebhookEvent:
    """An event to deliver; `slack` is the message for people."""

    kind: str
    condition: Json
    data: Json
    slack: Json


class SiteWebhooks(BoundService):
    """Webhooks of workspaces and of the site."""

    def list_all(self, caller: Caller) -> list[WebhookView]:
        """Webhooks for all workspaces, and those of the caller's: with roles where these permit viewing webhooks,
        without roles where the workspace is the caller's own. Administrators see all."""
        query = select(Webhook).order_by(Webhook.id)
        if (where := caller.where(Permission.VIEW_WEBHOOKS)) is not None:
            query = query.where(or_(Webhook.workspace_id.is_(None), Webhook.workspace_id.in_(where)))
        elif caller.grants is None and not caller.admin:
            own_workspaces = select(Workspace.id).where(Workspace.user_id == caller.user_id)
            query = query.where(or_(Webhook.workspace_id.is_(None), Webhook.workspace_id.in_(own_workspaces)))
        with self._store.transaction() as session:
            rows = list(session.scalars(query))
            triggers: dict[int, list[WebhookTrigger]] = {row.id: [] for row in rows}
            theirs = select(WebhookTrigger).where(WebhookTrigger.webhook_id.in_(triggers)).order_by(WebhookTrigger.id)
            for trigger in session.scalars(theirs):
                triggers[trigger.webhook_id].append(trigger)
            editable = _editable(session, caller, {row.workspace_id for row in rows})
        return [WebhookView(row, triggers[row.id], row.workspace_id in editable) for row in rows]

    def create(self, caller: Caller, request: WebhookRequest) -> WebhookView:
        """Raise Invalid, AlreadyExists, Forbidden. Webhooks for all workspaces may share a name, and
        the empty name is never taken."""
        _check(request)
        with self._store.transaction() as session:
            if request.workspace_id is not None and session.get(Workspace, request.workspace_id) is None:
                raise NotFound(f"There is no workspace {request.workspace_id}.")
            if not _editable(session, caller, {request.workspace_id}):
                if request.workspace_id is not None and caller.grants is not None:
                    absent = f"There is no workspace {request.workspace_id}."
                    caller.require(Permission.EDIT_WEBHOOKS, request.workspace_id, absent)
                where = "all workspaces" if request.workspace_id is None else f"workspace {request.workspace_id}"
                raise Forbidden(
                    f"You may not make a webhook for {where}: without roles the owner of a workspace may for that one, "
                    "and administrators for all."
                    if caller.grants is None
                    else f"None of your roles allows to make a webhook for {where}."
                )
            here = (
                Webhook.workspace_id == request.workspace_id if request.workspace_id else Webhook.workspace_id.is_(None)
            )
            same = select(Webhook.id).where(Webhook.name == request.name, here)
            if request.name and request.workspace_id is not None and session.scalar(same) is not None:
                raise AlreadyExists(f"The webhook {request.name!r} already exists there.")
            bounds.check_count(session, "things", "There are {} webhooks there", here)
            row = Webhook(
                name=request.name,
                url=request.url,
                kind=request.kind,
                mode=request.mode,
                workspace_id=request.workspace_id,
                failure="",
            )
            session.add(row)
            session.flush()
            triggers = [
                WebhookTrigger(webhook_id=row.id, kind=trigger.kind, condition=trigger.condition)
                for trigger in request.triggers
            ]
            session.add_all(triggers)
            session.flush()
            return WebhookView(row, triggers, editable=True)

    def set_url(self, caller: Caller, webhook_id: int, url: str) -> None:
        """Change the address; pending events go to the new one."""
        _check_url(url)
        with self._store.transaction() as session:
            row = find(session, caller, webhook_id)
            row.url, row.failed_at, row.failure = url, None, ""

    def remove(self, caller: Caller, webhook_id: int) -> None:
        with self._store.transaction() as session:
            session.delete(find(session, caller, webhook_id))

    def get(self, caller: Caller, webhook_id: int) -> Webhook:
        with self._store.transaction() as session:
            return find(session, caller, webhook_id)

    def alert(self, caller: Caller, experiment_id: int, trial_id: int | None, data: Mapping[str, Any]) -> None:
        """Queue an alert of training code. Raises NotFound, Forbidden, Invalid."""
        level = str(data.get("level") or "INFO")
        if level not in LEVELS:
            raise Invalid(f"There is no level {level!r}; there are {', '.join(LEVELS)}.")
        with self._store.transaction() as session:
            row = session.get(Experiment, experiment_id)
            if row is None:
                raise NotFound(f"There is no experiment {experiment_id}.")
            home = session.get_one(Project, row.project_id).workspace_id
            caller.check(home, f"There is no experiment {experiment_id}.")
            _own(session, caller, row)
            if trial_id is not None:
                trial = session.get(Trial, trial_id)
                if trial is None or trial.experiment_id != row.id:
                    raise NotFound(f"Experiment {row.id} has no trial {trial_id}.")
            hooks = _listeners(
                session,
                select(WebhookTrigger.webhook_id).where(WebhookTrigger.kind == CUSTOM),
                row.config,
                row.project_id,
            )
            alert = slack.Alert(level, str(data.get("title") or ""), str(data.get("description") or ""))
            facts = _experiment(session, row)
            if trial_id is not None:
                facts["trial_id"] = trial_id
            custom = {"title": alert.title, "description": alert.description, "level": level}
            payload: Json = {"experiment": facts, "custom_data": custom}
            message = slack.of_experiment(facts, trial_id, alert)
            notify(session, hooks, WebhookEvent(CUSTOM, {"state": row.state}, payload, message))


def find(session: Session, caller: Caller, webhook_id: int) -> Webhook:
    """Under its row lock. Raises NotFound, Forbidden."""
    row = session.get(Webhook, webhook_id, with_for_update=True)
    if row is None:
        raise NotFound(f"There is no webhook {webhook_id}.")
    if not _editable(session, caller, {row.workspace_id}):
        raise Forbidden(f"Webhook {webhook_id} is not of a workspace in which you may change webhooks.")
    return row


def _editable(session: Session, caller: Caller, workspaces: AbstractSet[int | None]) -> AbstractSet[int | None]:
    """Return the ones of `workspaces` (None: all of them together) whose webhooks the caller may change."""
    if caller.grants is not None or caller.admin:
        return {each for each in workspaces if caller.holds(Permission.EDIT_WEBHOOKS, each)}
    owned = select(Workspace.id).where(Workspace.user_id == caller.user_id, Workspace.id.in_(workspaces - {None}))
    return set(session.scalars(owned))


# -- what happens --------------------------------------------------------------------------------------------------


def experiment_ended(session: Session, row: Experiment) -> None:
    """Queue the events for an experiment that has reached its terminal state."""
    triggered = select(WebhookTrigger.webhook_id).where(
        WebhookTrigger.kind == STATE_CHANGE, WebhookTrigger.condition[TriggerCondition.STATE].astext == row.state
    )
    hooks = _listeners(session, triggered, row.config, row.project_id)
    if not hooks:
        return
    facts = _experiment(session, row)
    notify(
        session,
        hooks,
        WebhookEvent(STATE_CHANGE, {"state": row.state}, {"experiment": facts}, slack.of_experiment(facts)),
    )


def log_matched(session: Session, trigger: WebhookTrigger, hook: Webhook, trial: Trial, line: MatchedLine) -> None:
    """Queue the event for a line in the log of a trial's task."""
    facts = {"task_log": {"task_id": line.task_id, "node_name": line.node, "triggering_log": line.text}}
    who = (("Experiment ID", trial.experiment_id), ("Trial ID", trial.id))
    pattern = str(trigger.condition.regex or "")
    message = slack.of_log(who, line.node, line.text, pattern, f"View full logs with `det trial logs {trial.id}`")
    notify(session, [hook], WebhookEvent(TASK_LOG, trigger.condition.to_json(), facts, message))


def test_event() -> WebhookEvent:
    """A test event, as Determined's."""
    return WebhookEvent(STATE_CHANGE, {"state": "COMPLETED"}, {"data": "test"}, slack.of_test())


def notify(session: Session, hooks: Iterable[Webhook], event: WebhookEvent) -> None:
    """Write an event to the outbox, for delivery after this transaction."""
    deliveries = [
        WebhookDelivery(webhook_id=hook.id, event_id=(key := uuid.uuid4()), body=body_of(hook, event, key), attempts=0)
        for hook in hooks
    ]
    if deliveries:
        session.add_all(deliveries)
        wake(session, OUTBOX)


def body_of(hook: Webhook, event: WebhookEvent, key: uuid.UUID) -> str:
    """Return the body to send: Determined's JSON, or a message for Slack."""
    if hook.kind == "SLACK":
        return json.dumps(event.slack)
    return json.dumps(
        {
            "event_id": str(key),
            "event_type": event.kind,
            "timestamp": int(epoch(now())),
            "condition": event.condition,
            "event_data": event.data,
        }
    )


def wanted_by(config: StoredConfig, hooks: Iterable[Webhook]) -> list[Webhook]:
    """Return the webhooks that receive events of an experiment with this configuration: its workspace's unless it
    excludes them, and those that it names."""
    wanted = config.webhooks
    if wanted.exclude:
        return []
    ids, names = set(wanted.webhook_id or ()), set(wanted.webhook_name or ())
    return [hook for hook in hooks if hook.mode == "WORKSPACE" or hook.id in ids or hook.name in names]


# -- inside -------------------------------------------------------------------------------------------------------


def _listeners(session: Session, triggered: Any, config: StoredConfig, project_id: int) -> list[Webhook]:
    home = select(Project.workspace_id).where(Project.id == project_id).scalar_subquery()
    query = select(Webhook).where(
        Webhook.id.in_(triggered), or_(Webhook.workspace_id.is_(None), Webhook.workspace_id == home)
    )
    return wanted_by(config, session.scalars(query.order_by(Webhook.id)))


def _experiment(session: Session, row: Experiment) -> Json:
    project = session.get_one(Project, row.project_id)
    workspace = session.get_one(Workspace, project.workspace_id)
    owner = session.get_one(User, row.owner_id)
    end = row.end_time or now()
    return {
        "id": row.id,
        "state": row.state,
        "name": row.name,
        "username": owner.username,
        "slots_per_trial": row.config.slots,
        "duration": int((end - row.start_time).total_seconds()),
        "resource_pool": row.resource_pool,
        "workspace": workspace.name,
        "project": project.name,
        **({"reason": row.reason} if row.state == State.ERROR and row.reason else {}),
    }


def _own(session: Session, caller: Caller, row: Experiment) -> None:
    if caller.allocation_id is not None:
        own_experiment = session.scalar(select(Trial.experiment_id).where(Trial.id == (caller.trial_id or 0)))
        if own_experiment != row.id:
            raise Forbidden(f"This token does not belong to experiment {row.id}.")
    else:
        caller.require_owner(f"Experiment {row.id}", row.owner_id)


def _check(request: WebhookRequest) -> None:
    _check_url(request.url)
    if not request.triggers:
        raise Invalid("A webhook needs at least one trigger, or it would never receive an event.")
    for trigger in request.triggers:
        if trigger.kind == STATE_CHANGE and trigger.condition.state not in STATES:
            raise Invalid(f"A trigger on experiments' states needs a condition state, one of {', '.join(STATES)}.")
        if trigger.kind == TASK_LOG:
            _check_pattern(trigger.condition.regex)
        if trigger.kind == CUSTOM and request.mode != "SPECIFIC":
            raise Invalid(
                "A custom trigger only works on a webhook with mode 'SPECIFIC', which experiments name under "
                f"integrations.webhooks; this one has {request.mode!r}."
            )


def _check_pattern(pattern: object) -> None:
    if not isinstance(pattern, str) or not pattern:
        raise Invalid("A trigger on log lines needs a condition regex.")
    try:
        compiled(pattern)
    except BadPattern as error:
        raise Invalid(f"{pattern!r} is not a regular expression: {error}.") from None


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fine = False
    if not fine or any(ord(c) <= 32 or ord(c) > 126 for c in url):
        raise Invalid(f"{url!r} is not an address that can receive events; write for example https://host/path.")
