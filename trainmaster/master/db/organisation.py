"""Tables beside workspaces and projects: pinned workspaces, and resource pools bound to workspaces."""

from __future__ import annotations

from sqlalchemy import ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time


class WorkspacePin(Base):
    __tablename__ = "workspace_pins"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True)
    pinned_at: Mapped[Time] = mapped_column(server_default=func.now())


class PoolBinding(Base):
    """A pool with any row here serves only the workspaces of its rows; one without serves everybody."""

    __tablename__ = "pool_bindings"
    pool: Mapped[str] = mapped_column(primary_key=True)
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True)
