"""Webhooks with their outbox, configuration policies, the banner, unmanaged trials, and what log lines have led to"""

from __future__ import annotations

import datetime as dt

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

JSON = postgresql.JSONB(astext_type=sa.Text())


def _time(name: str, *, given: bool = False) -> sa.Column[dt.datetime]:
    default = None if given else sa.text("now()")
    return sa.Column(name, sa.DateTime(timezone=True), server_default=default, nullable=given)


def _belongs(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    """Return a row goes with what it belongs to."""
    name = op.f(f"fk_{table}_{column}_{target.split('.')[0]}")
    return sa.ForeignKeyConstraint([column], [target], name=name, ondelete="CASCADE")


def upgrade() -> None:
    _webhooks()
    _policies()
    op.add_column("experiments", sa.Column("unmanaged", sa.Boolean(), nullable=False, server_default=sa.text("false")))
    op.add_column("experiments", sa.Column("external_id", sa.Text(), nullable=True))
    op.create_index("uq_experiments_external_id", "experiments", ["external_id"], unique=True)
    op.add_column("trials", sa.Column("external_id", sa.Text(), nullable=True))
    op.create_index("uq_trials_external_id", "trials", ["experiment_id", "external_id"], unique=True)
    op.add_column("trials", _time("heartbeat_at", given=True))
    op.create_index("ix_trials_heartbeat_at", "trials", ["heartbeat_at"], postgresql_where=sa.text("end_time IS NULL"))
    op.add_column("trials", sa.Column("log_policy", sa.Text(), nullable=True))
    op.add_column("trials", sa.Column("no_retries", sa.Text(), nullable=True))
    op.add_column("trials", sa.Column("blocked_nodes", JSON, nullable=False, server_default=sa.text("'[]'")))
    op.add_column("allocations", sa.Column("accelerators", JSON, nullable=True))


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=True),
        _time("created_at"),
        _time("failed_at", given=True),
        sa.Column("failure", sa.Text(), nullable=False),
        _belongs("webhooks", "workspace_id", "workspaces.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhooks")),
    )
    op.create_index("ix_webhooks_workspace_id", "webhooks", ["workspace_id"])
    op.create_table(
        "webhook_triggers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("webhook_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("condition", JSON, nullable=False),
        _belongs("webhook_triggers", "webhook_id", "webhooks.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_triggers")),
    )
    op.create_index("ix_webhook_triggers_webhook_id", "webhook_triggers", ["webhook_id"])
    op.create_index("ix_webhook_triggers_kind", "webhook_triggers", ["kind"])
    op.create_table(
        "webhook_matches",
        sa.Column("trigger_id", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        _belongs("webhook_matches", "trigger_id", "webhook_triggers.id"),
        _belongs("webhook_matches", "task_id", "tasks.task_id"),
        sa.PrimaryKeyConstraint("trigger_id", "task_id", name=op.f("pk_webhook_matches")),
    )
    op.create_index("ix_webhook_matches_task_id", "webhook_matches", ["task_id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.Column("webhook_id", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        _time("due_at"),
        _time("created_at"),
        _belongs("webhook_deliveries", "webhook_id", "webhooks.id"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    op.create_index("ix_webhook_deliveries_webhook_id", "webhook_deliveries", ["webhook_id"])
    op.create_index("ix_webhook_deliveries_due_at", "webhook_deliveries", ["due_at"])


def _policies() -> None:
    op.create_table(
        "config_policies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("workload", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Integer(), nullable=True),
        sa.Column("invariant", JSON, nullable=True),
        sa.Column("constraints", JSON, nullable=True),
        sa.Column("updated_by", sa.Integer(), nullable=False),
        _time("updated_at"),
        _belongs("config_policies", "workspace_id", "workspaces.id"),
        sa.ForeignKeyConstraint(["updated_by"], ["users.id"], name=op.f("fk_config_policies_updated_by_users")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_config_policies")),
    )
    op.create_index("ix_config_policies_workspace_id", "config_policies", ["workspace_id"])
    op.create_index("uq_config_policies_workspace", "config_policies", ["workload", "workspace_id"], unique=True)
    op.create_index(
        "uq_config_policies_global",
        "config_policies",
        ["workload"],
        unique=True,
        postgresql_where=sa.text("workspace_id IS NULL"),
    )
    op.create_table(
        "cluster_message",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        _time_of("start_time"),
        _time("end_time", given=True),
        _time("created_at"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cluster_message")),
    )


def _time_of(name: str) -> sa.Column[dt.datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)
