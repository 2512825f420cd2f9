"""Keeps which commit each experiment's code is of."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import literal, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from trainmaster.config.git_state import GitState
from trainmaster.master.db.experiment_code import ExperimentCode
from trainmaster.master.services.context import BoundService


class GitStates(BoundService):
    """The commits that experiments' code is of."""

    def get(self, experiment_id: int) -> GitState | None:
        """Return what the program that created the experiment said; None if it said nothing."""
        with self._store.transaction() as session:
            row = session.get(ExperimentCode, experiment_id)
            return row.git if row is not None else None


def put(session: Session, experiment_id: int, state: GitState) -> None:
    session.add(ExperimentCode(experiment_id=experiment_id, git=state))


def inherit(session: Session, experiment_id: int, source: int) -> None:
    """Like `put`, with the state of another experiment, if it has one."""
    of_source = select(literal(experiment_id), ExperimentCode.git).where(ExperimentCode.experiment_id == source)
    session.execute(insert(ExperimentCode).from_select(["experiment_id", "git"], of_source))


def of_experiments(session: Session, ids: Iterable[int]) -> dict[int, GitState]:
    """Return those that are known."""
    rows = session.execute(select(ExperimentCode).where(ExperimentCode.experiment_id.in_(ids))).scalars()
    return {row.experiment_id: row.git for row in rows}
