"""Tables of access and organisation: groups, roles, pinned workspaces, bound pools, policies of the site."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time
from trainmaster.master.values.stored import Json


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


class Group(Base):
    __tablename__ = "groups"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class GroupMember(Base):
    __tablename__ = "group_members"
    group_id: Mapped[int] = mapped_column(ForeignKey("groups.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True)


class RoleAssignment(Base):
    """A role of a user or a group (one of the two), in a workspace or, without one, everywhere."""

    __tablename__ = "role_assignments"
    id: Mapped[int] = mapped_column(primary_key=True)
    role_id: Mapped[int]  # of `services.access.permissions.ROLES`
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    group_id: Mapped[int | None] = mapped_column(ForeignKey("groups.id", ondelete="CASCADE"), index=True)
    workspace_id: Mapped[int | None] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), index=True)


class UserSetting(Base):
    """A setting that the web page stores for a user."""

    __tablename__ = "user_settings"
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    storage_path: Mapped[str] = mapped_column(primary_key=True, default="")
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(default="")


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
