"""Table of pending removals from checkpoint storage."""

from __future__ import annotations

import uuid

from sqlalchemy import BigInteger, ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time
from trainmaster.master.values.storage import StorageRef


class CheckpointRemoval(Base):
    """A request to remove files of a checkpoint that match `globs`; without globs its list of files is read again."""

    __tablename__ = "checkpoint_removals"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    checkpoint: Mapped[uuid.UUID] = mapped_column(ForeignKey("checkpoints.uuid", ondelete="CASCADE"))
    globs: Mapped[list[str]]
    asked_at: Mapped[Time] = mapped_column(server_default=func.now())


class DeclaredStorage(Base):
    """A checkpoint storage that a training declared before it wrote there; it sends its number with each checkpoint."""

    __tablename__ = "storages"
    id: Mapped[int] = mapped_column(primary_key=True)
    config: Mapped[StorageRef]
