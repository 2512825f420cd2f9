"""The table of what is known about the origin of experiments' code."""

from __future__ import annotations

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from trainmaster.config.git_state import GitState
from trainmaster.master.db.tables import Base


class ExperimentCode(Base):
    """Which commit an experiment's code is of, as its creator's program said. In a table of its own, so that no list
    reads the diff."""

    __tablename__ = "experiment_code"
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiments.id", ondelete="CASCADE"), primary_key=True)
    git: Mapped[GitState]
