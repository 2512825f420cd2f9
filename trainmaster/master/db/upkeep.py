"""Table of pending removals from checkpoint storage."""

from __future__ import annotations

import uuid

from sqlalchemy import BigInteger, ForeignKey, func
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Json, Time


class CheckpointRemoval(Base):
    """Files of a checkpoint that match `globs` are to go; without globs its list of files is read anew."""

    __tablename__ = "checkpoint_removals"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    checkpoint: Mapped[uuid.UUID] = mapped_column(ForeignKey("checkpoints.uuid", ondelete="CASCADE"))
    globs: Mapped[list[str]]
    asked_at: Mapped[Time] = mapped_column(server_default=func.now())


class DeclaredStorage(Base):
    """A checkpoint storage that a training told of before it wrote there; it says its number with each checkpoint."""

    __tablename__ = "storages"
    id: Mapped[int] = mapped_column(primary_key=True)
    config: Mapped[Json]
