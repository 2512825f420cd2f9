"""Tables of models and their versions, configuration templates, and the checkpoint that each trial started from."""

from __future__ import annotations

import uuid

from sqlalchemy import BigInteger, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.master.db.tables import Base, Time
from trainmaster.master.values.stored import Json


class Model(Base):
    """A name under which checkpoints are registered one after the other."""

    __tablename__ = "models"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str] = mapped_column(default="")
    notes: Mapped[str] = mapped_column(default="")
    labels: Mapped[list[str]] = mapped_column(default=list)
    model_metadata: Mapped[Json] = mapped_column("metadata", default=dict)
    archived: Mapped[bool] = mapped_column(default=False)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[Time] = mapped_column(server_default=func.now())
    updated_at: Mapped[Time] = mapped_column(server_default=func.now())
    seq: Mapped[int | None] = mapped_column(BigInteger)  # of its last change: `changes.py`

    __table_args__ = (Index("ix_models_unnumbered", "id", postgresql_where=text("seq IS NULL")),)


class ModelVersion(Base):
    """A checkpoint as number `version` of a model. Its files stay while this row is here."""

    __tablename__ = "model_versions"
    id: Mapped[int] = mapped_column(primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"))
    version: Mapped[int]
    checkpoint: Mapped[uuid.UUID] = mapped_column(ForeignKey("checkpoints.uuid"), index=True)
    name: Mapped[str] = mapped_column(default="")
    comment: Mapped[str] = mapped_column(default="")
    notes: Mapped[str] = mapped_column(default="")
    labels: Mapped[list[str]] = mapped_column(default=list)
    version_metadata: Mapped[Json] = mapped_column("metadata", default=dict)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    created_at: Mapped[Time] = mapped_column(server_default=func.now())
    updated_at: Mapped[Time] = mapped_column(server_default=func.now())

    seq: Mapped[int | None] = mapped_column(BigInteger)

    __table_args__ = (
        Index("uq_model_versions_version", "model_id", "version", unique=True),
        Index("ix_model_versions_unnumbered", "id", postgresql_where=text("seq IS NULL")),
    )


class ModelAlias(Base):
    """A name that leads to a version of a model, as "production" does."""

    __tablename__ = "model_aliases"
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id", ondelete="CASCADE"), primary_key=True)
    alias: Mapped[str] = mapped_column(primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id", ondelete="CASCADE"), index=True)


class Template(Base):
    """A part of a configuration, used where an experiment's own file sets no value."""

    __tablename__ = "templates"
    name: Mapped[str] = mapped_column(primary_key=True)
    config: Mapped[Json]
    workspace_id: Mapped[int] = mapped_column(ForeignKey("workspaces.id", ondelete="CASCADE"))
    owner_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))  # None: made before templates had owners


class TrialSource(Base):
    """A trial's report that it uses a checkpoint, for inference or fine tuning."""

    __tablename__ = "trial_sources"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    trial_id: Mapped[int] = mapped_column(ForeignKey("trials.id", ondelete="CASCADE"), index=True)
    checkpoint: Mapped[uuid.UUID] = mapped_column(ForeignKey("checkpoints.uuid", ondelete="CASCADE"), index=True)
    kind: Mapped[str]  # INFERENCE or FINE_TUNING
    model_id: Mapped[int | None]
    model_version: Mapped[int | None]
