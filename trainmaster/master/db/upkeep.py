"""Tables about files in checkpoint storage: pending removals, declared storages, and uploads to object stores."""

from __future__ import annotations

import uuid

from sqlalchemy import BigInteger, ForeignKey, Index, func, text
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


class CheckpointUpload(Base):
    """A checkpoint in an object store. The row is there before the first byte is sent, and stays with the checkpoint:
    files without a row are nobody's."""

    __tablename__ = "uploads"
    checkpoint: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), index=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    allocation_id: Mapped[str]  # of the job that sends it
    storage: Mapped[StorageRef]
    state: Mapped[str]  # SENDING, COMPLETED, ABANDONED, REMOVED (its files, while its job lives)
    ranks: Mapped[list[int]]  # that have sent all of their files
    created_at: Mapped[Time] = mapped_column(server_default=func.now())

    __table_args__ = (Index("ix_uploads_unfinished", "checkpoint", postgresql_where=text("state <> 'COMPLETED'")),)


class StoredFile(Base):
    """A file of a checkpoint in an object store."""

    __tablename__ = "stored_files"
    checkpoint: Mapped[uuid.UUID] = mapped_column(
        ForeignKey("uploads.checkpoint", ondelete="CASCADE"), primary_key=True
    )
    path: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str]
    there: Mapped[bool]  # whether all of its bytes have arrived
    upload: Mapped[str | None]  # the store's id of a large object's unfinished upload
