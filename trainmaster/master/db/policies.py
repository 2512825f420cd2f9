"""Tables of what administrators set for everybody: configuration policies, and the maintenance message."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time
from trainmaster.master.values.stored import Json


class ConfigPolicy(Base):
    """Rules for all configurations of a kind of work, in a workspace or, without one, everywhere."""

    __tablename__ = "config_policies"
    id: Mapped[int] = mapped_column(primary_key=True)
    workload: Mapped[str]  # EXPERIMENT or NTSC
    workspace_id: Mapped[int | None] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), index=True)
    invariant: Mapped[Json | None]  # a part of a configuration that overrides the user's
    constraints: Mapped[Json | None]  # {"resources": {"max_slots"}, "priority_limit"}
    updated_by: Mapped[int] = mapped_column(ForeignKey("users.id"))
    updated_at: Mapped[Time] = mapped_column(server_default=func.now())

    __table_args__ = (
        Index("uq_config_policies_workspace", "workload", "workspace_id", unique=True),
        Index("uq_config_policies_global", "workload", unique=True, postgresql_where=text("workspace_id IS NULL")),
    )


class ClusterMessage(Base):
    """One row at most: the maintenance message that clients show."""

    __tablename__ = "cluster_message"
    id: Mapped[int] = mapped_column(primary_key=True, default=1)
    message: Mapped[str]
    start_time: Mapped[Time]
    end_time: Mapped[Time | None]
    created_at: Mapped[Time] = mapped_column(server_default=func.now())
