"""Tables of webhooks, and of the outbox of events that are still to be delivered."""

from __future__ import annotations

import uuid

from sqlalchemy import BigInteger, ForeignKey, Index, func
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time
from trainmaster.master.values.webhooks import TriggerCondition


class Webhook(Base):
    """An address that receives events of a workspace, or without one all events."""

    __tablename__ = "webhooks"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    url: Mapped[str]
    kind: Mapped[str]  # DEFAULT or SLACK: how the body is written
    mode: Mapped[str]  # WORKSPACE: all experiments there; SPECIFIC: those whose configuration names it
    workspace_id: Mapped[int | None] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[Time] = mapped_column(server_default=func.now())
    failed_at: Mapped[Time | None]  # time of the last failed delivery; None after a success
    failure: Mapped[str] = mapped_column(default="")


class WebhookTrigger(Base):
    """A kind of event that a webhook receives."""

    __tablename__ = "webhook_triggers"
    id: Mapped[int] = mapped_column(primary_key=True)
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(index=True)  # EXPERIMENT_STATE_CHANGE, TASK_LOG or CUSTOM
    condition: Mapped[TriggerCondition]


class WebhookMatch(Base):
    """A match of a task's log with a trigger: it is delivered once for each task."""

    __tablename__ = "webhook_matches"
    trigger_id: Mapped[int] = mapped_column(ForeignKey("webhook_triggers.id", ondelete="CASCADE"), primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.task_id", ondelete="CASCADE"), primary_key=True, index=True)


class WebhookDelivery(Base):
    """The outbox: a row is written with the change that it reports, and deleted when it is delivered or given up."""

    __tablename__ = "webhook_deliveries"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhooks.id", ondelete="CASCADE"), index=True)
    event_id: Mapped[uuid.UUID]
    body: Mapped[str]
    attempts: Mapped[int] = mapped_column(default=0)  # counted before each is made
    due_at: Mapped[Time] = mapped_column(server_default=func.now())
    created_at: Mapped[Time] = mapped_column(server_default=func.now())

    __table_args__ = (Index("ix_webhook_deliveries_due_at", "due_at"),)
