"""Tables of standalone tasks: commands, notebooks, shells, TensorBoards and generic tasks."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time, _now
from trainmaster.master.values.configs import StoredTask
from trainmaster.master.values.stored import Json
from trainmaster.master.values.tasks import ShellKeys, ShownEvents


class Standalone(Base):
    """A standalone task, beside its row in `tasks`; its attempts are allocations without a trial."""

    __tablename__ = "standalone_tasks"
    task_id: Mapped[str] = mapped_column(ForeignKey("tasks.task_id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str]  # the task's type: COMMAND, NOTEBOOK, SHELL, TENSORBOARD, GENERIC
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), index=True)
    project_id: Mapped[int | None] = mapped_column(ForeignKey("projects.id", ondelete="SET NULL"))
    owner_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("standalone_tasks.task_id", ondelete="SET NULL"), index=True
    )
    forked_from: Mapped[str | None]
    state: Mapped[str]
    reason: Mapped[str] = mapped_column(default="")  # why it is in this state, in words
    description: Mapped[str] = mapped_column(default="")
    config: Mapped[StoredTask]
    given: Mapped[Json | None] = mapped_column(deferred=True)  # of a generic task: its owner's description
    pool: Mapped[str]
    archive: Mapped[bytes] = mapped_column(default=b"", deferred=True)  # the user's files, a gzipped tar
    secrets: Mapped[ShellKeys | None] = mapped_column(deferred=True)
    shows: Mapped[ShownEvents | None]
    pausable: Mapped[bool] = mapped_column(default=False)
    attempts: Mapped[int] = mapped_column(default=0)
    setbacks: Mapped[int] = mapped_column(default=0)  # consecutive attempts that ended before anything of it ran
    idle_timeout: Mapped[float | None]  # seconds of idleness after which it is ended
    idle: Mapped[bool | None]  # a notebook's last report of activity; None: it has not reported
    used_at: Mapped[Time | None]  # time of the last use through the proxy, or of activity
    start_time: Mapped[Time] = _now()
    end_time: Mapped[Time | None]

    __table_args__ = (
        Index("ix_standalone_tasks_kind", "kind", "start_time"),
        Index("ix_standalone_tasks_live", "task_id", postgresql_where=text("end_time IS NULL")),
    )
