"""Configuration policies of the site and of workspaces, and the maintenance message that an administrator sets."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from trainmaster.config import policies
from trainmaster.config.experiment import ExperimentConfig
from trainmaster.config.masks import MASK
from trainmaster.config.messages import ConfigError
from trainmaster.config.policies import Policy
from trainmaster.config.secrets import masked, masks, unmasked
from trainmaster.config.task import TaskConfig
from trainmaster.master.db.organisation import ClusterMessage, ConfigPolicy
from trainmaster.master.db.tables import Workspace
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clock import now
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.values.stored import Json

EXPERIMENT, NTSC = "EXPERIMENT", "NTSC"
LONGEST_MESSAGE = 250  # characters of the maintenance message
C = TypeVar("C", ExperimentConfig, TaskConfig)


class SitePolicies(BoundService):
    """Configuration policies, and the maintenance message."""

    def get(self, workload: str, workspace_id: int | None) -> Json:
        """Return the policies as they were put; empty when nothing is set. Raises NotFound for an unknown workspace."""
        with self._store.transaction() as session:
            _workspace(session, workspace_id)
            return _shown(session.scalar(_of(_known(workload), workspace_id)))

    def put(self, caller: Caller, workload: str, workspace_id: int | None, text: str) -> Json:
        """Replace the policies. Raises Invalid with everything that is wrong, NotFound."""
        workload = _known(workload)
        try:
            policy = policies.parse_policy(text, experiments=workload == EXPERIMENT, limits=self._limits)
        except ConfigError as error:
            raise Invalid(str(error)) from None
        with self._store.transaction() as session:
            _workspace(session, workspace_id, lock=True)
            row = session.scalar(_of(workload, workspace_id).with_for_update())
            if row is None:
                row = ConfigPolicy(workload=workload, workspace_id=workspace_id)
                session.add(row)
            invariant = policy.invariant
            if invariant is not None:
                invariant = unmasked(invariant, row.invariant or {})
                if left := masks(invariant):
                    raise Invalid(
                        f"{policies.INVARIANT}.{left[0]} holds {MASK}, which policies are shown with instead of the "
                        "real value: write that."
                    )
            row.invariant = invariant
            row.constraints = dict(policy.constraints) if policy.constraints is not None else None
            row.updated_by, row.updated_at = caller.user_id, now()
            return _shown(row)

    def remove(self, workload: str, workspace_id: int | None) -> None:
        with self._store.transaction() as session:
            _workspace(session, workspace_id)
            row = session.scalar(_of(_known(workload), workspace_id).with_for_update())
            if row is not None:
                session.delete(row)

    def set_message(self, text: str, start: dt.datetime, end: dt.datetime | None) -> None:
        """Raise Invalid."""
        if not text.strip() or len(text) > LONGEST_MESSAGE:
            raise Invalid(f"A message for everybody has 1 to {LONGEST_MESSAGE} characters, not {len(text)}.")
        if end is not None and (end <= start or end <= now()):
            raise Invalid("The message's end must lie after its beginning, and after now.")
        with self._store.transaction() as session:
            session.merge(ClusterMessage(id=1, message=text, start_time=start, end_time=end, created_at=now()))

    def clear_message(self) -> None:
        with self._store.transaction() as session:
            row = session.get(ClusterMessage, 1)
            if row is not None:
                session.delete(row)

    def message(self, *, shown: bool = False) -> Message | None:
        """Return the message that is set and has not expired; `shown`: only once it has begun."""
        with self._store.transaction() as session:
            row = session.get(ClusterMessage, 1)
        if row is None or (row.end_time is not None and row.end_time <= now()) or (shown and row.start_time > now()):
            return None
        return Message(row.message, row.start_time, row.end_time, row.created_at)


def of_workspace(session: Session, workspace_id: int, workload: str = EXPERIMENT) -> list[Policy]:
    """Return the policies for experiments (or standalone tasks: NTSC) in a workspace, the most important first."""
    c = ConfigPolicy
    query = select(c, Workspace.name).outerjoin(Workspace, Workspace.id == c.workspace_id)
    governing = query.where(c.workload == workload, or_(c.workspace_id.is_(None), c.workspace_id == workspace_id))
    return [
        Policy("the site" if name is None else f"the workspace {name!r}", row.invariant, row.constraints)
        for row, name in session.execute(governing.order_by(c.workspace_id.nulls_first()))
    ]


def govern(config: C, governing: list[Policy]) -> C:
    """Apply the policies' invariants to a configuration. Raises Invalid, with the policy's origin."""
    if not governing:
        return config
    try:
        return policies.governed(config, governing)
    except ConfigError as error:
        raise Invalid(f"{error}.") from None


def refuse(session: Session, workspace_id: int, config: Mapping[str, Any], workload: str = EXPERIMENT) -> None:
    """Check a change of an existing entity against the policies. Raises Invalid."""
    if refusals := policies.refusals(config, of_workspace(session, workspace_id, workload)):
        raise Invalid(" ".join(f"{word}." for word in refusals))


# -- the banner ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    text: str
    start: dt.datetime
    end: dt.datetime | None
    created: dt.datetime


# -- inside -------------------------------------------------------------------------------------------------------


def _known(workload: str) -> str:
    word = {"EXPERIMENT": EXPERIMENT, "NTSC": NTSC, "TASKS": NTSC}.get(workload.upper())
    if word is None:
        raise Invalid(f"There are no policies for {workload!r}; there are {EXPERIMENT} and {NTSC}.")
    return word


def _of(workload: str, workspace_id: int | None) -> Any:
    here = ConfigPolicy.workspace_id == workspace_id if workspace_id else ConfigPolicy.workspace_id.is_(None)
    return select(ConfigPolicy).where(ConfigPolicy.workload == workload, here)


def _workspace(session: Session, workspace_id: int | None, *, lock: bool = False) -> None:
    if workspace_id is not None and session.get(Workspace, workspace_id, with_for_update=lock) is None:
        raise NotFound(f"There is no workspace {workspace_id}.")


def _shown(row: ConfigPolicy | None) -> Json:
    if row is None:
        return {}
    invariant = masked(row.invariant) if row.invariant is not None else None
    parts = {policies.INVARIANT: invariant, policies.CONSTRAINTS: row.constraints}
    return {key: value for key, value in parts.items() if value is not None}
